/* A list is one statement, composed from the conditions that the filter has. It is not kept prepared: PostgreSQL plans
 * it for its arguments, and so uses the index of the condition that selects the fewest jobs, or that of the order.
 *
 * Every order ends with the id, so that a page begins behind the place (column, id) of the last job of the page before.
 * Names and users are text, which a page token does not hold: the statement reads them from the row of that job. If the
 * row is gone by then, no job follows: check_place distinguishes that from the end of the list. */
#include "service/store/job_list.h"

#include "base/bytes.h"
#include "service/store/job_row.h"
#include "service/store/pool.h"

#include <assert.h>

enum { TEXT_BYTES = 16 << 10 };

struct order {
    const char *column; /* NULL: the id alone */
    enum { KEY_NONE, KEY_TIME, KEY_STATE, KEY_TEXT } key;
    bool descending;
};
static const struct order ORDERS[] = {
    [STORE_JOBS_BY_ID] = { NULL, KEY_NONE, true },         [STORE_JOBS_BY_START] = { "start_time", KEY_TIME, true },
    [STORE_JOBS_BY_END] = { "end_time", KEY_TIME, true },  [STORE_JOBS_BY_NAME] = { "name", KEY_TEXT, false },
    [STORE_JOBS_BY_STATE] = { "state", KEY_STATE, false }, [STORE_JOBS_BY_USER] = { "user_name", KEY_TEXT, false },
};

static const struct sql_query JOB_EXISTS = { { "job_exists", "SELECT {columns} FROM job WHERE id = $1" },
                                             SQL_SCALAR(bool, "true") };

/* A statement that grows. */
struct statement {
    struct bytes text;
    struct sql_arg args[SQL_MAX_ARGS];
    int n;
};

/* The number of the new argument: 1 for $1. */
static int add(struct statement *q, struct sql_arg arg) {
    assert(q->n + 1 < SQL_MAX_ARGS);
    q->args[q->n++] = arg;
    return q->n;
}

static status_t add_text(struct statement *q, const char *column, const char *value, struct err *e) {
    if (!value || !*value)
        return ST_OK;
    return bytes_printf(&q->text, e, " AND j.%s = $%d", column, add(q, arg_text(value)));
}

static status_t add_time(struct statement *q, const char *comparison, int64_t time_us, struct err *e) {
    return time_us > 0 ? bytes_printf(&q->text, e, " AND j.create_time %s $%d", comparison, add(q, arg_time(time_us)))
                       : ST_OK;
}

static status_t add_label(struct statement *q, const struct store_job_label *label, struct err *e) {
    TRY(bytes_printf(&q->text, e, " AND EXISTS (SELECT 1 FROM job_label l WHERE l.job = j.id AND l.key = $%d",
                     add(q, arg_text(label->key))));
    if (label->value)
        TRY(bytes_printf(&q->text, e, " AND l.value = $%d", add(q, arg_text(label->value))));
    return bytes_append(&q->text, ")", 1, e);
}

static status_t add_filter(struct statement *q, const struct store_job_filter *f, struct err *e) {
    if (f->state)
        TRY(bytes_printf(&q->text, e, " AND j.state = $%d", add(q, arg_int2(f->state))));
    TRY(add_text(q, "queue", f->queue, e));
    TRY(add_text(q, "name", f->name, e));
    if (f->search && *f->search)
        TRY(bytes_printf(&q->text, e, " AND position(lower($%d) IN lower(j.name)) > 0", add(q, arg_text(f->search))));
    TRY(add_text(q, "user_name", f->user, e));
    TRY(add_text(q, "project", f->project, e));
    TRY(add_time(q, ">=", f->created_after_us, e));
    TRY(add_time(q, "<", f->created_before_us, e));
    assert(f->n_labels <= STORE_JOB_FILTER_LABELS);
    for (size_t i = 0; i < f->n_labels; i++)
        TRY(add_label(q, &f->labels[i], e));
    return ST_OK;
}

/* Begins behind the place of the last job of the page before. */
static status_t add_place(struct statement *q, const struct order *o, const struct store_job_place *after, char beyond,
                          struct err *e) {
    const int id = add(q, arg_int8(after->id));
    switch (o->key) {
    case KEY_NONE: return bytes_printf(&q->text, e, " AND j.id %c $%d", beyond, id);
    case KEY_TEXT:
        return bytes_printf(&q->text, e, " AND (j.%s, j.id) %c ((SELECT %s FROM job WHERE id = $%d), $%d)", o->column,
                            beyond, o->column, id, id);
    default:
        return bytes_printf(&q->text, e, " AND (j.%s, j.id) %c ($%d, $%d)", o->column, beyond,
                            add(q, o->key == KEY_TIME ? arg_time(after->number) : arg_int2((int)after->number)), id);
    }
}

static status_t add_order(struct statement *q, const struct store_job_filter *f, struct err *e) {
    const struct order *o = &ORDERS[f->order];
    const bool descending = o->descending != f->reverse;
    const char *direction = descending ? "DESC" : "ASC";
    if (o->key == KEY_TIME)
        TRY(bytes_printf(&q->text, e, " AND j.%s IS NOT NULL", o->column));
    if (f->after.id > 0)
        TRY(add_place(q, o, &f->after, descending ? '<' : '>', e));
    TRY(bytes_printf(&q->text, e, " ORDER BY "));
    if (o->column)
        TRY(bytes_printf(&q->text, e, "j.%s %s, ", o->column, direction));
    return bytes_printf(&q->text, e, "j.id %s LIMIT %d", direction, f->limit);
}

static status_t compose(struct statement *q, const struct store_job_filter *f, struct err *e) {
    TRY(bytes_printf(&q->text, e, "SELECT {columns} FROM job j LEFT JOIN job_spec s ON %s WHERE j.delete_time IS NULL",
                     f->with_spec ? "s.job = j.id" : "false"));
    TRY(add_filter(q, f, e));
    return add_order(q, f, e);
}

static status_t check_place(struct store *s, const struct store_job_filter *f, size_t n, struct err *e) {
    bool found = true, exists;
    if (f->after.id > 0 && ORDERS[f->order].key == KEY_TEXT && n < (size_t)f->limit)
        TRY(store_find(s, NULL, &JOB_EXISTS, ARGS(arg_int8(f->after.id)), &exists, &found, e));
    return found ? ST_OK
                 : err_set(e, ST_FAILED_PRECONDITION,
                           "page_token: jobs/%lld, at which the page begins, was deleted meanwhile; list again",
                           (long long)f->after.id);
}

status_t store_job_list(struct store *s, struct store_memory *m, const struct store_job_filter *filter,
                        struct store_job **ret, size_t *ret_n, struct err *e) {
    struct statement q = { .n = 0 };
    bytes_init(&q.text, TEXT_BYTES);
    status_t st = compose(&q, filter, e);
    const struct sql_query query = { { "job_list", q.text.data }, &JOB_ROW };
    if (st == ST_OK)
        st = STORE_READ(s, c, sql_rows_once(c, m, &query, q.args, ret, ret_n, e), e);
    bytes_done(&q.text);
    TRY(st);
    return check_place(s, filter, *ret_n, e);
}

struct store_job_place store_job_place(const struct store_job *job, enum store_job_order order) {
    struct store_job_place ret = { .id = job->id };
    if (order == STORE_JOBS_BY_START)
        ret.number = job->start_time_us;
    if (order == STORE_JOBS_BY_END)
        ret.number = job->end_time_us;
    if (order == STORE_JOBS_BY_STATE)
        ret.number = (int64_t)job->state;
    return ret;
}
