#include "service/store/notification.h"

#include "service/store/pool.h"

static const struct sql TARGETS_DROP = { "notification_targets_drop",
                                         "DELETE FROM notification_target WHERE name <> ALL ($1)" };
static const struct sql TARGET_SET = {
    "notification_target_set", "INSERT INTO notification_target (name, states, kinds) VALUES ($1, $2, $3) "
                               "ON CONFLICT (name) DO UPDATE SET states = EXCLUDED.states, kinds = EXCLUDED.kinds"
};
static const struct sql_query NEXT = {
    { "notification_next", "SELECT {columns} FROM notification WHERE target = $1 ORDER BY id LIMIT 1" },
    SQL_ROW(struct store_notification, SQL_COLUMN(struct store_notification, id, "id"),
            SQL_COLUMN(struct store_notification, delivery, "delivery::text"),
            SQL_COLUMN(struct store_notification, time_us, "time"), SQL_COLUMN(struct store_notification, kind, "kind"),
            SQL_COLUMN(struct store_notification, job, "coalesce(job, 0)"),
            SQL_COLUMN(struct store_notification, job_name, "coalesce(job_name, '')"),
            SQL_COLUMN(struct store_notification, state, "coalesce(state, 0)::int2"),
            SQL_COLUMN(struct store_notification, attempt, "coalesce(attempt, 0)"),
            SQL_COLUMN(struct store_notification, executor, "coalesce(executor, '')"),
            SQL_COLUMN(struct store_notification, message, "message"),
            SQL_COLUMN(struct store_notification, tries, "tries"))
};
static const struct sql DONE = { "notification_done", "DELETE FROM notification WHERE id = $1" };
static const struct sql FAILED = { "notification_failed", "UPDATE notification SET tries = tries + 1 WHERE id = $1" };
static const struct sql TRIM = { "notification_trim",
                                 "DELETE FROM notification WHERE target = $1 AND id <= "
                                 "(SELECT id FROM notification WHERE target = $1 ORDER BY id DESC OFFSET $2 LIMIT 1)" };
static const struct sql_query WAITING = {
    { "notification_waiting", "SELECT {columns} FROM notification WHERE target = $1" }, SQL_SCALAR(int64_t, "count(*)")
};

void store_notifications_enable(struct store *s) { pool_set_session(s, "SET trainyard.notifies = 'on'"); }

static status_t set_targets(struct connection *c, const struct store_notification_target *targets, size_t n,
                            struct err *e) {
    const char *names[STORE_MAX_NOTIFICATION_TARGETS];
    for (size_t i = 0; i < n; i++)
        names[i] = targets[i].name;
    TRY(sql_execute(c, &TARGETS_DROP, ARGS(arg_texts(names, n)), NULL, e));
    for (size_t i = 0; i < n; i++)
        TRY(sql_execute(c, &TARGET_SET,
                        ARGS(arg_text(targets[i].name), arg_int4s(targets[i].states, targets[i].n_states),
                             arg_texts(targets[i].kinds, targets[i].n_kinds)),
                        NULL, e));
    return ST_OK;
}

status_t store_notification_targets(struct store *s, int64_t epoch, const struct store_notification_target *targets,
                                    size_t n, struct err *e) {
    if (n > STORE_MAX_NOTIFICATION_TARGETS)
        return err_set(e, ST_INVALID_ARGUMENT, "%zu targets of notifications: at most %d are allowed", n,
                       STORE_MAX_NOTIFICATION_TARGETS);
    return STORE_WRITE(s, epoch, c, set_targets(c, targets, n, e), e);
}

status_t store_notification_next(struct store *s, struct store_memory *m, const char *target,
                                 struct store_notification *ret, bool *ret_found, struct err *e) {
    return store_find(s, m, &NEXT, ARGS(arg_text(target)), ret, ret_found, e);
}

status_t store_notification_done(struct store *s, int64_t epoch, int64_t id, struct err *e) {
    return store_execute(s, epoch, &DONE, ARGS(arg_int8(id)), NULL, e);
}

status_t store_notification_failed(struct store *s, int64_t epoch, int64_t id, struct err *e) {
    return store_execute(s, epoch, &FAILED, ARGS(arg_int8(id)), NULL, e);
}

status_t store_notification_trim(struct store *s, int64_t epoch, const char *target, int keep, int64_t *ret_n,
                                 struct err *e) {
    return store_execute(s, epoch, &TRIM, ARGS(arg_text(target), arg_int8(keep)), ret_n, e);
}

status_t store_notification_waiting(struct store *s, const char *target, int64_t *ret, struct err *e) {
    bool found;
    *ret = 0;
    return store_find(s, NULL, &WAITING, ARGS(arg_text(target)), ret, &found, e);
}
