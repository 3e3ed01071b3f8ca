/* Rows of a statement as C structs.
 *
 * A row type is described once, by a table of its columns: the SQL expression of each and the field that it fills.
 *
 *     static const struct sql_query EVENT_LIST = {
 *         { "event_list", "SELECT {columns} FROM event WHERE job = $1 ORDER BY number" },
 *         SQL_ROW(struct store_event, SQL_COLUMN(struct store_event, number, "number"),
 *                 SQL_COLUMN(struct store_event, time_us, "time")) };
 *
 * The SELECT list comes from the table, so that no position is written anywhere. PostgreSQL refuses an expression that
 * names no column when it prepares the statement; a type that does not fit its field is refused with the name of the
 * statement and the column. Internal to the store. */
#ifndef SERVICE_STORE_SQL_ROW_H
#define SERVICE_STORE_SQL_ROW_H

#include "base/status.h"
#include "service/store/store.h"

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A statement. Its name is unique in the store and appears in errors. */
struct sql {
    const char *name, *text;
};

/* The C types that a column can fill. SQL_COLUMN chooses by the type of the field. A NULL becomes 0, false, "", a NULL
 * pointer to bytes, or an array without elements. */
enum sql_field {
    SQL_FIELD_BOOL,
    SQL_FIELD_INT,    /* int or an enum, of int2 or int4 */
    SQL_FIELD_INT64,  /* of an integer; of a time: microseconds since 1970 UTC */
    SQL_FIELD_DOUBLE, /* of float8 */
    SQL_FIELD_STRING, /* const char *, in the memory of the rows */
    SQL_FIELD_CHARS,  /* char[n], copied, cut at n - 1 */
    SQL_FIELD_BYTES,  /* const void *, in the memory of the rows */
    SQL_FIELD_ARRAY,  /* struct sql_array, in the memory of the rows */
};

/* An array of one dimension as PostgreSQL sent it. sql_array_* reads its elements. */
struct sql_array {
    const char *elements; /* NULL: the array is empty or NULL */
    size_t n, bytes;
    unsigned type; /* enum sql_type, which the functions below assert */
};

struct sql_column {
    const char *expression; /* as in a SELECT list */
    enum sql_field field;
    size_t offset, size; /* of the field */
    size_t n_offset;     /* of the size_t for the number of bytes; 0 = none */
};
struct sql_row {
    size_t size;                /* of the struct */
    const struct sql_row *base; /* the columns of the struct's first member; NULL = none */
    const struct sql_column *columns;
    size_t n_columns;
};

#define SQL_FIELD_OF_(value)                                                                                           \
    _Generic((value),                                                                                                  \
        bool: SQL_FIELD_BOOL,                                                                                          \
        int: SQL_FIELD_INT,                                                                                            \
        unsigned int: SQL_FIELD_INT,                                                                                   \
        int64_t: SQL_FIELD_INT64,                                                                                      \
        double: SQL_FIELD_DOUBLE,                                                                                      \
        const char *: SQL_FIELD_STRING,                                                                                \
        char *: SQL_FIELD_CHARS,                                                                                       \
        const uint8_t *: SQL_FIELD_BYTES,                                                                              \
        const void *: SQL_FIELD_BYTES,                                                                                 \
        struct sql_array: SQL_FIELD_ARRAY)
/* The expression of a SELECT list that fills a field. */
#define SQL_COLUMN(type, field, expression)                                                                            \
    { (expression), SQL_FIELD_OF_(((type *)0)->field), offsetof(type, field), sizeof(((type *)0)->field), 0 }
/* The same for a bytea; n: the field for its number of bytes. */
#define SQL_COLUMN_BYTES(type, field, n, expression)                                                                   \
    { (expression), SQL_FIELD_BYTES, offsetof(type, field), sizeof(((type *)0)->field), offsetof(type, n) }
/* A row type of its own, from an array of columns. */
#define SQL_ROW_OF(type, columns)                                                                                      \
    { sizeof(type), NULL, (columns), sizeof(columns) / sizeof *(columns) }
#define SQL_COLUMNS_(...)                                                                                              \
    (const struct sql_column[]) { __VA_ARGS__ }
/* The columns of a struct, as `row` of a query. */
#define SQL_ROW(type, ...) SQL_ROW_AFTER(NULL, type, __VA_ARGS__)
/* The columns of a struct behind those of its first member. */
#define SQL_ROW_AFTER(base, type, ...)                                                                                 \
    (&(const struct sql_row){ sizeof(type), (base), SQL_COLUMNS_(__VA_ARGS__),                                         \
                              sizeof(SQL_COLUMNS_(__VA_ARGS__)) / sizeof(struct sql_column) })
/* A row of one value without a struct. */
#define SQL_SCALAR(type, expression)                                                                                   \
    (&(const struct sql_row){                                                                                          \
        sizeof(type), NULL,                                                                                            \
        (const struct sql_column[]){ { (expression), SQL_FIELD_OF_((type){ 0 }), 0, sizeof(type), 0 } }, 1 })

/* A statement that returns rows. "{columns}" in its text becomes the expressions of the row's columns, once each. */
struct sql_query {
    struct sql sql;
    const struct sql_row *row;
};

/* The text of a query with its columns, newly allocated. */
char *sql_query_text(const struct sql_query *q);
/* All rows of *take_result as structs in m, which keeps the result as well. INTERNAL if a column does not fit its
 * field. */
MUST_CHECK status_t sql_read_rows(const struct sql_query *q, struct store_memory *m, PGresult **take_result, char **ret,
                                  struct err *e);
/* Row 0 into ret. m may be NULL if the row has neither strings, bytes nor arrays. */
MUST_CHECK status_t sql_read_row(const struct sql_query *q, struct store_memory *m, PGresult **take_result, void *ret,
                                 struct err *e);

double sql_array_double(const struct sql_array *a, size_t i);
int32_t sql_array_int4(const struct sql_array *a, size_t i);
int64_t sql_array_time(const struct sql_array *a, size_t i);
/* The elements of an array of texts, copied to m: [a->n], each with its NUL. */
const char *const *sql_array_texts(const struct sql_array *a, struct store_memory *m);

#endif
