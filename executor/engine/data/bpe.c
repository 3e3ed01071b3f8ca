#include "executor/engine/data/bpe.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct text {
    size_t at;
    uint32_t n;
    bool there;
};

struct merge {
    uint64_t pair; /* left << 32 | right; NO_PAIR = an empty place */
    uint32_t rank;
    int32_t token;
};
#define NO_PAIR UINT64_MAX

/* Both tables are open addressing with a power of two of places, at most half of them taken. */
struct bpe {
    char *pool; /* all tokens' bytes */
    size_t n_pool, pool_room;
    struct text *texts; /* by token */
    int n_texts;        /* the largest token + 1 */
    size_t texts_room;
    int32_t *by_text; /* tokens by their bytes' hash; -1 = an empty place */
    size_t n_by_text, by_text_room;
    struct merge *merges;
    size_t n_merges, merges_room;
    int32_t byte[256]; /* the token of one byte; -1 = none */
};

/* FNV-1a in words of eight bytes, mixed at the end. */
static uint64_t hash_bytes(const void *p, size_t n) {
    const uint8_t *c = p;
    uint64_t h = 0xcbf29ce484222325u ^ n, word;
    for (; n >= 8; n -= 8, c += 8) {
        memcpy(&word, c, 8);
        h = (h ^ word) * 0x100000001b3u;
        h ^= h >> 29;
    }
    word = 0;
    memcpy(&word, c, n);
    h = (h ^ word) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 32;
}

static uint64_t hash_pair(uint64_t pair) {
    pair *= 0x9e3779b97f4a7c15u;
    return pair ^ pair >> 32;
}

status_t bpe_new(struct bpe **ret, struct err *e) {
    struct bpe *b = calloc(1, sizeof *b);
    if (!b)
        return err_errno(e, "allocate a vocabulary");
    memset(b->byte, 0xff, sizeof b->byte);
    *ret = b;
    return ST_OK;
}

struct bpe *bpe_free(struct bpe *b) {
    if (b) {
        free(b->pool);
        free(b->texts);
        free(b->by_text);
        free(b->merges);
        free(b);
    }
    return NULL;
}

int bpe_vocabulary(const struct bpe *b) { return b->n_texts; }

const char *bpe_text(const struct bpe *b, int32_t token, size_t *ret_n) {
    if (token < 0 || token >= b->n_texts || !b->texts[token].there)
        return NULL;
    *ret_n = b->texts[token].n;
    return b->pool + b->texts[token].at;
}

/* Where these bytes stand, or would. */
static size_t place_of(const struct bpe *b, const void *text, size_t n) {
    size_t i = hash_bytes(text, n) & (b->by_text_room - 1);
    for (; b->by_text[i] >= 0; i = (i + 1) & (b->by_text_room - 1)) {
        const struct text *t = &b->texts[b->by_text[i]];
        if (t->n == n && memcmp(b->pool + t->at, text, n) == 0)
            break;
    }
    return i;
}

int32_t bpe_find(const struct bpe *b, const void *text, size_t n) {
    return b->by_text_room ? b->by_text[place_of(b, text, n)] : -1;
}

static status_t grow_by_text(struct bpe *b, struct err *e) {
    size_t old = b->by_text_room, room = old ? old * 2 : 1024;
    int32_t *before = b->by_text, *table = malloc(room * sizeof *table);
    if (!table)
        return err_errno(e, "allocate a vocabulary of %zu tokens", room / 2);
    memset(table, 0xff, room * sizeof *table);
    b->by_text = table;
    b->by_text_room = room;
    for (size_t i = 0; i < old; i++)
        if (before[i] >= 0)
            table[place_of(b, b->pool + b->texts[before[i]].at, b->texts[before[i]].n)] = before[i];
    free(before);
    return ST_OK;
}

/* Makes room for one more token of n bytes under this number. */
static status_t reserve(struct bpe *b, size_t token, size_t n, struct err *e) {
    if (token >= b->texts_room) {
        size_t room = b->texts_room ? b->texts_room : 512;
        while (room <= token)
            room *= 2;
        struct text *texts = realloc(b->texts, room * sizeof *texts);
        if (!texts)
            return err_errno(e, "allocate a vocabulary of %zu tokens", room);
        memset(texts + b->texts_room, 0, (room - b->texts_room) * sizeof *texts);
        b->texts = texts;
        b->texts_room = room;
    }
    if (n > b->pool_room - b->n_pool) {
        size_t room = (b->n_pool + n) * 2 + 4096;
        char *pool = realloc(b->pool, room);
        if (!pool)
            return err_errno(e, "allocate %zu bytes of tokens", room);
        b->pool = pool;
        b->pool_room = room;
    }
    if ((b->n_by_text + 1) * 2 > b->by_text_room)
        TRY(grow_by_text(b, e));
    return ST_OK;
}

status_t bpe_token(struct bpe *b, int64_t token, const void *text, size_t n, bool mergeable, struct err *e) {
    if (token < 0 || token >= BPE_TOKENS)
        return err_set(e, ST_INVALID_ARGUMENT, "the token number %lld is outside [0, %d)", (long long)token,
                       BPE_TOKENS);
    if (n > UINT32_MAX)
        return err_set(e, ST_INVALID_ARGUMENT, "token %lld has %zu bytes", (long long)token, n);
    if (token < b->n_texts && b->texts[token].there)
        return err_set(e, ST_INVALID_ARGUMENT, "the number %lld belongs to two tokens", (long long)token);
    TRY(reserve(b, (size_t)token, n, e));
    if (n)
        memcpy(b->pool + b->n_pool, text, n);
    b->texts[token] = (struct text){ .at = b->n_pool, .n = (uint32_t)n, .there = true };
    b->n_pool += n;
    if (token >= b->n_texts)
        b->n_texts = (int)token + 1;
    if (!mergeable)
        return ST_OK;
    size_t place = place_of(b, text, n);
    if (b->by_text[place] >= 0)
        return err_set(e, ST_INVALID_ARGUMENT, "the tokens %d and %lld have the same bytes", b->by_text[place],
                       (long long)token);
    b->by_text[place] = (int32_t)token;
    b->n_by_text++;
    if (n == 1)
        b->byte[*(const uint8_t *)text] = (int32_t)token;
    return ST_OK;
}

static const struct merge *find_merge(const struct bpe *b, int32_t left, int32_t right) {
    if (!b->merges_room)
        return NULL;
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t mask = b->merges_room - 1, i = hash_pair(pair) & mask;
    while (b->merges[i].pair != pair && b->merges[i].pair != NO_PAIR)
        i = (i + 1) & mask;
    return b->merges[i].pair == pair ? &b->merges[i] : NULL;
}

static void put_merge(struct merge *table, size_t room, const struct merge *m) {
    size_t i = hash_pair(m->pair) & (room - 1);
    while (table[i].pair != NO_PAIR)
        i = (i + 1) & (room - 1);
    table[i] = *m;
}

static status_t grow_merges(struct bpe *b, struct err *e) {
    size_t room = b->merges_room ? b->merges_room * 2 : 1024;
    struct merge *table = malloc(room * sizeof *table);
    if (!table)
        return err_errno(e, "allocate %zu merges", room / 2);
    for (size_t i = 0; i < room; i++)
        table[i].pair = NO_PAIR;
    for (size_t i = 0; i < b->merges_room; i++)
        if (b->merges[i].pair != NO_PAIR)
            put_merge(table, room, &b->merges[i]);
    free(b->merges);
    b->merges = table;
    b->merges_room = room;
    return ST_OK;
}

status_t bpe_merge(struct bpe *b, const void *left, size_t n_left, const void *right, size_t n_right, struct err *e) {
    CLEANUP(freep) char *both = malloc(n_left + n_right + 1);
    if (!both)
        return err_errno(e, "allocate a merge");
    memcpy(both, left, n_left);
    memcpy(both + n_left, right, n_right);
    int32_t l = bpe_find(b, left, n_left), r = bpe_find(b, right, n_right), to = bpe_find(b, both, n_left + n_right);
    if (l < 0 || r < 0 || to < 0)
        return err_set(e, ST_INVALID_ARGUMENT, "merge %zu %s not in the vocabulary", b->n_merges,
                       l < 0   ? "begins with what is"
                       : r < 0 ? "ends with what is"
                               : "makes what is");
    if (find_merge(b, l, r))
        return err_set(e, ST_INVALID_ARGUMENT, "merge %zu is there twice", b->n_merges);
    if ((b->n_merges + 1) * 2 > b->merges_room)
        TRY(grow_merges(b, e));
    struct merge m = { (uint64_t)(uint32_t)l << 32 | (uint32_t)r, (uint32_t)b->n_merges++, to };
    put_merge(b->merges, b->merges_room, &m);
    return ST_OK;
}

/* --- encoding ---*/

struct symbol {
    int32_t token; /* -1 = taken into its left neighbour */
    int32_t before, after;
};

struct candidate {
    uint32_t rank;
    int32_t at; /* the left one of the pair */
    int32_t token;
};

/* A direct-mapped cache of short words: a word that does not fit in an entry is merged each time. */
enum { CACHE_ENTRIES = 1 << 14, CACHE_WORD = 23, CACHE_TOKENS = 8 };
struct cached {
    uint8_t n_word, n_tokens; /* n_word 0 = empty */
    char word[CACHE_WORD];
    int32_t tokens[CACHE_TOKENS];
};

struct bpe_scratch {
    struct cached *cache; /* (CACHE_ENTRIES), or NULL */
    size_t room;          /* bytes of a word that fit */
    struct symbol *symbols;
    struct candidate *heap; /* at most one for each first pair, and two more for each merge */
    size_t n_heap;
};

status_t bpe_scratch_new(bool cache, struct bpe_scratch **ret, struct err *e) {
    CLEANUP(bpe_scratch_freep) struct bpe_scratch *s = calloc(1, sizeof *s);
    if (!s || (cache && !(s->cache = calloc(CACHE_ENTRIES, sizeof *s->cache))))
        return err_errno(e, "allocate room to encode in");
    *ret = take_ptr(&s);
    return ST_OK;
}

struct bpe_scratch *bpe_scratch_free(struct bpe_scratch *s) {
    if (s) {
        free(s->cache);
        free(s->symbols);
        free(s->heap);
        free(s);
    }
    return NULL;
}

static status_t make_room(struct bpe_scratch *s, size_t n, struct err *e) {
    if (n <= s->room)
        return ST_OK;
    if (n > INT32_MAX / 4)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "a word of %zu bytes is longer than can be encoded", n);
    size_t room = n < 64 ? 64 : n * 2;
    free(s->symbols);
    free(s->heap);
    s->symbols = malloc(room * sizeof *s->symbols);
    s->heap = malloc(3 * room * sizeof *s->heap);
    s->room = s->symbols && s->heap ? room : 0;
    return s->room ? ST_OK : err_errno(e, "allocate the memory to encode a word of %zu bytes", n);
}

static bool earlier(const struct candidate *a, const struct candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(struct bpe_scratch *s, struct candidate c) {
    size_t i = s->n_heap++;
    for (; i && earlier(&c, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = c;
}

static struct candidate pop(struct bpe_scratch *s) {
    struct candidate top = s->heap[0], last = s->heap[--s->n_heap];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= s->n_heap)
            break;
        if (child + 1 < s->n_heap && earlier(&s->heap[child + 1], &s->heap[child]))
            child++;
        if (!earlier(&s->heap[child], &last))
            break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return top;
}

/* The pair that begins with symbol `at`, if there is a merge for it. */
static void consider(const struct bpe *b, struct bpe_scratch *s, int32_t at) {
    int32_t after = s->symbols[at].after;
    const struct merge *m = after < 0 ? NULL : find_merge(b, s->symbols[at].token, s->symbols[after].token);
    if (m)
        push(s, (struct candidate){ m->rank, at, m->token });
}

static void merge_all(const struct bpe *b, struct bpe_scratch *s) {
    while (s->n_heap) {
        struct candidate c = pop(s);
        struct symbol *left = &s->symbols[c.at];
        if (left->token < 0 || left->after < 0)
            continue;
        struct symbol *right = &s->symbols[left->after];
        const struct merge *m = find_merge(b, left->token, right->token);
        if (!m || m->rank != c.rank) /* one of the two has been merged since */
            continue;
        left->token = c.token;
        left->after = right->after;
        right->token = -1;
        if (left->after >= 0)
            s->symbols[left->after].before = c.at;
        if (left->before >= 0)
            consider(b, s, left->before);
        consider(b, s, c.at);
    }
}

static status_t encode_word(const struct bpe *b, struct bpe_scratch *s, const uint8_t *word, size_t n, int32_t *tokens,
                            size_t *ret_n, struct err *e) {
    TRY(make_room(s, n, e));
    for (size_t i = 0; i < n; i++) {
        int32_t token = b->byte[word[i]];
        if (token < 0)
            return err_set(e, ST_INVALID_ARGUMENT, "the vocabulary has no token for the byte 0x%02x", word[i]);
        s->symbols[i] = (struct symbol){ token, (int32_t)i - 1, i + 1 < n ? (int32_t)i + 1 : -1 };
    }
    s->n_heap = 0;
    for (size_t i = 0; i + 1 < n; i++)
        consider(b, s, (int32_t)i);
    merge_all(b, s);
    size_t made = 0;
    for (int32_t i = 0; i >= 0; i = s->symbols[i].after)
        tokens[made++] = s->symbols[i].token;
    *ret_n = made;
    return ST_OK;
}

status_t bpe_encode(const struct bpe *b, struct bpe_scratch *s, bool whole_first, const void *word, size_t n,
                    int32_t *tokens, size_t *ret_n, struct err *e) {
    *ret_n = 0;
    if (n == 0)
        return ST_OK;
    struct cached *entry = NULL;
    if (s->cache && n <= CACHE_WORD) {
        entry = &s->cache[hash_bytes(word, n) & (CACHE_ENTRIES - 1)];
        if (entry->n_word == n && memcmp(entry->word, word, n) == 0) {
            memcpy(tokens, entry->tokens, entry->n_tokens * sizeof *tokens);
            *ret_n = entry->n_tokens;
            return ST_OK;
        }
    }
    int32_t whole = whole_first ? bpe_find(b, word, n) : -1;
    if (whole >= 0) {
        tokens[0] = whole;
        *ret_n = 1;
    } else {
        TRY(encode_word(b, s, word, n, tokens, ret_n, e));
    }
    if (entry && *ret_n <= CACHE_TOKENS) {
        entry->n_word = (uint8_t)n;
        entry->n_tokens = (uint8_t)*ret_n;
        memcpy(entry->word, word, n);
        memcpy(entry->tokens, tokens, *ret_n * sizeof *tokens);
    }
    return ST_OK;
}
