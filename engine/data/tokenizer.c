/* One struct for the three kinds of tokenizers.
 *
 *   byte   needs no data: a token is a byte's value
 *   char   has its code points in ascending order; a bisection finds the token of a code point
 *   bpe    has a huggingface tokenizer and its document
 *
 * Every bpe tokenizer is built from a tokenizer.json document: of a file, of a checkpoint's manifest, or a document
 * that is made from GPT-2's two files. tokenizer_open selects the format by the path: a folder that has a
 * tokenizer.json or a vocab.json, a file named vocab.json, or any other file, which is read as tokenizer.json. */
#include "engine/data/tokenizer.h"

#include "base/alloc.h"
#include "base/roots.h"
#include "base/utf8.h"
#include "engine/data/huggingface.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { UNICODE_END = 0x110000, FILE_BYTES = 64 << 20 };

struct tokenizer {
    enum tokenizer_kind kind;
    int vocabulary;
    uint32_t *code_points; /* char: (vocabulary), ascending */
    struct huggingface *bpe;
    char *document; /* bpe: its tokenizer.json, in one line */
};

struct tokenizer *tokenizer_free(struct tokenizer *t) {
    if (t) {
        free(t->code_points);
        huggingface_free(t->bpe);
        free(t->document);
        free(t);
    }
    return NULL;
}

static bool is_scalar_value(uint32_t c) { return c < UNICODE_END && !(c >= 0xd800 && c <= 0xdfff); }

struct tokenizer *tokenizer_new_byte(void) {
    struct tokenizer *t = alloc_zeroed(1, sizeof *t);
    t->kind = TOKENIZER_BYTE;
    t->vocabulary = 256;
    return t;
}

status_t tokenizer_new_char(const uint32_t *code_points, int n, struct tokenizer **ret, struct err *e) {
    if (n < 1 || n > UNICODE_END)
        return err_set(e, ST_INVALID_ARGUMENT, "a vocabulary of %d characters", n);
    for (int i = 0; i < n; i++)
        if (!is_scalar_value(code_points[i]) || (i && code_points[i] <= code_points[i - 1]))
            return err_set(e, ST_INVALID_ARGUMENT, "character %d of the vocabulary, U+%04X, is %s", i, code_points[i],
                           is_scalar_value(code_points[i]) ? "not in ascending order" : "not a Unicode character");
    CLEANUP(tokenizer_freep) struct tokenizer *t = alloc_zeroed(1, sizeof *t);
    t->code_points = alloc_zeroed((size_t)n, sizeof *code_points);
    t->kind = TOKENIZER_CHAR;
    t->vocabulary = n;
    memcpy(t->code_points, code_points, (size_t)n * sizeof *code_points);
    *ret = take_ptr(&t);
    return ST_OK;
}

static status_t new_bpe(json_t *document, struct tokenizer **ret, struct err *e) {
    CLEANUP(tokenizer_freep) struct tokenizer *t = alloc_zeroed(1, sizeof *t);
    t->kind = TOKENIZER_BPE;
    TRY(huggingface_new(document, &t->bpe, e));
    t->vocabulary = huggingface_vocabulary(t->bpe);
    if (!(t->document = json_dumps(document, JSON_COMPACT)))
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a tokenizer as JSON");
    *ret = take_ptr(&t);
    return ST_OK;
}

status_t tokenizer_new_bpe(const char *text, size_t n, struct tokenizer **ret, struct err *e) {
    json_error_t where;
    CLEANUP(json_decrefp) json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return err_set(e, ST_INVALID_ARGUMENT, "it is not valid JSON: %s in line %d", where.text, where.line);
    return new_bpe(root, ret, e);
}

static status_t read_file(const struct roots *roots, const char *path, struct bytes *text, struct err *e) {
    bytes_init(text, FILE_BYTES);
    status_t st = roots_read(roots, path, text, e);
    if (st == ST_OK)
        st = bytes_append(text, "", 0, e);
    if (st != ST_OK) {
        bytes_done(text);
        return err_prefix(e, st, "the tokenizer: ");
    }
    return ST_OK;
}

static status_t open_document(const struct roots *roots, const char *path, struct tokenizer **ret, struct err *e) {
    struct bytes text;
    TRY(read_file(roots, path, &text, e));
    status_t st = tokenizer_new_bpe(text.data ? text.data : "", text.len, ret, e);
    bytes_done(&text);
    return st == ST_OK ? ST_OK : err_prefix(e, st, "the tokenizer '%s': ", path);
}

/* GPT-2's two files: words with their ids, and the merges in order. */
static status_t open_pair(const struct roots *roots, const char *vocabulary, const char *merges, struct tokenizer **ret,
                          struct err *e) {
    struct bytes text;
    json_error_t where;
    TRY(read_file(roots, vocabulary, &text, e));
    CLEANUP(json_decrefp) json_t *words = json_loadb(text.data ? text.data : "", text.len, 0, &where);
    CLEANUP(json_decrefp) json_t *document = NULL;
    bytes_done(&text);
    if (!json_is_object(words))
        return err_set(e, ST_INVALID_ARGUMENT, "the tokenizer '%s' is not a JSON object", vocabulary);
    TRY(read_file(roots, merges, &text, e));
    status_t st = huggingface_gpt2_document(words, text.data ? text.data : "", &document, e);
    bytes_done(&text);
    if (st == ST_OK)
        st = new_bpe(document, ret, e);
    return st == ST_OK ? ST_OK : err_prefix(e, st, "the tokenizer '%s': ", vocabulary);
}

status_t tokenizer_open(const struct roots *roots, const char *path, struct tokenizer **ret, struct err *e) {
    char file[4096], merges[4096];
    struct stat st;
    if (strcmp(path, "gpt2") == 0)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "the tokenizer gpt2 needs its vocabulary, which is not part of this program: name the "
                       "tokenizer.json of GPT-2, or the folder that holds it");
    size_t n = strlen(path);
    CLEANUP(closep) int fd = -1;
    TRY(roots_open(roots, path, O_PATH, &fd, e));
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        snprintf(file, sizeof file, "%s/tokenizer.json", path);
        if (roots_has(roots, file))
            return open_document(roots, file, ret, e);
        snprintf(file, sizeof file, "%s/vocab.json", path);
        snprintf(merges, sizeof merges, "%s/merges.txt", path);
        return open_pair(roots, file, merges, ret, e);
    }
    const char name[] = "vocab.json";
    if (n >= sizeof name - 1 && strcmp(path + n - (sizeof name - 1), name) == 0) {
        snprintf(merges, sizeof merges, "%.*smerges.txt", (int)(n - (sizeof name - 1)), path);
        return open_pair(roots, path, merges, ret, e);
    }
    return open_document(roots, path, ret, e);
}

const char *tokenizer_huggingface(const struct tokenizer *t) { return t->document; }

enum tokenizer_kind tokenizer_kind_of(const struct tokenizer *t) { return t->kind; }
int tokenizer_vocabulary(const struct tokenizer *t) { return t->vocabulary; }

size_t tokenizer_bytes(const struct tokenizer *t) {
    if (!t)
        return 0;
    const size_t points = t->code_points ? (size_t)t->vocabulary * sizeof *t->code_points : 0;
    return points + (t->bpe ? huggingface_bytes(t->bpe) : 0) + (t->document ? strlen(t->document) : 0);
}

const uint32_t *tokenizer_code_points(const struct tokenizer *t) { return t->code_points; }

int32_t tokenizer_token(const struct tokenizer *t, uint32_t unit) {
    if (t->kind == TOKENIZER_BYTE)
        return unit < 256 ? (int32_t)unit : -1;
    if (t->kind == TOKENIZER_BPE)
        return unit < 256 ? huggingface_byte(t->bpe, (uint8_t)unit) : -1;
    int low = 0, high = t->vocabulary;
    while (low < high) {
        int middle = (low + high) / 2;
        if (t->code_points[middle] < unit)
            low = middle + 1;
        else
            high = middle;
    }
    return low < t->vocabulary && t->code_points[low] == unit ? low : -1;
}

static status_t encode_bpe(const struct tokenizer *t, const char *text, size_t n_bytes, bool beginning, int32_t *tokens,
                           size_t capacity, size_t *ret_n, struct err *e) {
    for (size_t at = 0, length; at < n_bytes; at += length) {
        (void)utf8_next(text + at, n_bytes - at, &length);
        if (length == 0)
            return err_set(e, ST_INVALID_ARGUMENT, "the text is not valid UTF-8 at byte %zu", at);
    }
    return huggingface_encode(t->bpe, text, n_bytes, beginning, tokens, capacity, ret_n, e);
}

size_t tokenizer_capacity(const struct tokenizer *t, size_t n_bytes) {
    return t->kind == TOKENIZER_BPE && huggingface_prefix_space(t->bpe) ? 2 * n_bytes + 1 : n_bytes;
}

status_t tokenizer_encode_next(const struct tokenizer *t, const char *text, size_t n_bytes, int32_t *tokens,
                               size_t capacity, size_t *ret_n, struct err *e) {
    if (t->kind == TOKENIZER_BPE)
        return encode_bpe(t, text, n_bytes, false, tokens, capacity, ret_n, e);
    return tokenizer_encode(t, text, n_bytes, tokens, capacity, ret_n, e);
}

status_t tokenizer_encode(const struct tokenizer *t, const char *text, size_t n_bytes, int32_t *tokens, size_t capacity,
                          size_t *ret_n, struct err *e) {
    if (t->kind == TOKENIZER_BPE)
        return encode_bpe(t, text, n_bytes, true, tokens, capacity, ret_n, e);
    size_t n = 0;
    for (size_t at = 0, length = 1; at < n_bytes; at += length, n++) {
        uint32_t unit = t->kind == TOKENIZER_CHAR ? utf8_next(text + at, n_bytes - at, &length) : (uint8_t)text[at];
        if (length == 0)
            return err_set(e, ST_INVALID_ARGUMENT, "the text is not valid UTF-8 at byte %zu", at);
        int32_t token = tokenizer_token(t, unit);
        if (token < 0)
            return err_set(e, ST_INVALID_ARGUMENT, "the character U+%04X at byte %zu is not in the vocabulary", unit,
                           at);
        if (n == capacity)
            return err_set(e, ST_RESOURCE_EXHAUSTED, "the text has more than %zu tokens", capacity);
        tokens[n] = token;
    }
    *ret_n = n;
    return ST_OK;
}

status_t tokenizer_decode(const struct tokenizer *t, const int32_t *tokens, size_t n, struct bytes *ret,
                          struct err *e) {
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= t->vocabulary)
            return err_set(e, ST_INVALID_ARGUMENT, "token %d is outside the vocabulary of %d", tokens[i],
                           t->vocabulary);
        if (t->kind == TOKENIZER_BPE) {
            TRY(huggingface_decode(t->bpe, tokens[i], ret, e));
            continue;
        }
        char text[4] = { (char)tokens[i] };
        size_t length = t->kind == TOKENIZER_CHAR ? utf8_put(t->code_points[tokens[i]], text) : 1;
        TRY(bytes_append(ret, text, length, e));
    }
    return ST_OK;
}

status_t tokenizer_to_json(const struct tokenizer *t, char **ret, struct err *e) {
    if (t->kind == TOKENIZER_BPE) { /* the document is JSON already */
        *ret = alloc_format("{\"kind\":\"bpe\",\"tokenizer\":%s}", t->document);
        return ST_OK;
    }
    CLEANUP(json_decrefp) json_t *root = json_object();
    int bad = json_object_set_new(root, "kind", json_string(t->kind == TOKENIZER_CHAR ? "char" : "byte"));
    if (t->kind == TOKENIZER_CHAR) {
        json_t *points = json_array();
        for (int i = 0; i < t->vocabulary; i++)
            bad |= json_array_append_new(points, json_integer(t->code_points[i]));
        bad |= json_object_set_new(root, "code_points", points);
    }
    char *text = bad ? NULL : json_dumps(root, JSON_COMPACT);
    if (!text)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a tokenizer as JSON");
    *ret = text;
    return ST_OK;
}

static status_t char_from_json(json_t *points, struct tokenizer **ret, struct err *e) {
    size_t n = json_array_size(points); /* 0 if it is not an array */
    if (n == 0 || n > UNICODE_END)
        return err_set(e, ST_INVALID_ARGUMENT, "a char tokenizer needs its code_points");
    CLEANUP(freep) uint32_t *code_points = malloc(n * sizeof *code_points);
    if (!code_points)
        return err_errno(e, "allocate a vocabulary of %zu characters", n);
    for (size_t i = 0; i < n; i++) {
        json_t *point = json_array_get(points, i);
        json_int_t c = json_integer_value(point);
        if (!json_is_integer(point) || c < 0 || c >= UNICODE_END)
            return err_set(e, ST_INVALID_ARGUMENT, "code_points[%zu] is nott a Unicode character", i);
        code_points[i] = (uint32_t)c;
    }
    return tokenizer_new_char(code_points, (int)n, ret, e);
}

status_t tokenizer_from_json(const char *json, struct tokenizer **ret, struct err *e) {
    json_error_t where;
    CLEANUP(json_decrefp) json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return err_set(e, ST_INVALID_ARGUMENT, "the tokenizer is not valid JSON: %s", where.text);
    if (json_is_object(root) && json_object_size(root) == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "there is no tokenizer: the model was trained on data without one");
    const char *kind = json_string_value(json_object_get(root, "kind"));
    if (kind && strcmp(kind, "byte") == 0) {
        *ret = tokenizer_new_byte();
        return ST_OK;
    }
    if (kind && strcmp(kind, "char") == 0)
        return char_from_json(json_object_get(root, "code_points"), ret, e);
    if (kind && strcmp(kind, "bpe") == 0) {
        status_t st = new_bpe(json_object_get(root, "tokenizer"), ret, e);
        return st == ST_OK ? ST_OK : err_prefix(e, st, "the tokenizer: ");
    }
    return err_set(e, ST_INVALID_ARGUMENT, "the tokenizer's kind is not char, byte or bpe");
}
