#include "service/store/sql.h"

#include <assert.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>

/* pg_type.h's numbers, fixed since they were given. */
enum {
    OID_BOOL = 16,
    OID_BYTEA = 17,
    OID_INT8 = 20,
    OID_INT2 = 21,
    OID_INT4 = 23,
    OID_TEXT = 25,
    OID_FLOAT8 = 701,
    OID_INT4_ARRAY = 1007,
    OID_TEXT_ARRAY = 1009,
    OID_INT8_ARRAY = 1016,
    OID_FLOAT8_ARRAY = 1022,
    OID_TIMESTAMPTZ = 1184,
    OID_TIMESTAMPTZ_ARRAY = 1185,
};
/* PostgreSQL counts from 2000-01-01. */
#define EPOCH_2000_US 946684800000000LL

/* What PostgreSQL takes ends in the years 4713 BC and 294276: a worker's time beyond is cut, not a failed statement. */
#define TIME_LEAST_US (-211813488000000000LL)
#define TIME_MOST_US  9223371331199999999LL

static uint64_t time_bits(int64_t time_us) {
    int64_t since;
    if (__builtin_sub_overflow(time_us, EPOCH_2000_US, &since) || since < TIME_LEAST_US)
        since = TIME_LEAST_US;
    return (uint64_t)(since > TIME_MOST_US ? TIME_MOST_US : since);
}

static char *add(struct sql_args *a, Oid type, const char *value, size_t n) {
    assert(a->n < SQL_ARGS_MOST);
    int i = a->n++;
    a->types[i] = type;
    a->formats[i] = 1;
    a->lengths[i] = (int)n;
    a->values[i] = value;
    return a->scratch[i];
}

static void add_scratch(struct sql_args *a, Oid type, const void *value, size_t n) {
    char *room = add(a, type, NULL, n);
    memcpy(room, value, n);
    a->values[a->n - 1] = room;
}

static uint64_t bits_of(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double double_of(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void sql_add_int2(struct sql_args *a, int value) {
    uint16_t be = htobe16((uint16_t)value);
    add_scratch(a, OID_INT2, &be, sizeof be);
}

void sql_add_int4(struct sql_args *a, int value) {
    uint32_t be = htobe32((uint32_t)value);
    add_scratch(a, OID_INT4, &be, sizeof be);
}

void sql_add_int8(struct sql_args *a, int64_t value) {
    uint64_t be = htobe64((uint64_t)value);
    add_scratch(a, OID_INT8, &be, sizeof be);
}

void sql_add_double(struct sql_args *a, double value) {
    uint64_t be = htobe64(bits_of(value));
    add_scratch(a, OID_FLOAT8, &be, sizeof be);
}

void sql_add_bool(struct sql_args *a, bool value) {
    char byte = value;
    add_scratch(a, OID_BOOL, &byte, 1);
}

void sql_add_time(struct sql_args *a, int64_t time_us) {
    uint64_t be = htobe64(time_bits(time_us));
    add_scratch(a, OID_TIMESTAMPTZ, &be, sizeof be);
}

void sql_add_text(struct sql_args *a, const char *value) { add(a, OID_TEXT, value, value ? strlen(value) : 0); }
void sql_add_bytes(struct sql_args *a, const void *value, size_t n) { add(a, OID_BYTEA, n ? value : "", n); }
void sql_add_null_double(struct sql_args *a) { add(a, OID_FLOAT8, NULL, 0); }
void sql_add_null_int4(struct sql_args *a) { add(a, OID_INT4, NULL, 0); }
void sql_add_int4_array_null(struct sql_args *a) { add(a, OID_INT4_ARRAY, NULL, 0); }

/* Array: dimensions, has NULLs, element type, then length and lower bound of the one dimension, then the elements, each
 * with its length before it. */
static char *put32(char *at, uint32_t value) {
    value = htobe32(value);
    memcpy(at, &value, 4);
    return at + 4;
}

static char *put64(char *at, uint64_t value) {
    at = put32(at, 8);
    value = htobe64(value);
    memcpy(at, &value, 8);
    return at + 8;
}

static char *put_head(char *at, Oid element, size_t n) {
    at = put32(at, n ? 1 : 0);
    at = put32(at, 0);
    at = put32(at, element);
    if (!n)
        return at;
    at = put32(at, (uint32_t)n);
    return put32(at, 1);
}

size_t sql_array_bytes_8(size_t n) { return SQL_ARRAY_HEAD_BYTES + n * 12; }

void sql_add_double_array(struct sql_args *a, char *buffer, const double *values, size_t n) {
    char *at = put_head(buffer, OID_FLOAT8, n);
    for (size_t i = 0; i < n; i++)
        at = put64(at, bits_of(values[i]));
    add(a, OID_FLOAT8_ARRAY, buffer, (size_t)(at - buffer));
}

void sql_add_int8_array(struct sql_args *a, char *buffer, const int64_t *values, size_t n) {
    char *at = put_head(buffer, OID_INT8, n);
    for (size_t i = 0; i < n; i++)
        at = put64(at, (uint64_t)values[i]);
    add(a, OID_INT8_ARRAY, buffer, (size_t)(at - buffer));
}

void sql_add_time_array(struct sql_args *a, char *buffer, const int64_t *times_us, size_t n) {
    char *at = put_head(buffer, OID_TIMESTAMPTZ, n);
    for (size_t i = 0; i < n; i++)
        at = put64(at, time_bits(times_us[i]));
    add(a, OID_TIMESTAMPTZ_ARRAY, buffer, (size_t)(at - buffer));
}

void sql_add_int4_array(struct sql_args *a, char *buffer, const int32_t *values, size_t n) {
    char *at = put_head(buffer, OID_INT4, n);
    for (size_t i = 0; i < n; i++)
        at = put32(put32(at, 4), (uint32_t)values[i]);
    add(a, OID_INT4_ARRAY, buffer, (size_t)(at - buffer));
}

status_t sql_add_text_array(struct sql_args *a, const char *const *values, size_t n, char **ret_buffer, struct err *e) {
    size_t room = SQL_ARRAY_HEAD_BYTES;
    for (size_t i = 0; i < n; i++)
        room += 4 + strlen(values[i]);
    char *buffer = malloc(room);
    if (!buffer)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for an array of %zu texts", n);
    char *at = put_head(buffer, OID_TEXT, n);
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(values[i]);
        at = put32(at, (uint32_t)len);
        memcpy(at, values[i], len);
        at += len;
    }
    add(a, OID_TEXT_ARRAY, buffer, (size_t)(at - buffer));
    *ret_buffer = buffer;
    return ST_OK;
}

static uint32_t get32(const char *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return be32toh(value);
}

static uint64_t get64(const char *at) {
    uint64_t value;
    memcpy(&value, at, 8);
    return be64toh(value);
}

bool sql_is_null(const PGresult *r, int row, int col) { return PQgetisnull(r, row, col); }

int sql_int2(const PGresult *r, int row, int col) {
    if (PQgetisnull(r, row, col))
        return 0;
    assert(PQgetlength(r, row, col) == 2);
    uint16_t value;
    memcpy(&value, PQgetvalue(r, row, col), 2);
    return (int16_t)be16toh(value);
}

int sql_int4(const PGresult *r, int row, int col) {
    if (PQgetisnull(r, row, col))
        return 0;
    assert(PQgetlength(r, row, col) == 4);
    return (int32_t)get32(PQgetvalue(r, row, col));
}

int64_t sql_int8(const PGresult *r, int row, int col) {
    if (PQgetisnull(r, row, col))
        return 0;
    assert(PQgetlength(r, row, col) == 8);
    return (int64_t)get64(PQgetvalue(r, row, col));
}

double sql_double(const PGresult *r, int row, int col) { return double_of((uint64_t)sql_int8(r, row, col)); }

bool sql_bool(const PGresult *r, int row, int col) {
    return !PQgetisnull(r, row, col) && *PQgetvalue(r, row, col) != 0;
}

int64_t sql_time(const PGresult *r, int row, int col) {
    return PQgetisnull(r, row, col) ? 0 : sql_int8(r, row, col) + EPOCH_2000_US;
}

/* libpq ends every value with a NUL that does not count. */
const char *sql_text(const PGresult *r, int row, int col) { return PQgetvalue(r, row, col); }

const char *sql_array(const PGresult *r, int row, int col, size_t *ret_n) {
    *ret_n = 0;
    if (PQgetisnull(r, row, col))
        return NULL;
    const char *at = PQgetvalue(r, row, col);
    if (get32(at) == 0)
        return NULL;
    assert(get32(at) == 1 && get32(at + 4) == 0);
    *ret_n = get32(at + 12);
    return at + SQL_ARRAY_HEAD_BYTES;
}

double sql_array_double(const char *elements, size_t i) { return double_of(get64(elements + i * 12 + 4)); }
int64_t sql_array_int8(const char *elements, size_t i) { return (int64_t)get64(elements + i * 12 + 4); }
int64_t sql_array_time(const char *elements, size_t i) { return sql_array_int8(elements, i) + EPOCH_2000_US; }
int32_t sql_array_int4(const char *elements, size_t i) { return (int32_t)get32(elements + i * 8 + 4); }

const char *sql_array_next_text(const char **at, size_t *ret_len) {
    *ret_len = get32(*at);
    const char *text = *at + 4;
    *at = text + *ret_len;
    return text;
}
