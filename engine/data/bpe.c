/* Encodes a word as follows. Its bytes become a doubly linked list of symbols. Every pair of neighbours that has a
 * merge is a candidate in a heap, ordered by rank, then by position. The first candidate is merged: the left symbol
 * becomes the new token, the right one is unlinked, and the two new pairs become candidates. If the symbols of a
 * candidate have changed in the meantime, their rank differs from the candidate's, and the candidate is ignored. When
 * the heap is empty, the list has the tokens.
 *
 * A small direct-mapped cache maps short words to their tokens, because most words of a text repeat. */
#include "engine/data/bpe.h"

#include "base/alloc.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct text {
    size_t at;
    uint32_t n;
    bool used;
};

struct merge {
    uint64_t pair; /* left << 32 | right; NO_PAIR = an empty entry */
    uint32_t rank;
    int32_t token;
};
#define NO_PAIR UINT64_MAX

/* Both tables use open addressing with a power of two of entries, at most half of them used. */
struct bpe {
    char *pool; /* all tokens' bytes */
    size_t n_pool, pool_capacity;
    struct text *texts; /* by token */
    int n_texts;        /* the largest token + 1 */
    size_t texts_capacity;
    int32_t *by_text; /* tokens by the hash of their bytes; -1 = an empty entry */
    size_t n_by_text, by_text_capacity;
    struct merge *merges;
    size_t n_merges, merges_capacity;
    int32_t byte[256]; /* the token of one byte; -1 = none */
};

/* FNV-1a over words of eight bytes, with a final mix. */
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

struct bpe *bpe_new(void) {
    struct bpe *b = alloc_zeroed(1, sizeof *b);
    memset(b->byte, 0xff, sizeof b->byte);
    return b;
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

size_t bpe_bytes(const struct bpe *b) {
    return b->n_pool + b->texts_capacity * sizeof *b->texts + b->by_text_capacity * sizeof *b->by_text +
           b->merges_capacity * sizeof *b->merges;
}

const char *bpe_text(const struct bpe *b, int32_t token, size_t *ret_n) {
    if (token < 0 || token >= b->n_texts || !b->texts[token].used)
        return NULL;
    *ret_n = b->texts[token].n;
    return b->pool + b->texts[token].at;
}

/* The entry of these bytes, or the empty entry for them. */
static size_t entry_of(const struct bpe *b, const void *text, size_t n) {
    size_t i = hash_bytes(text, n) & (b->by_text_capacity - 1);
    for (; b->by_text[i] >= 0; i = (i + 1) & (b->by_text_capacity - 1)) {
        const struct text *t = &b->texts[b->by_text[i]];
        if (t->n == n && memcmp(b->pool + t->at, text, n) == 0)
            break;
    }
    return i;
}

int32_t bpe_find(const struct bpe *b, const void *text, size_t n) {
    return b->by_text_capacity ? b->by_text[entry_of(b, text, n)] : -1;
}

static status_t grow_by_text(struct bpe *b, struct err *e) {
    size_t old = b->by_text_capacity, capacity = old ? old * 2 : 1024;
    int32_t *before = b->by_text, *table = malloc(capacity * sizeof *table);
    if (!table)
        return err_errno(e, "allocate a vocabulary of %zu tokens", capacity / 2);
    memset(table, 0xff, capacity * sizeof *table);
    b->by_text = table;
    b->by_text_capacity = capacity;
    for (size_t i = 0; i < old; i++)
        if (before[i] >= 0)
            table[entry_of(b, b->pool + b->texts[before[i]].at, b->texts[before[i]].n)] = before[i];
    free(before);
    return ST_OK;
}

/* Grows the tables for one more token of n bytes with this number. */
static status_t reserve(struct bpe *b, size_t token, size_t n, struct err *e) {
    if (token >= b->texts_capacity) {
        size_t capacity = b->texts_capacity ? b->texts_capacity : 512;
        while (capacity <= token)
            capacity *= 2;
        struct text *texts = realloc(b->texts, capacity * sizeof *texts);
        if (!texts)
            return err_errno(e, "allocate a vocabulary of %zu tokens", capacity);
        memset(texts + b->texts_capacity, 0, (capacity - b->texts_capacity) * sizeof *texts);
        b->texts = texts;
        b->texts_capacity = capacity;
    }
    if (n > b->pool_capacity - b->n_pool) {
        size_t capacity = (b->n_pool + n) * 2 + 4096;
        char *pool = realloc(b->pool, capacity);
        if (!pool)
            return err_errno(e, "allocate %zu bytes of tokens", capacity);
        b->pool = pool;
        b->pool_capacity = capacity;
    }
    if ((b->n_by_text + 1) * 2 > b->by_text_capacity)
        TRY(grow_by_text(b, e));
    return ST_OK;
}

status_t bpe_token(struct bpe *b, int64_t token, const void *text, size_t n, bool mergeable, struct err *e) {
    if (token < 0 || token >= BPE_TOKENS)
        return err_set(e, ST_INVALID_ARGUMENT, "the token number %lld is outside [0, %d)", (long long)token,
                       BPE_TOKENS);
    if (n > UINT32_MAX)
        return err_set(e, ST_INVALID_ARGUMENT, "token %lld has %zu bytes", (long long)token, n);
    if (token < b->n_texts && b->texts[token].used)
        return err_set(e, ST_INVALID_ARGUMENT, "the number %lld belongs to two tokens", (long long)token);
    TRY(reserve(b, (size_t)token, n, e));
    if (n)
        memcpy(b->pool + b->n_pool, text, n);
    b->texts[token] = (struct text){ .at = b->n_pool, .n = (uint32_t)n, .used = true };
    b->n_pool += n;
    if (token >= b->n_texts)
        b->n_texts = (int)token + 1;
    if (!mergeable)
        return ST_OK;
    size_t entry = entry_of(b, text, n);
    if (b->by_text[entry] >= 0)
        return err_set(e, ST_INVALID_ARGUMENT, "the tokens %d and %lld have the same bytes", b->by_text[entry],
                       (long long)token);
    b->by_text[entry] = (int32_t)token;
    b->n_by_text++;
    if (n == 1)
        b->byte[*(const uint8_t *)text] = (int32_t)token;
    return ST_OK;
}

static const struct merge *find_merge(const struct bpe *b, int32_t left, int32_t right) {
    if (!b->merges_capacity)
        return NULL;
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t mask = b->merges_capacity - 1, i = hash_pair(pair) & mask;
    while (b->merges[i].pair != pair && b->merges[i].pair != NO_PAIR)
        i = (i + 1) & mask;
    return b->merges[i].pair == pair ? &b->merges[i] : NULL;
}

static void put_merge(struct merge *table, size_t capacity, const struct merge *m) {
    size_t i = hash_pair(m->pair) & (capacity - 1);
    while (table[i].pair != NO_PAIR)
        i = (i + 1) & (capacity - 1);
    table[i] = *m;
}

static status_t grow_merges(struct bpe *b, struct err *e) {
    size_t capacity = b->merges_capacity ? b->merges_capacity * 2 : 1024;
    struct merge *table = malloc(capacity * sizeof *table);
    if (!table)
        return err_errno(e, "allocate %zu merges", capacity / 2);
    for (size_t i = 0; i < capacity; i++)
        table[i].pair = NO_PAIR;
    for (size_t i = 0; i < b->merges_capacity; i++)
        if (b->merges[i].pair != NO_PAIR)
            put_merge(table, capacity, &b->merges[i]);
    free(b->merges);
    b->merges = table;
    b->merges_capacity = capacity;
    return ST_OK;
}

status_t bpe_merge(struct bpe *b, const void *left, size_t n_left, const void *right, size_t n_right, struct err *e) {
    CLEANUP(freep) char *both = alloc_zeroed(n_left + n_right + 1, 1);
    memcpy(both, left, n_left);
    memcpy(both + n_left, right, n_right);
    int32_t l = bpe_find(b, left, n_left), r = bpe_find(b, right, n_right), to = bpe_find(b, both, n_left + n_right);
    if (l < 0 || r < 0 || to < 0)
        return err_set(e, ST_INVALID_ARGUMENT, "merge %zu: %s is not in the vocabulary", b->n_merges,
                       l < 0   ? "its left part"
                       : r < 0 ? "its right part"
                               : "its result");
    if (find_merge(b, l, r))
        return err_set(e, ST_INVALID_ARGUMENT, "merge %zu is a duplicate", b->n_merges);
    if ((b->n_merges + 1) * 2 > b->merges_capacity)
        TRY(grow_merges(b, e));
    struct merge m = { (uint64_t)(uint32_t)l << 32 | (uint32_t)r, (uint32_t)b->n_merges++, to };
    put_merge(b->merges, b->merges_capacity, &m);
    return ST_OK;
}

/* --- encoding --- */

struct symbol {
    int32_t token; /* -1 = merged into its left neighbour */
    int32_t before, after;
};

struct candidate {
    uint32_t rank;
    int32_t at; /* the left one of the pair */
    int32_t token;
};

/* A direct-mapped cache of short words: a word that does not fit in an entry is merged again each time. */
enum { CACHE_ENTRIES = 1 << 14, CACHE_WORD = 23, CACHE_TOKENS = 8 };
struct cached {
    uint8_t n_word, n_tokens; /* n_word 0 = empty */
    char word[CACHE_WORD];
    int32_t tokens[CACHE_TOKENS];
};

struct bpe_scratch {
    struct cached *cache; /* (CACHE_ENTRIES), or NULL */
    size_t capacity;      /* bytes of a word */
    struct symbol *symbols;
    struct candidate *heap; /* at most one for each first pair, and two more for each merge */
    size_t n_heap;
};

struct bpe_scratch *bpe_scratch_new(bool cache) {
    struct bpe_scratch *s = alloc_zeroed(1, sizeof *s);
    s->cache = cache ? alloc_zeroed(CACHE_ENTRIES, sizeof *s->cache) : NULL;
    return s;
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

static status_t reserve_scratch(struct bpe_scratch *s, size_t n, struct err *e) {
    if (n <= s->capacity)
        return ST_OK;
    if (n > INT32_MAX / 4)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "a word of %zu bytes is longer than can be encoded", n);
    size_t capacity = n < 64 ? 64 : n * 2;
    free(s->symbols);
    free(s->heap);
    s->symbols = malloc(capacity * sizeof *s->symbols);
    s->heap = malloc(3 * capacity * sizeof *s->heap);
    s->capacity = s->symbols && s->heap ? capacity : 0;
    return s->capacity ? ST_OK : err_errno(e, "allocate the memory to encode a word of %zu bytes", n);
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

/* Adds the pair that begins with symbol `at` as a candidate, if it has a merge. */
static void add_candidate(const struct bpe *b, struct bpe_scratch *s, int32_t at) {
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
        if (!m || m->rank != c.rank) /* one of the two symbols has changed since */
            continue;
        left->token = c.token;
        left->after = right->after;
        right->token = -1;
        if (left->after >= 0)
            s->symbols[left->after].before = c.at;
        if (left->before >= 0)
            add_candidate(b, s, left->before);
        add_candidate(b, s, c.at);
    }
}

static status_t encode_word(const struct bpe *b, struct bpe_scratch *s, const uint8_t *word, size_t n, int32_t *tokens,
                            size_t *ret_n, struct err *e) {
    TRY(reserve_scratch(s, n, e));
    for (size_t i = 0; i < n; i++) {
        int32_t token = b->byte[word[i]];
        if (token < 0)
            return err_set(e, ST_INVALID_ARGUMENT, "the vocabulary has no token for the byte 0x%02x", word[i]);
        s->symbols[i] = (struct symbol){ token, (int32_t)i - 1, i + 1 < n ? (int32_t)i + 1 : -1 };
    }
    s->n_heap = 0;
    for (size_t i = 0; i + 1 < n; i++)
        add_candidate(b, s, (int32_t)i);
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
