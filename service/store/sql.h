/* Statements on one connection: arguments in, rows out, SQLSTATE to status. Internal to the store; sql.c is the only
 * caller of libpq's exec functions. All values travel in PostgreSQL's binary format.
 *
 * A statement is a static constant; it is prepared on a connection at its first use there, under its name. */
#ifndef SERVICE_STORE_SQL_H
#define SERVICE_STORE_SQL_H

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/status.h"
#include "service/store/state_sql.h"

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* More than all statements of the store. */
#define SQL_PREPARED_MOST 128
#define SQL_ARGS_MOST     24

struct sql {
    const char *name, *text;
};

struct connection {
    PGconn *pg;
    const struct sql *prepared[SQL_PREPARED_MOST]; /* open addressing by address */
    int n_prepared;
    bool in_pipeline;
};

/* Arguments in the order of $1, $2, ...; texts and arrays are not copied. */
struct sql_args {
    int n;
    Oid types[SQL_ARGS_MOST];
    const char *values[SQL_ARGS_MOST];
    int lengths[SQL_ARGS_MOST];
    int formats[SQL_ARGS_MOST];
    char scratch[SQL_ARGS_MOST][8];
};
void sql_add_int2(struct sql_args *a, int value);
void sql_add_int4(struct sql_args *a, int value);
void sql_add_int8(struct sql_args *a, int64_t value);
void sql_add_double(struct sql_args *a, double value);
void sql_add_bool(struct sql_args *a, bool value);
void sql_add_text(struct sql_args *a, const char *value); /* NULL is stored as NULL */
void sql_add_bytes(struct sql_args *a, const void *value, size_t n);
void sql_add_time(struct sql_args *a, int64_t time_us);
void sql_add_null_double(struct sql_args *a);
void sql_add_null_int4(struct sql_args *a);
void sql_add_int4_array_null(struct sql_args *a);

/* Arrays, in a buffer of the caller's. */
#define SQL_ARRAY_HEAD_BYTES 20
size_t sql_array_bytes_8(size_t n); /* of n 8-byte elements */
void sql_add_double_array(struct sql_args *a, char *buffer, const double *values, size_t n);
void sql_add_int8_array(struct sql_args *a, char *buffer, const int64_t *values, size_t n);
void sql_add_int4_array(struct sql_args *a, char *buffer, const int32_t *values, size_t n);
void sql_add_time_array(struct sql_args *a, char *buffer, const int64_t *times_us, size_t n);
/* *ret_buffer is allocated: free it after the statement has been sent. */
MUST_CHECK status_t sql_add_text_array(struct sql_args *a, const char *const *values, size_t n, char **ret_buffer,
                                       struct err *e);

/* Opens a connection with the store's session settings. UNAVAILABLE when nobody answers. */
MUST_CHECK status_t connection_open(const char *conninfo, struct connection **ret, struct err *e);
struct connection *connection_close(struct connection *c);
CLEANUP_DEFINE(struct connection *, connection_close)
bool connection_broken(const struct connection *c);

/* Runs one statement and waits for its rows. *ret (may be NULL) is the caller's: PQclear, or sql_clearp. */
MUST_CHECK status_t sql_run(struct connection *c, const struct sql *q, const struct sql_args *a, PGresult **ret,
                            struct err *e);
/* As sql_run, for exactly one row; no row is NOT_FOUND with `what` as its sentence. */
MUST_CHECK status_t sql_run_one(struct connection *c, const struct sql *q, const struct sql_args *a, PGresult **ret,
                                const char *what, struct err *e);
/* Text without arguments, several statements at once: BEGIN, COMMIT, migrations. */
MUST_CHECK status_t sql_script(struct connection *c, const char *text, struct err *e);

/* Pipelines: statements are sent without waiting; results come in the same order. Between begin and end only these may
 * be used on the connection, with statements that sql_prepare has prepared. */
MUST_CHECK status_t sql_prepare(struct connection *c, const struct sql *q, const struct sql_args *like, struct err *e);
MUST_CHECK status_t sql_pipeline_begin(struct connection *c, struct err *e);
MUST_CHECK status_t sql_pipeline_send(struct connection *c, const struct sql *q, const struct sql_args *a,
                                      struct err *e);
/* Reads the results of all n statements that were sent, and leaves the pipeline; the first failure is returned. rows:
 * how many rows were touched in all. */
MUST_CHECK status_t sql_pipeline_end(struct connection *c, size_t n, int64_t *ret_rows, struct err *e);

static inline void sql_clearp(PGresult **r) {
    PQclear(*r);
    *r = NULL;
}

/* Columns of a row in binary format. A NULL is 0, "" or none. */
bool sql_is_null(const PGresult *r, int row, int col);
int sql_int2(const PGresult *r, int row, int col);
int sql_int4(const PGresult *r, int row, int col);
int64_t sql_int8(const PGresult *r, int row, int col);
double sql_double(const PGresult *r, int row, int col);
bool sql_bool(const PGresult *r, int row, int col);
int64_t sql_time(const PGresult *r, int row, int col); /* 0 = NULL */
const char *sql_text(const PGresult *r, int row, int col);
/* One-dimensional arrays: *ret_n elements; a NULL array has none. Elements are read one by one by sql_array_*. */
const char *sql_array(const PGresult *r, int row, int col, size_t *ret_n);
double sql_array_double(const char *elements, size_t i);
int64_t sql_array_int8(const char *elements, size_t i);
int32_t sql_array_int4(const char *elements, size_t i);
int64_t sql_array_time(const char *elements, size_t i);
/* Texts have lengths of their own: walks from element to element. *at starts as sql_array's result. */
const char *sql_array_next_text(const char **at, size_t *ret_len);

#endif
