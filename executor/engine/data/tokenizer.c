#include "executor/engine/data/tokenizer.h"

#include "base/utf8.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { UNICODE_END = 0x110000 };

struct tokenizer {
    enum tokenizer_kind kind;
    int vocabulary;
    uint32_t *code_points; /* char: (vocabulary), ascending */
};

struct tokenizer *tokenizer_free(struct tokenizer *t) {
    if (t) {
        free(t->code_points);
        free(t);
    }
    return NULL;
}

static bool is_scalar_value(uint32_t c) { return c < UNICODE_END && !(c >= 0xd800 && c <= 0xdfff); }

status_t tokenizer_new_byte(struct tokenizer **ret, struct err *e) {
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        return err_errno(e, "allocate a tokenizer");
    t->kind = TOKENIZER_BYTE;
    t->vocabulary = 256;
    *ret = t;
    return ST_OK;
}

status_t tokenizer_new_char(const uint32_t *code_points, int n, struct tokenizer **ret, struct err *e) {
    if (n < 1 || n > UNICODE_END)
        return err_set(e, ST_INVALID_ARGUMENT, "a vocabulary of %d characters", n);
    for (int i = 0; i < n; i++)
        if (!is_scalar_value(code_points[i]) || (i && code_points[i] <= code_points[i - 1]))
            return err_set(e, ST_INVALID_ARGUMENT, "character %d of the vocabulary, U+%04X, is %s", i, code_points[i],
                           is_scalar_value(code_points[i]) ? "not in ascending order" : "no Unicode character");
    CLEANUP(tokenizer_freep) struct tokenizer *t = calloc(1, sizeof *t);
    if (!t || !(t->code_points = malloc((size_t)n * sizeof *code_points)))
        return err_errno(e, "allocate a vocabulary of %d characters", n);
    t->kind = TOKENIZER_CHAR;
    t->vocabulary = n;
    memcpy(t->code_points, code_points, (size_t)n * sizeof *code_points);
    *ret = take_ptr(&t);
    return ST_OK;
}

enum tokenizer_kind tokenizer_kind_of(const struct tokenizer *t) { return t->kind; }
int tokenizer_vocabulary(const struct tokenizer *t) { return t->vocabulary; }

int32_t tokenizer_token(const struct tokenizer *t, uint32_t unit) {
    if (t->kind == TOKENIZER_BYTE)
        return unit < 256 ? (int32_t)unit : -1;
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

status_t tokenizer_encode(const struct tokenizer *t, const char *text, size_t n_bytes, int32_t *tokens, size_t capacity,
                          size_t *ret_n, struct err *e) {
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
        char text[4] = { (char)tokens[i] };
        size_t length = t->kind == TOKENIZER_CHAR ? utf8_put(t->code_points[tokens[i]], text) : 1;
        TRY(bytes_append(ret, text, length, e));
    }
    return ST_OK;
}

status_t tokenizer_to_json(const struct tokenizer *t, char **ret, struct err *e) {
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
    size_t n = json_array_size(points); /* 0 for what is no array */
    if (n == 0 || n > UNICODE_END)
        return err_set(e, ST_INVALID_ARGUMENT, "a char tokenizer needs its code_points");
    CLEANUP(freep) uint32_t *code_points = malloc(n * sizeof *code_points);
    if (!code_points)
        return err_errno(e, "allocate a vocabulary of %zu characters", n);
    for (size_t i = 0; i < n; i++) {
        json_t *point = json_array_get(points, i);
        json_int_t c = json_integer_value(point);
        if (!json_is_integer(point) || c < 0 || c >= UNICODE_END)
            return err_set(e, ST_INVALID_ARGUMENT, "code_points[%zu] is no Unicode character", i);
        code_points[i] = (uint32_t)c;
    }
    return tokenizer_new_char(code_points, (int)n, ret, e);
}

status_t tokenizer_from_json(const char *json, struct tokenizer **ret, struct err *e) {
    json_error_t where;
    CLEANUP(json_decrefp) json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return err_set(e, ST_INVALID_ARGUMENT, "the tokenizer is no JSON: %s", where.text);
    const char *kind = json_string_value(json_object_get(root, "kind"));
    if (kind && strcmp(kind, "byte") == 0)
        return tokenizer_new_byte(ret, e);
    if (kind && strcmp(kind, "char") == 0)
        return char_from_json(json_object_get(root, "code_points"), ret, e);
    return err_set(e, ST_INVALID_ARGUMENT, "the tokenizer's kind is neither char nor byte");
}
