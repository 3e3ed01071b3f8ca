/* The row layer: a table of columns reads rows, and a column that does not match the table is refused. */
#include "tests/store/store_fixture.h"

#include "service/store/sql.h"

#include <string.h>

struct row {
    int64_t id;
    int small;
    bool flag;
    double real;
    const char *text;
    char cut[4];
    const void *bytes;
    size_t n_bytes;
    struct sql_array numbers, texts;
    int64_t time_us;
};
#define ROW(expression_of_small)                                                                                       \
    SQL_ROW(struct row, SQL_COLUMN(struct row, time_us, "t"), SQL_COLUMN(struct row, small, expression_of_small),      \
            SQL_COLUMN(struct row, id, "id"), SQL_COLUMN(struct row, flag, "b"), SQL_COLUMN(struct row, real, "d"),    \
            SQL_COLUMN(struct row, text, "s"), SQL_COLUMN(struct row, cut, "s"),                                       \
            SQL_COLUMN_BYTES(struct row, bytes, n_bytes, "y"), SQL_COLUMN(struct row, numbers, "n"),                   \
            SQL_COLUMN(struct row, texts, "x"))
#define SELECT_FROM_VALUES(values)                                                                                     \
    "SELECT {columns} FROM (SELECT " values ") AS v(id, small, b, d, s, y, n, x, t) WHERE id = $1"
#define FULL_TEXT                                                                                                      \
    SELECT_FROM_VALUES("7::bigint, 3::smallint, true, 0.5::float8, 'three', '\\x0102'::bytea, '{4,5}'::integer[], "    \
                       "'{a,\"\",bcd}'::text[], '2000-01-01 00:00:01+00'::timestamptz")
static const struct sql_query FULL = { { "full", FULL_TEXT }, ROW("small") };
static const struct sql_query NULLS = {
    { "nulls", SELECT_FROM_VALUES("7::bigint, NULL::smallint, NULL::bool, NULL::float8, NULL::text, NULL::bytea, "
                                  "NULL::integer[], NULL::text[], NULL::timestamptz") },
    ROW("small")
};
static const struct sql_query RENAMED = { { "renamed", FULL_TEXT }, ROW("v.little") };
static const struct sql_query RETYPED = { { "retyped", FULL_TEXT }, ROW("id") };

static struct connection *connect_to(struct fixture *f) {
    struct connection *c = NULL;
    OK(connection_open(f->conninfo, &c, &e));
    return c;
}

static void a_row_is_read_by_the_names_of_its_columns(void **state) {
    struct fixture *f = *state;
    CLEANUP(connection_closep) struct connection *c = connect_to(f);
    const char *const *texts;
    struct row row;
    OK(sql_get(c, f->m, &FULL, ARGS(arg_int8(7)), &row, "no row", &e));
    assert_int_equal(row.id, 7);
    assert_int_equal(row.small, 3);
    assert_true(row.flag);
    assert_true(row.real == 0.5);
    assert_string_equal(row.text, "three");
    assert_string_equal(row.cut, "thr");
    assert_int_equal(row.n_bytes, 2);
    assert_memory_equal(row.bytes, "\1\2", 2);
    assert_int_equal(row.numbers.n, 2);
    assert_int_equal(sql_array_int4(&row.numbers, 1), 5);
    texts = sql_array_texts(&row.texts, f->m);
    assert_int_equal(row.texts.n, 3);
    assert_string_equal(texts[0], "a");
    assert_string_equal(texts[1], "");
    assert_string_equal(texts[2], "bcd");
    assert_int_equal(row.time_us, 946684801000000);
}

static void a_null_is_zero_or_empty(void **state) {
    struct fixture *f = *state;
    CLEANUP(connection_closep) struct connection *c = connect_to(f);
    struct row row;
    memset(&row, 0xff, sizeof row);
    OK(sql_get(c, f->m, &NULLS, ARGS(arg_int8(7)), &row, "no row", &e));
    assert_int_equal(row.small, 0);
    assert_false(row.flag);
    assert_true(row.real == 0);
    assert_string_equal(row.text, "");
    assert_null(row.bytes);
    assert_int_equal(row.n_bytes, 0);
    assert_int_equal(row.numbers.n + row.texts.n, 0);
    assert_int_equal(row.time_us, 0);
}

static void a_column_that_does_not_exist_is_named(void **state) {
    struct fixture *f = *state;
    CLEANUP(connection_closep) struct connection *c = connect_to(f);
    struct row row;
    FAILS(sql_get(c, f->m, &RENAMED, ARGS(arg_int8(7)), &row, "no row", &e), ST_INTERNAL,
          "PostgreSQL: renamed: column v.little does not exist");
}

static void a_column_of_another_type_is_named(void **state) {
    struct fixture *f = *state;
    CLEANUP(connection_closep) struct connection *c = connect_to(f);
    struct row row;
    FAILS(sql_get(c, f->m, &RETYPED, ARGS(arg_int8(7)), &row, "no row", &e), ST_INTERNAL,
          "PostgreSQL: retyped: column \"id\" has type 20, which does not fit a field of int");
}

static void a_row_that_is_not_there_is_not_found(void **state) {
    struct fixture *f = *state;
    CLEANUP(connection_closep) struct connection *c = connect_to(f);
    struct row row = { .id = 1 };
    bool found = true;
    OK(sql_find(c, f->m, &FULL, ARGS(arg_int8(8)), &row, &found, &e));
    assert_false(found);
    assert_int_equal(row.id, 1);
    FAILS(sql_get(c, f->m, &FULL, ARGS(arg_int8(8)), &row, "row 8 is missing", &e), ST_NOT_FOUND, "row 8 is missing");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_row_is_read_by_the_names_of_its_columns), TEST(a_null_is_zero_or_empty),
        TEST(a_column_that_does_not_exist_is_named),     TEST(a_column_of_another_type_is_named),
        TEST(a_row_that_is_not_there_is_not_found),
    };
    return cmocka_run_group_tests_name("store rows", tests, fixture_group_setup, fixture_group_teardown);
}
