/* Typed arguments of a statement, sent in PostgreSQL's binary format.
 *
 *     ARGS(arg_int8(job), arg_text(name), arg_sentence(reason))      // $1, $2, $3
 *
 * The argument's constructor decides the type that PostgreSQL sees. Internal to the store. */
#ifndef SERVICE_STORE_SQL_ARGUMENT_H
#define SERVICE_STORE_SQL_ARGUMENT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* More than the arguments of any statement. */
#define SQL_MAX_ARGS 48
/* Of arg_sentence, with its NUL. */
#define SQL_MAX_SENTENCE_BYTES 1024

/* Types of PostgreSQL by the numbers of pg_type.h, which never change. */
enum sql_type {
    SQL_BOOL = 16,
    SQL_BYTEA = 17,
    SQL_INT8 = 20,
    SQL_INT2 = 21,
    SQL_INT4 = 23,
    SQL_TEXT = 25,
    SQL_FLOAT8 = 701,
    SQL_INT4_ARRAY = 1007,
    SQL_TEXT_ARRAY = 1009,
    SQL_INT8_ARRAY = 1016,
    SQL_FLOAT8_ARRAY = 1022,
    SQL_TIMESTAMPTZ = 1184,
    SQL_TIMESTAMPTZ_ARRAY = 1185,
};

/* One argument. arg_* makes it; it borrows what it points to until the statement has been sent. */
struct sql_arg {
    enum sql_type type;
    enum { SQL_VALUE, SQL_NULL, SQL_SENTENCE } form;
    union {
        int64_t integer;
        double real;
        const void *at; /* text, bytes, or the elements of an array */
    };
    size_t n; /* of bytes or elements */
};

/* A list of arguments in the order of $1, $2, ...: ARGS(arg_int8(job), arg_text(name)). NULL is an empty list. */
#define ARGS(...) ((const struct sql_arg[]){ __VA_ARGS__, { 0 } })

static inline struct sql_arg arg_integer_(enum sql_type type, int64_t value) {
    return (struct sql_arg){ .type = type, .integer = value };
}
static inline struct sql_arg arg_at_(enum sql_type type, const void *at, size_t n) {
    return (struct sql_arg){ .type = type, .at = at, .n = n };
}
static inline struct sql_arg arg_bool(bool value) { return arg_integer_(SQL_BOOL, value); }
static inline struct sql_arg arg_int2(int value) { return arg_integer_(SQL_INT2, value); }
static inline struct sql_arg arg_int4(int value) { return arg_integer_(SQL_INT4, value); }
static inline struct sql_arg arg_int8(int64_t value) { return arg_integer_(SQL_INT8, value); }
static inline struct sql_arg arg_time(int64_t time_us) { return arg_integer_(SQL_TIMESTAMPTZ, time_us); }
static inline struct sql_arg arg_double(double value) { return (struct sql_arg){ .type = SQL_FLOAT8, .real = value }; }
static inline struct sql_arg arg_bytes(const void *value, size_t n) { return arg_at_(SQL_BYTEA, value, n); }
/* NULL is stored as NULL. */
static inline struct sql_arg arg_text(const char *value) {
    return (struct sql_arg){ .type = SQL_TEXT, .form = value ? SQL_VALUE : SQL_NULL, .at = value };
}
/* A sentence from outside: text_clean makes it valid UTF-8 of less than SQL_MAX_SENTENCE_BYTES. NULL is "". */
static inline struct sql_arg arg_sentence(const char *text) {
    return (struct sql_arg){ .type = SQL_TEXT, .form = SQL_SENTENCE, .at = text ? text : "" };
}
static inline struct sql_arg arg_int4s(const int32_t *v, size_t n) { return arg_at_(SQL_INT4_ARRAY, v, n); }
static inline struct sql_arg arg_int8s(const int64_t *v, size_t n) { return arg_at_(SQL_INT8_ARRAY, v, n); }
static inline struct sql_arg arg_doubles(const double *v, size_t n) { return arg_at_(SQL_FLOAT8_ARRAY, v, n); }
static inline struct sql_arg arg_times(const int64_t *v, size_t n) { return arg_at_(SQL_TIMESTAMPTZ_ARRAY, v, n); }
static inline struct sql_arg arg_texts(const char *const *v, size_t n) { return arg_at_(SQL_TEXT_ARRAY, v, n); }
/* The argument, or NULL of its type. */
static inline struct sql_arg arg_if(bool present, struct sql_arg a) {
    if (!present)
        a.form = SQL_NULL;
    return a;
}

/* The arguments as libpq takes them. */
struct sql_encoded {
    int n;
    unsigned types[SQL_MAX_ARGS];
    const char *values[SQL_MAX_ARGS];
    int lengths[SQL_MAX_ARGS];
    int formats[SQL_MAX_ARGS];
    char *buffer; /* what the values point to, unless it is the caller's */
};
/* ret: sql_encoded_done releases it. */
void sql_encode(const struct sql_arg *args, struct sql_encoded *ret);
void sql_encoded_done(struct sql_encoded *a);

#endif
