/* Rows of PostgreSQL's binary format into structs.
 *
 * The SELECT list of a query is written from its table of columns (sql_query_text), so that column i of a result is
 * column i of the table: first those of the base row, then the row's own. Before the first row is read, each column's
 * type is compared with its field (check_columns). Fields take the value in the type that PostgreSQL sent: an int may
 * come from int2 or int4, an int64_t from any integer or from a time. Strings, bytes and arrays are not copied: they
 * point into the result, which the store_memory keeps. */
#include "service/store/sql_row.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "service/store/pool.h"
#include "service/store/sql_argument.h"

#include <assert.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MARK "{columns}"
/* PostgreSQL counts from 2000-01-01. */
#define EPOCH_2000_US 946684800000000LL

enum { ARRAY_HEAD_BYTES = 20, LENGTH_BYTES = 4 };

/* ---- the text ---- */

static size_t columns_of(const struct sql_row *row) { return row ? columns_of(row->base) + row->n_columns : 0; }

static void write_columns(FILE *f, const struct sql_row *row) {
    if (row->base)
        write_columns(f, row->base);
    for (size_t i = 0; i < row->n_columns; i++)
        fprintf(f, "%s%s", i || row->base ? ", " : "", row->columns[i].expression);
}

char *sql_query_text(const struct sql_query *q) {
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    if (!f)
        alloc_refused(sizeof *f);
    const char *mark = strstr(q->sql.text, COLUMNS_MARK);
    assert(mark && "a query returns the columns of its row");
    fwrite(q->sql.text, 1, (size_t)(mark - q->sql.text), f);
    write_columns(f, q->row);
    fputs(mark + strlen(COLUMNS_MARK), f);
    if (fclose(f) != 0)
        alloc_refused(n);
    return text;
}

/* ---- types ---- */

static bool type_fits(enum sql_field field, Oid type) {
    switch (field) {
    case SQL_FIELD_BOOL: return type == SQL_BOOL;
    case SQL_FIELD_INT: return type == SQL_INT2 || type == SQL_INT4;
    case SQL_FIELD_INT64: return type == SQL_INT8 || type == SQL_INT4 || type == SQL_INT2 || type == SQL_TIMESTAMPTZ;
    case SQL_FIELD_DOUBLE: return type == SQL_FLOAT8;
    case SQL_FIELD_STRING:
    case SQL_FIELD_CHARS: return type == SQL_TEXT;
    case SQL_FIELD_BYTES: return type == SQL_BYTEA;
    case SQL_FIELD_ARRAY:
        return type == SQL_INT4_ARRAY || type == SQL_INT8_ARRAY || type == SQL_FLOAT8_ARRAY || type == SQL_TEXT_ARRAY ||
               type == SQL_TIMESTAMPTZ_ARRAY;
    }
    return false;
}

static status_t check_row(const struct sql_query *q, const struct sql_row *row, const PGresult *r, struct err *e) {
    static const char *const names[] = { "bool", "int", "int64_t", "double", "string", "char[]", "bytes", "array" };
    const int first = (int)columns_of(row->base);
    for (size_t i = 0; i < row->n_columns; i++) {
        const Oid type = PQftype(r, first + (int)i);
        if (!type_fits(row->columns[i].field, type))
            return err_set(e, ST_INTERNAL,
                           "PostgreSQL: %s: column \"%s\" has type %u, which does not fit a field of %s", q->sql.name,
                           row->columns[i].expression, type, names[row->columns[i].field]);
    }
    return row->base ? check_row(q, row->base, r, e) : ST_OK;
}

static status_t check_columns(const struct sql_query *q, const PGresult *r, struct err *e) {
    if ((size_t)PQnfields(r) != columns_of(q->row))
        return err_set(e, ST_INTERNAL, "PostgreSQL: %s: returned %d columns instead of %zu", q->sql.name, PQnfields(r),
                       columns_of(q->row));
    return check_row(q, q->row, r, e);
}

/* ---- values ---- */

static uint32_t get32(const char *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return be32toh(value);
}

static uint64_t get64(const char *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return be64toh(value);
}

static double double_of(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static int64_t integer_of(const char *at, Oid type) {
    uint16_t small;
    switch (type) {
    case SQL_INT2: memcpy(&small, at, sizeof small); return (int16_t)be16toh(small);
    case SQL_INT4: return (int32_t)get32(at);
    case SQL_TIMESTAMPTZ: return (int64_t)get64(at) + EPOCH_2000_US;
    default: return (int64_t)get64(at);
    }
}

static struct sql_array array_of(const char *at, size_t bytes, Oid type) {
    if (get32(at) == 0)
        return (struct sql_array){ .type = type };
    assert(get32(at) == 1 && get32(at + 4) == 0); /* one dimension, no NULLs */
    return (struct sql_array){ at + ARRAY_HEAD_BYTES, get32(at + 12), bytes - ARRAY_HEAD_BYTES, type };
}

static void read_field(const struct sql_column *c, const PGresult *r, int row, int col, char *ret) {
    const char *at = PQgetvalue(r, row, col); /* with a NUL behind it */
    const size_t n = (size_t)PQgetlength(r, row, col);
    const bool null = PQgetisnull(r, row, col);
    const Oid type = PQftype(r, col);
    void *field = ret + c->offset;
    if (c->n_offset)
        memcpy(ret + c->n_offset, &n, sizeof n);
    switch (c->field) {
    case SQL_FIELD_BOOL: *(bool *)field = !null && *at != 0; break;
    case SQL_FIELD_INT: *(int *)field = null ? 0 : (int)integer_of(at, type); break;
    case SQL_FIELD_INT64: *(int64_t *)field = null ? 0 : integer_of(at, type); break;
    case SQL_FIELD_DOUBLE: *(double *)field = null ? 0 : double_of(get64(at)); break;
    case SQL_FIELD_STRING: memcpy(field, &at, sizeof at); break;
    case SQL_FIELD_CHARS: snprintf(field, c->size, "%s", at); break;
    case SQL_FIELD_BYTES: memcpy(field, null ? &(const char *){ NULL } : &at, sizeof at); break;
    case SQL_FIELD_ARRAY: *(struct sql_array *)field = null ? (struct sql_array){ 0 } : array_of(at, n, type); break;
    }
}

static void read_row(const struct sql_row *row, const PGresult *r, int i, char *ret) {
    const int first = (int)columns_of(row->base);
    if (row->base)
        read_row(row->base, r, i, ret);
    for (size_t k = 0; k < row->n_columns; k++)
        read_field(&row->columns[k], r, i, first + (int)k, ret);
}

status_t sql_read_rows(const struct sql_query *q, struct store_memory *m, PGresult **take_result, char **ret,
                       struct err *e) {
    const int n = PQntuples(*take_result);
    char *rows = NULL;
    TRY(check_columns(q, *take_result, e));
    rows = store_memory_get(m, (size_t)n, q->row->size);
    for (int i = 0; i < n; i++)
        read_row(q->row, *take_result, i, rows + (size_t)i * q->row->size);
    *ret = rows;
    if (n)
        store_memory_keep(m, take_result);
    return ST_OK;
}

static bool has_pointers(const struct sql_row *row) {
    for (size_t i = 0; i < row->n_columns; i++)
        if (row->columns[i].field == SQL_FIELD_STRING || row->columns[i].field == SQL_FIELD_BYTES ||
            row->columns[i].field == SQL_FIELD_ARRAY)
            return true;
    return row->base && has_pointers(row->base);
}

status_t sql_read_row(const struct sql_query *q, struct store_memory *m, PGresult **take_result, void *ret,
                      struct err *e) {
    TRY(check_columns(q, *take_result, e));
    read_row(q->row, *take_result, 0, ret);
    if (has_pointers(q->row))
        store_memory_keep(m, take_result);
    return ST_OK;
}

/* ---- elements of arrays ---- */

double sql_array_double(const struct sql_array *a, size_t i) {
    assert(a->type == SQL_FLOAT8_ARRAY && i < a->n);
    return double_of(get64(a->elements + i * (LENGTH_BYTES + 8) + LENGTH_BYTES));
}

int64_t sql_array_time(const struct sql_array *a, size_t i) {
    assert(a->type == SQL_TIMESTAMPTZ_ARRAY && i < a->n);
    return (int64_t)get64(a->elements + i * (LENGTH_BYTES + 8) + LENGTH_BYTES) + EPOCH_2000_US;
}

int32_t sql_array_int4(const struct sql_array *a, size_t i) {
    assert(a->type == SQL_INT4_ARRAY && i < a->n);
    return (int32_t)get32(a->elements + i * (LENGTH_BYTES + 4) + LENGTH_BYTES);
}

const char *const *sql_array_texts(const struct sql_array *a, struct store_memory *m) {
    const char **texts, *at = a->elements;
    char *copy;
    assert(a->n == 0 || a->type == SQL_TEXT_ARRAY);
    texts = store_memory_get(m, a->n, sizeof *texts);
    copy = store_memory_get(m, a->bytes, 1); /* each text's NUL replaces its length */
    for (size_t i = 0; i < a->n; i++) {
        const size_t n = get32(at);
        texts[i] = copy;
        memcpy(copy, at + LENGTH_BYTES, n);
        copy[n] = '\0';
        copy += n + 1;
        at += LENGTH_BYTES + n;
    }
    return texts;
}
