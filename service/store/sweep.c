#include "service/store/sweep.h"

#include "service/store/pool.h"

#include <string.h>

static const struct sql_column SWEEP_COLUMNS[] = {
    SQL_COLUMN(struct store_sweep, id, "id"),
    SQL_COLUMN(struct store_sweep, name, "name"),
    SQL_COLUMN(struct store_sweep, reason, "reason"),
    SQL_COLUMN(struct store_sweep, user, "user_name"),
    SQL_COLUMN(struct store_sweep, state, "state"),
    SQL_COLUMN(struct store_sweep, trials, "trials"),
    SQL_COLUMN(struct store_sweep, created, "created"),
    SQL_COLUMN(struct store_sweep, ended, "ended"),
    SQL_COLUMN(struct store_sweep, succeeded, "succeeded"),
    SQL_COLUMN(struct store_sweep, failed, "failed"),
    SQL_COLUMN(struct store_sweep, stopped, "stopped"),
    SQL_COLUMN(struct store_sweep, best, "best"),
    SQL_COLUMN(struct store_sweep, create_time_us, "create_time"),
    SQL_COLUMN(struct store_sweep, end_time_us, "end_time"),
};
static const struct sql_row SWEEP = SQL_ROW_OF(struct store_sweep, SWEEP_COLUMNS);
#define WITH_SPEC                                                                                                      \
    SQL_ROW_AFTER(&SWEEP, struct store_sweep, SQL_COLUMN_BYTES(struct store_sweep, spec, spec_bytes, "spec"))

static const struct sql_query SWEEP_CREATE = {
    { "sweep_create",
      "INSERT INTO sweep (name, state, spec, request_id, request_digest, maximize, trials, user_name) "
      "VALUES ($1, " SQL_SWEEP_RUNNING ", $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING RETURNING {columns}" },
    WITH_SPEC
};
static const struct sql_query SWEEP_REQUESTED = {
    { "sweep_requested", "SELECT {columns} FROM sweep WHERE request_id = $1" }, WITH_SPEC
};
static const struct sql_query SWEEP_SAME_REQUEST = { { "sweep_same_request",
                                                       "SELECT {columns} FROM sweep WHERE request_id = $1" },
                                                     SQL_SCALAR(bool, "request_digest = $2") };
static const struct sql_query SWEEP_GET = { { "sweep_get", "SELECT {columns} FROM sweep WHERE name = $1" }, WITH_SPEC };
static const struct sql_query SWEEP_LIST = {
    { "sweep_list", "SELECT {columns} FROM sweep WHERE id < $1 ORDER BY id DESC LIMIT $2" }, &SWEEP
};
static const struct sql_query SWEEP_OPEN_NEXT = { { "sweep_open_next",
                                                    "SELECT {columns} FROM sweep WHERE state < " SQL_SWEEP_SUCCEEDED
                                                    " AND id > $1 ORDER BY id LIMIT 1" },
                                                  WITH_SPEC };
static const struct sql_query SWEEP_BRIEFS = {
    { "sweep_briefs", "SELECT {columns} FROM sweep WHERE state < " SQL_SWEEP_SUCCEEDED " ORDER BY id LIMIT $1" },
    SQL_ROW(struct store_sweep_brief, SQL_COLUMN(struct store_sweep_brief, name, "name"),
            SQL_COLUMN(struct store_sweep_brief, trials, "trials"),
            SQL_COLUMN(struct store_sweep_brief, created, "created"),
            SQL_COLUMN(struct store_sweep_brief, ended, "ended"),
            SQL_COLUMN(struct store_sweep_brief, succeeded, "succeeded"),
            SQL_COLUMN(struct store_sweep_brief, failed, "failed"),
            SQL_COLUMN(struct store_sweep_brief, best_metric, "coalesce(best_metric, 'NaN')"),
            SQL_COLUMN(struct store_sweep_brief, open, "count(*) OVER ()"))
};
static const struct sql_query SWEEP_LOCK = { { "sweep_lock", "SELECT {columns} FROM sweep WHERE name = $1 FOR UPDATE" },
                                             &SWEEP };
static const struct sql SWEEP_CANCEL = { "sweep_cancel", "UPDATE sweep SET state = " SQL_SWEEP_CANCELLING
                                                         ", reason = $2 WHERE id = $1 AND state = " SQL_SWEEP_RUNNING };
static const struct sql SWEEP_END = { "sweep_end", "UPDATE sweep SET state = $3, reason = $4, end_time = now() "
                                                   "WHERE id = $1 AND state = $2 AND ended = created" };
static const struct sql SWEEP_DELETE = { "sweep_delete", "DELETE FROM sweep WHERE id = $1" };
static const struct sql SWEEP_DELETE_OLD = {
    "sweep_delete_old", "DELETE FROM sweep WHERE id IN (SELECT id FROM sweep WHERE end_time < now() - "
                        "make_interval(days => $1) ORDER BY end_time LIMIT $2)"
};

/* ---- create ---- */

static status_t find_request(struct connection *c, struct store_memory *m, const char *request_id,
                             const uint8_t *digest, struct store_sweep *ret, bool *ret_found, struct err *e) {
    bool same, found;
    TRY(sql_find(c, m, &SWEEP_REQUESTED, ARGS(arg_text(request_id)), ret, ret_found, e));
    if (!*ret_found)
        return ST_OK;
    TRY(sql_find(c, NULL, &SWEEP_SAME_REQUEST, ARGS(arg_text(request_id), arg_bytes(digest, 32)), &same, &found, e));
    return found && same ? ST_OK
                         : err_set(e, ST_ALREADY_EXISTS,
                                   "request_id: '%s' made sweeps/%s of another spec; another sweep needs another id",
                                   request_id, ret->name);
}

static status_t create_sweep(struct connection *c, struct store_memory *m, const struct store_sweep_new *new,
                             struct store_sweep *ret, struct err *e) {
    bool created, found;
    TRY(sql_find(c, m, &SWEEP_CREATE,
                 ARGS(arg_text(new->name), arg_bytes(new->spec, new->spec_bytes), arg_text(new->request_id),
                      arg_bytes(new->request_digest, 32), arg_bool(new->maximize), arg_int4(new->trials),
                      arg_text(new->user ? new->user : "")),
                 ret, &created, e));
    if (created)
        return ST_OK;
    TRY(find_request(c, m, new->request_id, new->request_digest, ret, &found, e));
    return found ? ST_OK
                 : err_set(e, ST_ALREADY_EXISTS,
                           "name: the sweep '%s' exists already: choose another name, or delete that sweep", new->name);
}

status_t store_sweep_create(struct store *s, struct store_memory *m, int64_t epoch, const struct store_sweep_new *new,
                            struct store_sweep *ret, struct err *e) {
    return STORE_WRITE(s, epoch, c, create_sweep(c, m, new, ret, e), e);
}

/* ---- read ---- */

status_t store_sweep_requested(struct store *s, struct store_memory *m, const char *request_id, const uint8_t *digest,
                               struct store_sweep *ret, struct err *e) {
    bool found = false;
    TRY(STORE_READ(s, c, find_request(c, m, request_id, digest, ret, &found, e), e));
    return found ? ST_OK : err_set(e, ST_NOT_FOUND, "no request '%s' was stored", request_id);
}

static status_t no_sweep(const char *name, struct err *e) {
    return err_set(e, ST_NOT_FOUND, "sweeps/%s does not exist", name);
}

status_t store_sweep_get(struct store *s, struct store_memory *m, const char *name, struct store_sweep *ret,
                         struct err *e) {
    bool found;
    TRY(store_find(s, m, &SWEEP_GET, ARGS(arg_text(name)), ret, &found, e));
    return found ? ST_OK : no_sweep(name, e);
}

status_t store_sweep_list(struct store *s, struct store_memory *m, int64_t before, int limit, struct store_sweep **ret,
                          size_t *ret_n, struct err *e) {
    return store_rows(s, m, &SWEEP_LIST, ARGS(arg_int8(before > 0 ? before : INT64_MAX), arg_int8(limit)), ret, ret_n,
                      e);
}

status_t store_sweep_open_next(struct store *s, struct store_memory *m, int64_t after, struct store_sweep *ret,
                               struct err *e) {
    bool found;
    *ret = (struct store_sweep){ 0 };
    return store_find(s, m, &SWEEP_OPEN_NEXT, ARGS(arg_int8(after)), ret, &found, e);
}

status_t store_sweep_briefs(struct store *s, struct store_memory *m, int limit, struct store_sweep_brief **ret,
                            size_t *ret_n, struct err *e) {
    return store_rows(s, m, &SWEEP_BRIEFS, ARGS(arg_int8(limit)), ret, ret_n, e);
}

/* ---- moves ---- */

static status_t lock_sweep(struct connection *c, struct store_memory *m, const char *name, struct store_sweep *ret,
                           struct err *e) {
    bool found;
    TRY(sql_find(c, m, &SWEEP_LOCK, ARGS(arg_text(name)), ret, &found, e));
    return found ? ST_OK : no_sweep(name, e);
}

static status_t cancel_sweep(struct connection *c, const char *name, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_sweep row;
    TRY(lock_sweep(c, m, name, &row, e));
    if (row.state == STORE_SWEEP_SUCCEEDED || row.state == STORE_SWEEP_FAILED)
        return err_set(e, ST_FAILED_PRECONDITION, "sweeps/%s is %s: it cannot be cancelled", name,
                       store_sweep_state_name(row.state));
    return sql_execute(c, &SWEEP_CANCEL, ARGS(arg_int8(row.id), arg_sentence("")), NULL, e);
}

status_t store_sweep_cancel(struct store *s, int64_t epoch, const char *name, struct err *e) {
    return STORE_WRITE(s, epoch, c, cancel_sweep(c, name, e), e);
}

status_t store_sweep_stop(struct store *s, int64_t epoch, int64_t id, const char *reason, struct err *e) {
    return store_execute(s, epoch, &SWEEP_CANCEL, ARGS(arg_int8(id), arg_sentence(reason)), NULL, e);
}

status_t store_sweep_end(struct store *s, int64_t epoch, int64_t id, enum store_sweep_state from,
                         enum store_sweep_state to, const char *reason, struct err *e) {
    int64_t n;
    TRY(store_execute(s, epoch, &SWEEP_END, ARGS(arg_int8(id), arg_int2(from), arg_int2(to), arg_sentence(reason)), &n,
                      e));
    return n == 1 ? ST_OK
                  : err_set(e, ST_FAILED_PRECONDITION, "sweep %lld is not %s, or a trial of it has not ended",
                            (long long)id, store_sweep_state_name(from));
}

static status_t delete_sweep(struct connection *c, const char *name, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_sweep row;
    TRY(lock_sweep(c, m, name, &row, e));
    if (row.state < STORE_SWEEP_SUCCEEDED)
        return err_set(e, ST_FAILED_PRECONDITION, "sweeps/%s is %s: only a sweep that has ended can be deleted", name,
                       store_sweep_state_name(row.state));
    return sql_execute(c, &SWEEP_DELETE, ARGS(arg_int8(row.id)), NULL, e);
}

status_t store_sweep_delete(struct store *s, int64_t epoch, const char *name, struct err *e) {
    return STORE_WRITE(s, epoch, c, delete_sweep(c, name, e), e);
}

status_t store_sweep_delete_old(struct store *s, int64_t epoch, int days, int limit, int64_t *ret_n, struct err *e) {
    return store_execute(s, epoch, &SWEEP_DELETE_OLD, ARGS(arg_int4(days), arg_int8(limit)), ret_n, e);
}
