/* Reading: the vocabulary's words are in GPT-2's byte alphabet, in which every byte is a visible character; they are
 * translated to bytes (a word outside the alphabet is kept unchanged and never results from a merge). Then the merges,
 * the pre-tokenizer's steps and the added tokens are read. Every field that would change the tokens is read or refused.
 *
 * Encoding: pass 0 finds added tokens in the text, pass 1 finds those marked `normalized` in the text between them, and
 * the rest is split into words (pretokenizer.h), each of which is encoded by bpe.h. */
#include "engine/data/huggingface.h"

#include "base/alloc.h"
#include "base/utf8.h"
#include "engine/data/bpe.h"
#include "engine/data/pretokenizer.h"

#include <errno.h>
#include <string.h>

struct added {
    char *text;
    size_t n;
    int32_t token;
};

/* The added tokens of one pass, sorted by first byte, then the longest first. */
struct added_set {
    struct added *items;
    int n;
    int begin[257]; /* items whose first byte is c: begin[c] .. begin[c + 1] - 1 */
};

struct huggingface {
    struct bpe *bpe;
    struct pretokenizer *words;
    struct added_set passes[2]; /* [0]: not marked `normalized`; [1]: marked */
    bool ignore_merges, prefix_space;
};

struct huggingface *huggingface_free(struct huggingface *h) {
    if (!h)
        return NULL;
    bpe_free(h->bpe);
    pretokenizer_free(h->words);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < h->passes[pass].n; i++)
            free(h->passes[pass].items[i].text);
        free(h->passes[pass].items);
    }
    free(h);
    return NULL;
}

int huggingface_vocabulary(const struct huggingface *h) { return bpe_vocabulary(h->bpe); }
size_t huggingface_bytes(const struct huggingface *h) { return bpe_bytes(h->bpe); }
bool huggingface_prefix_space(const struct huggingface *h) { return h->prefix_space; }
int32_t huggingface_byte(const struct huggingface *h, uint8_t byte) { return bpe_find(h->bpe, &byte, 1); }

/* --- GPT-2's byte alphabet --- */

static bool is_itself(uint32_t c) {
    return (c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff);
}

/* The byte of a character of the alphabet; -1 = not in the alphabet. The 68 bytes that are not visible characters are,
 * in order, U+0100 and following. */
static int byte_of(uint32_t c) {
    if (c < 0x100)
        return is_itself(c) ? (int)c : -1;
    if (c >= 0x100 + 68)
        return -1;
    int byte = 0;
    for (uint32_t left = c - 0x100;; byte++)
        if (!is_itself((uint32_t)byte) && left-- == 0)
            return byte;
}

uint32_t huggingface_letter(uint8_t byte) {
    uint32_t moved = 0;
    for (uint32_t c = 0; c < byte; c++)
        moved += !is_itself(c);
    return is_itself(byte) ? byte : 0x100 + moved;
}

/* Translates a word to bytes in `to` (as long as the word). Returns their number, or -1 if the word is not in the
 * alphabet. */
static int64_t bytes_of(const char *word, size_t n, char *to) {
    int64_t made = 0;
    for (size_t at = 0, length; at < n; at += length) {
        uint32_t c = utf8_next(word + at, n - at, &length);
        int byte = length ? byte_of(c) : -1;
        if (byte < 0)
            return -1;
        to[made++] = (char)byte;
    }
    return made;
}

/* --- the document --- */

static const char *text_at(json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* Refuses a field that exists and is not null, false, 0 or "". */
static status_t refuse(json_t *object, const char *key, const char *where, struct err *e) {
    json_t *v = json_object_get(object, key);
    bool off = !v || json_is_null(v) || json_is_false(v) || (json_is_number(v) && json_number_value(v) == 0) ||
               (json_is_string(v) && json_string_length(v) == 0);
    return off ? ST_OK : err_set(e, ST_INVALID_ARGUMENT, "%s.%s is not supported", where, key);
}

static status_t read_vocabulary(struct huggingface *h, json_t *vocabulary, struct err *e) {
    if (!json_is_object(vocabulary) || json_object_size(vocabulary) == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "model.vocab has no tokens");
    const char *word;
    json_t *number;
    json_object_foreach(vocabulary, word, number) {
        if (!json_is_integer(number))
            return err_set(e, ST_INVALID_ARGUMENT, "model.vocab: the id of \"%.80s\" is not an integer", word);
        size_t n = strlen(word);
        CLEANUP(freep) char *text = alloc_zeroed(n + 1, 1);
        int64_t length = bytes_of(word, n, text);
        status_t st = bpe_token(h->bpe, json_integer_value(number), length < 0 ? word : text,
                                length < 0 ? n : (size_t)length, length > 0, e);
        if (st != ST_OK)
            return err_prefix(e, st, "model.vocab: ");
    }
    return ST_OK;
}

/* "a b" or ["a", "b"]. */
static bool parts_of(json_t *merge, const char **left, size_t *n_left, const char **right, size_t *n_right) {
    if (json_is_string(merge)) {
        *left = json_string_value(merge);
        const char *space = strchr(*left, ' ');
        *right = space ? space + 1 : "";
        *n_left = space ? (size_t)(space - *left) : 0;
        *n_right = strlen(*right);
        return *n_left && *n_right;
    }
    *left = json_string_value(json_array_get(merge, 0));
    *right = json_string_value(json_array_get(merge, 1));
    *n_left = *left ? strlen(*left) : 0;
    *n_right = *right ? strlen(*right) : 0;
    return json_array_size(merge) == 2 && *n_left && *n_right;
}

static status_t read_merges(struct huggingface *h, json_t *merges, struct err *e) {
    if (!json_is_array(merges))
        return err_set(e, ST_INVALID_ARGUMENT, "model.merges is not a list");
    size_t i;
    json_t *merge;
    json_array_foreach(merges, i, merge) {
        const char *left, *right;
        size_t n_left, n_right;
        if (!parts_of(merge, &left, &n_left, &right, &n_right))
            return err_set(e, ST_INVALID_ARGUMENT, "model.merges[%zu] is not a pair of words", i);
        CLEANUP(freep) char *text = alloc_zeroed(n_left + n_right, 1);
        int64_t l = bytes_of(left, n_left, text), r = bytes_of(right, n_right, text + n_left);
        if (l < 0 || r < 0)
            return err_set(e, ST_INVALID_ARGUMENT, "model.merges[%zu] is not in the byte alphabet", i);
        status_t st = bpe_merge(h->bpe, text, (size_t)l, text + n_left, (size_t)r, e);
        if (st != ST_OK)
            return err_prefix(e, st, "model.merges: ");
    }
    return ST_OK;
}

static status_t read_model(struct huggingface *h, json_t *model, struct err *e) {
    static const char *const off[] = { "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                                       "byte_fallback" };
    if (strcmp(text_at(model, "type"), "BPE") != 0)
        return err_set(e, ST_INVALID_ARGUMENT, "model.type is not BPE");
    for (size_t i = 0; i < sizeof off / sizeof *off; i++)
        TRY(refuse(model, off[i], "model", e));
    h->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    TRY(read_vocabulary(h, json_object_get(model, "vocab"), e));
    return read_merges(h, json_object_get(model, "merges"), e);
}

static status_t read_split(struct huggingface *h, json_t *step, struct err *e) {
    json_t *pattern = json_object_get(step, "pattern");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    const char *literal = json_string_value(json_object_get(pattern, "String"));
    if (!regex && !literal)
        return err_set(e, ST_INVALID_ARGUMENT, "pre_tokenizer: a Split has neither a Regex nor a String");
    if (strcmp(text_at(step, "behavior"), "Isolated") != 0)
        return err_set(e, ST_INVALID_ARGUMENT, "pre_tokenizer: a Split of the behavior \"%.40s\" is not supported",
                       text_at(step, "behavior"));
    TRY(refuse(step, "invert", "pre_tokenizer", e));
    return pretokenizer_add(h->words, regex ? regex : literal, !regex, e);
}

static status_t read_step(struct huggingface *h, json_t *step, bool first, bool *byte_level, struct err *e) {
    const char *type = text_at(step, "type");
    if (*byte_level)
        return err_set(e, ST_INVALID_ARGUMENT, "pre_tokenizer: \"%.40s\" follows ByteLevel", type);
    if (strcmp(type, "Split") == 0)
        return read_split(h, step, e);
    if (strcmp(type, "Digits") == 0)
        return pretokenizer_add(
            h->words, json_is_true(json_object_get(step, "individual_digits")) ? "\\p{N}" : "\\p{N}+", false, e);
    if (strcmp(type, "ByteLevel") != 0)
        return err_set(e, ST_INVALID_ARGUMENT, "pre_tokenizer: the type \"%.40s\" is not supported", type);
    *byte_level = true;
    json_t *space = json_object_get(step, "add_prefix_space");
    h->prefix_space = !space || json_is_true(space);
    if (h->prefix_space && !first)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "pre_tokenizer: a ByteLevel with add_prefix_space after other steps is not supported");
    json_t *regex = json_object_get(step, "use_regex");
    return !regex || json_is_true(regex) ? pretokenizer_add(h->words, PRETOKENIZER_GPT2, false, e) : ST_OK;
}

static status_t read_pretokenizer(struct huggingface *h, json_t *p, struct err *e) {
    bool byte_level = false;
    if (strcmp(text_at(p, "type"), "Sequence") == 0) {
        size_t i;
        json_t *step;
        json_array_foreach(json_object_get(p, "pretokenizers"), i, step)
            TRY(read_step(h, step, i == 0, &byte_level, e));
    } else if (json_is_object(p)) {
        TRY(read_step(h, p, true, &byte_level, e));
    }
    if (!byte_level)
        return err_set(e, ST_INVALID_ARGUMENT, "pre_tokenizer does not end in ByteLevel: only byte-level BPE is read");
    return ST_OK;
}

static int by_first_byte_and_length(const void *a, const void *b) {
    const struct added *x = a, *y = b;
    if (x->text[0] != y->text[0])
        return (uint8_t)x->text[0] < (uint8_t)y->text[0] ? -1 : 1;
    return x->n != y->n ? (x->n > y->n ? -1 : 1) : memcmp(x->text, y->text, x->n);
}

static status_t read_added_token(struct huggingface *h, json_t *item, size_t i, struct err *e) {
    char where[40];
    snprintf(where, sizeof where, "added_tokens[%zu]", i);
    const char *text = text_at(item, "content");
    json_t *number = json_object_get(item, "id");
    if (!*text || !json_is_integer(number))
        return err_set(e, ST_INVALID_ARGUMENT, "%s has no content or no id", where);
    TRY(refuse(item, "single_word", where, e));
    TRY(refuse(item, "lstrip", where, e));
    TRY(refuse(item, "rstrip", where, e));

    /* If the added token is also in the model's vocabulary, it must have the same number there. */
    json_int_t token = json_integer_value(number);
    size_t n = strlen(text), n_known = 0;
    CLEANUP(freep) char *raw = alloc_zeroed(n + 1, 1);
    int64_t length = bytes_of(text, n, raw);
    const char *bytes = length < 0 ? text : raw;
    size_t n_bytes = length < 0 ? n : (size_t)length;
    const char *known = token >= 0 && token < BPE_TOKENS ? bpe_text(h->bpe, (int32_t)token, &n_known) : NULL;
    if (known && (n_known != n_bytes || memcmp(known, bytes, n_bytes) != 0))
        return err_set(e, ST_INVALID_ARGUMENT, "%s: the number %lld belongs to another token", where, (long long)token);
    if (!known) {
        status_t st = bpe_token(h->bpe, token, bytes, n_bytes, false, e);
        if (st != ST_OK)
            return err_prefix(e, st, "%s: ", where);
    }
    struct added_set *set = &h->passes[json_is_true(json_object_get(item, "normalized"))];
    set->items = alloc_resize(set->items, (size_t)set->n + 1, sizeof *set->items);
    set->items[set->n++] = (struct added){ alloc_copy_text(text), n, (int32_t)token };
    return ST_OK;
}

static status_t read_added(struct huggingface *h, json_t *list, struct err *e) {
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) TRY(read_added_token(h, item, i, e));
    for (int pass = 0; pass < 2; pass++) {
        struct added_set *set = &h->passes[pass];
        if (set->n)
            qsort(set->items, (size_t)set->n, sizeof *set->items, by_first_byte_and_length);
        for (int c = 0, at = 0; c <= 256; c++) {
            set->begin[c] = at;
            while (at < set->n && (uint8_t)set->items[at].text[0] == c)
                at++;
        }
    }
    return ST_OK;
}

status_t huggingface_new(json_t *root, struct huggingface **ret, struct err *e) {
    CLEANUP(huggingface_freep) struct huggingface *h = alloc_zeroed(1, sizeof *h);
    TRY(refuse(root, "normalizer", "tokenizer", e));
    h->bpe = bpe_new();
    h->words = pretokenizer_new();
    TRY(read_model(h, json_object_get(root, "model"), e));
    TRY(read_pretokenizer(h, json_object_get(root, "pre_tokenizer"), e));
    TRY(read_added(h, json_object_get(root, "added_tokens"), e));
    *ret = take_ptr(&h);
    return ST_OK;
}

static json_t *merges_list(const char *text) {
    json_t *list = json_array();
    for (const char *line = text, *end; *line; line = *end ? end + 1 : end) {
        end = line + strcspn(line, "\n");
        size_t n = (size_t)(end - line);
        n -= n && line[n - 1] == '\r';
        if (n && strncmp(line, "#version", 8) != 0)
            json_array_append_new(list, json_stringn(line, n));
    }
    return list;
}

status_t huggingface_gpt2_document(json_t *vocabulary, const char *merges, json_t **ret, struct err *e) {
    CLEANUP(json_decrefp) json_t *added = json_array();
    json_t *end = json_object_get(vocabulary, "<|endoftext|>");
    if (json_is_integer(end))
        json_array_append_new(added,
                              json_pack("{s:O, s:s, s:b, s:b, s:b, s:b, s:b}", "id", end, "content", "<|endoftext|>",
                                        "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1));
    *ret = json_pack("{s:s, s:n, s:n, s:O, s:n, s:{s:s, s:b, s:b, s:b}, s:n, s:{s:s, s:b, s:b, s:b}, "
                     "s:{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:O, s:o}}",
                     "version", "1.0", "truncation", "padding", "added_tokens", added, "normalizer", "pre_tokenizer",
                     "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 1, "post_processor",
                     "decoder", "type", "ByteLevel", "add_prefix_space", 1, "trim_offsets", 1, "use_regex", 1, "model",
                     "type", "BPE", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                     "fuse_unk", 0, "byte_fallback", 0, "vocab", vocabulary, "merges", merges_list(merges));
    return *ret ? ST_OK : err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a tokenizer");
}

/* --- encoding --- */

struct encoding {
    const struct huggingface *h;
    struct pretokenizer_run *run;
    struct bpe_scratch *scratch;
    const char *whole; /* the caller's text */
    bool beginning;
    int32_t *tokens;
    size_t n, capacity;
};

static status_t too_many_tokens(const struct encoding *x, struct err *e) {
    return err_set(e, ST_RESOURCE_EXHAUSTED, "the text has more than %zu tokens", x->capacity);
}

static status_t encode_word(void *ctx, const char *word, size_t n, struct err *e) {
    struct encoding *x = ctx;
    size_t made;
    if (n > x->capacity - x->n) { /* the real number of tokens may still fit: encode to other memory first */
        CLEANUP(freep) int32_t *tokens = malloc(n * sizeof *tokens);
        if (!tokens)
            return err_errno(e, "allocate %zu tokens", n);
        TRY(bpe_encode(x->h->bpe, x->scratch, x->h->ignore_merges, word, n, tokens, &made, e));
        if (made > x->capacity - x->n)
            return too_many_tokens(x, e);
        memcpy(x->tokens + x->n, tokens, made * sizeof *tokens);
    } else {
        TRY(bpe_encode(x->h->bpe, x->scratch, x->h->ignore_merges, word, n, x->tokens + x->n, &made, e));
    }
    x->n += made;
    return ST_OK;
}

/* Text without added tokens. */
static status_t encode_plain(struct encoding *x, const char *text, size_t n, struct err *e) {
    if (n == 0)
        return ST_OK;
    if (!x->h->prefix_space || text[0] == ' ' || (text == x->whole && !x->beginning))
        return pretokenizer_split(x->h->words, x->run, text, n, encode_word, x, e);
    CLEANUP(freep) char *spaced = malloc(n + 1);
    if (!spaced)
        return err_errno(e, "allocate %zu bytes", n + 1);
    spaced[0] = ' ';
    memcpy(spaced + 1, text, n);
    return pretokenizer_split(x->h->words, x->run, spaced, n + 1, encode_word, x, e);
}

static const struct added *added_at(const struct added_set *set, const char *text, size_t n) {
    const uint8_t c = (uint8_t)text[0];
    for (int i = set->begin[c]; i < set->begin[c + 1]; i++)
        if (set->items[i].n <= n && memcmp(text, set->items[i].text, set->items[i].n) == 0)
            return &set->items[i];
    return NULL;
}

static status_t encode_pass(struct encoding *x, int pass, const char *text, size_t n, struct err *e) {
    if (pass == 2)
        return encode_plain(x, text, n, e);
    const struct added_set *set = &x->h->passes[pass];
    size_t done = 0;
    for (size_t at = 0; set->n && at < n;) {
        const struct added *found = added_at(set, text + at, n - at);
        if (!found) {
            at++;
            continue;
        }
        TRY(encode_pass(x, pass + 1, text + done, at - done, e));
        if (x->n == x->capacity)
            return too_many_tokens(x, e);
        x->tokens[x->n++] = found->token;
        done = at += found->n;
    }
    return encode_pass(x, pass + 1, text + done, n - done, e);
}

status_t huggingface_encode(const struct huggingface *h, const char *text, size_t n, bool beginning, int32_t *tokens,
                            size_t capacity, size_t *ret_n, struct err *e) {
    enum { LONG_TEXT = 4096 };
    CLEANUP(pretokenizer_run_freep) struct pretokenizer_run *run = pretokenizer_run_new(h->words);
    CLEANUP(bpe_scratch_freep) struct bpe_scratch *scratch = bpe_scratch_new(n > LONG_TEXT);
    struct encoding x = { h, run, scratch, text, beginning, tokens, 0, capacity };
    TRY(encode_pass(&x, 0, text, n, e));
    *ret_n = x.n;
    return ST_OK;
}

status_t huggingface_decode(const struct huggingface *h, int32_t token, struct bytes *ret, struct err *e) {
    size_t n;
    const char *text = bpe_text(h->bpe, token, &n);
    if (!text)
        return err_set(e, ST_INVALID_ARGUMENT, "token %d is not in the vocabulary of %d", token,
                       bpe_vocabulary(h->bpe));
    return bytes_append(ret, text, n, e);
}
