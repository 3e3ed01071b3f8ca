/* Arguments in PostgreSQL's binary format.
 *
 * All numbers are big-endian. A time is a count of microseconds since 2000-01-01. An array is a header (dimensions, a
 * flag for NULLs, the element type, then length and lower bound of the one dimension) and the elements, each behind its
 * length. sql_encode walks the list twice: the first pass adds up the bytes that need a buffer, the second one writes
 * them. Text and bytes are not copied, unless a text must be cleaned. */
#include "service/store/sql_argument.h"

#include "base/alloc.h"
#include "service/store/text.h"

#include <assert.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>

/* PostgreSQL counts from 2000-01-01. */
#define EPOCH_2000_US 946684800000000LL
/* PostgreSQL's times lie in the years 4713 BC to 294276. A worker's time outside is clamped: a wrong clock must not
 * fail the statement. */
#define MIN_TIME_US (-211813488000000000LL)
#define MAX_TIME_US 9223371331199999999LL

enum { ARRAY_HEAD_BYTES = 20, LENGTH_BYTES = 4 };

static uint64_t time_bits(int64_t time_us) {
    int64_t since;
    if (__builtin_sub_overflow(time_us, EPOCH_2000_US, &since) || since < MIN_TIME_US)
        since = MIN_TIME_US;
    return (uint64_t)(since > MAX_TIME_US ? MAX_TIME_US : since);
}

static uint64_t double_bits(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static char *put16(char *at, uint16_t value) {
    value = htobe16(value);
    memcpy(at, &value, sizeof value);
    return at + sizeof value;
}

static char *put32(char *at, uint32_t value) {
    value = htobe32(value);
    memcpy(at, &value, sizeof value);
    return at + sizeof value;
}

static char *put64(char *at, uint64_t value) {
    value = htobe64(value);
    memcpy(at, &value, sizeof value);
    return at + sizeof value;
}

/* ---- arrays ---- */

static enum sql_type element_type(enum sql_type array) {
    switch (array) {
    case SQL_INT4_ARRAY: return SQL_INT4;
    case SQL_INT8_ARRAY: return SQL_INT8;
    case SQL_FLOAT8_ARRAY: return SQL_FLOAT8;
    case SQL_TIMESTAMPTZ_ARRAY: return SQL_TIMESTAMPTZ;
    default: return SQL_TEXT;
    }
}

static size_t array_bytes(const struct sql_arg *a) {
    if (a->type == SQL_INT4_ARRAY)
        return ARRAY_HEAD_BYTES + a->n * (LENGTH_BYTES + 4);
    if (a->type != SQL_TEXT_ARRAY)
        return ARRAY_HEAD_BYTES + a->n * (LENGTH_BYTES + 8);
    size_t bytes = ARRAY_HEAD_BYTES;
    for (size_t i = 0; i < a->n; i++)
        bytes += LENGTH_BYTES + strlen(((const char *const *)a->at)[i]);
    return bytes;
}

static char *put_element(char *at, const struct sql_arg *a, size_t i) {
    switch (a->type) {
    case SQL_INT4_ARRAY: return put32(put32(at, 4), (uint32_t)((const int32_t *)a->at)[i]);
    case SQL_INT8_ARRAY: return put64(put32(at, 8), (uint64_t)((const int64_t *)a->at)[i]);
    case SQL_FLOAT8_ARRAY: return put64(put32(at, 8), double_bits(((const double *)a->at)[i]));
    case SQL_TIMESTAMPTZ_ARRAY: return put64(put32(at, 8), time_bits(((const int64_t *)a->at)[i]));
    default: break;
    }
    const char *text = ((const char *const *)a->at)[i];
    const size_t n = strlen(text);
    memcpy(put32(at, (uint32_t)n), text, n);
    return at + LENGTH_BYTES + n;
}

static char *put_array(char *at, const struct sql_arg *a) {
    at = put32(at, a->n ? 1 : 0); /* dimensions */
    at = put32(at, 0);            /* no element is NULL */
    at = put32(at, element_type(a->type));
    if (a->n == 0)
        return at;
    at = put32(at, (uint32_t)a->n);
    at = put32(at, 1); /* lower bound */
    for (size_t i = 0; i < a->n; i++)
        at = put_element(at, a, i);
    return at;
}

/* ---- all ---- */

static size_t buffer_bytes(const struct sql_arg *a) {
    switch (a->type) {
    case SQL_TEXT: return a->form == SQL_SENTENCE ? SQL_MAX_SENTENCE_BYTES : 0;
    case SQL_BYTEA: return 0;
    case SQL_INT4_ARRAY:
    case SQL_INT8_ARRAY:
    case SQL_FLOAT8_ARRAY:
    case SQL_TIMESTAMPTZ_ARRAY:
    case SQL_TEXT_ARRAY: return array_bytes(a);
    default: return 8;
    }
}

/* Writes the value behind `at`; returns where it ends. */
static char *put_value(char *at, const struct sql_arg *a) {
    switch (a->type) {
    case SQL_BOOL: *at = a->integer != 0; return at + 1;
    case SQL_INT2: return put16(at, (uint16_t)a->integer);
    case SQL_INT4: return put32(at, (uint32_t)a->integer);
    case SQL_INT8: return put64(at, (uint64_t)a->integer);
    case SQL_TIMESTAMPTZ: return put64(at, time_bits(a->integer));
    case SQL_FLOAT8: return put64(at, double_bits(a->real));
    case SQL_TEXT: return at + text_clean(a->at, at, SQL_MAX_SENTENCE_BYTES);
    default: return put_array(at, a);
    }
}

static void encode(const struct sql_arg *a, struct sql_encoded *ret, char **at) {
    const int i = ret->n++;
    ret->types[i] = a->type;
    ret->formats[i] = 1;
    ret->values[i] = NULL;
    ret->lengths[i] = 0;
    if (a->form == SQL_NULL)
        return;
    if (a->type == SQL_BYTEA || (a->type == SQL_TEXT && a->form == SQL_VALUE)) {
        const size_t n = a->type == SQL_TEXT ? strlen(a->at) : a->n;
        ret->values[i] = n ? a->at : "";
        ret->lengths[i] = (int)n;
        return;
    }
    char *end = put_value(*at, a);
    ret->values[i] = *at;
    ret->lengths[i] = (int)(end - *at);
    *at = end;
}

void sql_encode(const struct sql_arg *args, struct sql_encoded *ret) {
    static const struct sql_arg none[] = { { 0 } };
    size_t bytes = 0;
    ret->n = 0;
    args = args ? args : none;
    for (const struct sql_arg *a = args; a->type; a++)
        bytes += buffer_bytes(a);
    char *at = ret->buffer = alloc_zeroed(bytes, 1);
    for (const struct sql_arg *a = args; a->type; a++) {
        assert(ret->n < SQL_MAX_ARGS);
        encode(a, ret, &at);
    }
}

void sql_encoded_done(struct sql_encoded *a) { free(a->buffer); }
