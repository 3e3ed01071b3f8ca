#include "service/store/executor.h"

#include "service/store/pool.h"
#include "service/store/text.h"

#include <stdlib.h>
#include <string.h>

static const struct sql EXECUTOR_ATTACH = {
    "executor_attach",
    "INSERT INTO executor (id, incarnation, state, hostname, address, version, slots, reason, attach_time, "
    "heartbeat_time) "
    "VALUES ($1, $2, " SQL_EXECUTOR_ATTACHED ", $3, $4, $5, $6, $7, now(), now()) "
    "ON CONFLICT (id) DO UPDATE SET incarnation = $2, state = " SQL_EXECUTOR_ATTACHED ", "
    "hostname = $3, address = $4, version = $5, slots = $6, reason = $7, attach_time = now(), heartbeat_time = now(), "
    "lost_time = NULL WHERE executor.incarnation <= $2 RETURNING 1"
};
static const struct sql EXECUTOR_HOLD = { "executor_hold", "SELECT 1 FROM executor WHERE id = $1 AND incarnation <= $2 "
                                                           "FOR NO KEY UPDATE" };
static const struct sql EXECUTOR_EXISTS = { "executor_exists", "SELECT 1 FROM executor WHERE id = $1" };
static const struct sql DEVICE_CLEAR = { "device_clear", "DELETE FROM device WHERE executor = $1" };
static const struct sql DEVICE_ADD = {
    "device_add",
    "INSERT INTO device (executor, position, kind, index, model, memory_bytes, uuid, pci_bus_id, quarantined, reason, "
    "links) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
};
static const struct sql EXECUTOR_LOST = {
    "executor_lost", "UPDATE executor SET state = " SQL_EXECUTOR_LOST
                     ", reason = $2, lost_time = now() WHERE id = $1 AND state = " SQL_EXECUTOR_ATTACHED
};
static const struct sql EXECUTOR_HEARD = {
    "executor_heard", "UPDATE executor SET heartbeat_time = h.time FROM unnest($1, $2) AS h(id, time) "
                      "WHERE executor.id = h.id AND heartbeat_time < h.time"
};
static const struct sql EXECUTOR_DRAIN = {
    "executor_drain", "UPDATE executor SET drain_time = coalesce(drain_time, now()), drain_now = drain_now OR $4, "
                      "drain_reason = CASE WHEN drain_time IS NULL OR $2 <> '' THEN $2 ELSE drain_reason END, "
                      "drain_requester = CASE WHEN drain_time IS NULL OR $2 <> '' THEN $3 ELSE drain_requester END "
                      "WHERE id = $1 RETURNING 1"
};
static const struct sql EXECUTOR_UNDRAIN = { "executor_undrain",
                                             "UPDATE executor SET drain_time = NULL, drain_now = false, "
                                             "drain_reason = '', drain_requester = '' WHERE id = $1 RETURNING 1" };

#define EXECUTORS_OF(rows, order)                                                                                      \
    "SELECT x.id, x.incarnation, x.state, x.hostname, x.address, x.version, x.slots, x.reason, x.attach_time, "        \
    "x.heartbeat_time, (SELECT count(*) FROM attempt a JOIN placement p ON p.job = a.job AND p.attempt = a.number "    \
    "WHERE a.state < " SQL_ATTEMPT_ENDED " AND p.executor = x.id AND p.end_time IS NULL), "                            \
    "x.drain_time, x.drain_reason, x.drain_requester, x.drain_now, "                                                   \
    "d.kind, d.index, d.model, d.memory_bytes, "                                                                       \
    "d.uuid, d.pci_bus_id, d.quarantined, d.reason, d.links "                                                          \
    "FROM (SELECT * FROM executor WHERE " rows ") x LEFT JOIN device d ON d.executor = x.id "                          \
    "ORDER BY " order "x.id, d.position"
static const struct sql EXECUTOR_LIST = { "executor_list", EXECUTORS_OF("id > $1 ORDER BY id LIMIT $2", "") };
static const struct sql EXECUTOR_GET = { "executor_get", EXECUTORS_OF("id = $1 LIMIT $2", "") };
static const struct sql EXECUTOR_SOME = { "executor_some", EXECUTORS_OF("id = ANY ($1) LIMIT $2", "") };
static const struct sql EXECUTOR_LOST_LIST = { "executor_lost_list",
                                               EXECUTORS_OF("state = " SQL_EXECUTOR_LOST
                                                            " AND id <> ALL ($1) ORDER BY lost_time DESC, id LIMIT $2",
                                                            "x.lost_time DESC, ") };
static const struct sql EXECUTOR_COUNTS = { "executor_counts", "SELECT state, count(*) FROM executor GROUP BY state" };

/* ---- attach, lost, heard ---- */

static status_t add_device(struct connection *c, const char *executor, size_t position, const struct store_device *d,
                           struct err *e) {
    struct sql_args a = { 0 };
    sql_add_text(&a, executor);
    sql_add_int4(&a, (int)position);
    sql_add_text(&a, d->kind);
    sql_add_int4(&a, d->index);
    sql_add_text(&a, d->model);
    sql_add_int8(&a, d->memory_bytes);
    sql_add_text(&a, d->uuid);
    sql_add_text(&a, d->pci_bus_id);
    sql_add_bool(&a, d->quarantined);
    struct sentence reason;
    sql_add_text(&a, sentence_of(d->reason, &reason));
    sql_add_text(&a, d->links);
    return sql_run(c, &DEVICE_ADD, &a, NULL, e);
}

static status_t devices_write(struct connection *c, const struct store_executor *x, struct err *e) {
    struct sql_args id = { 0 };
    sql_add_text(&id, x->id);
    TRY(sql_run(c, &DEVICE_CLEAR, &id, NULL, e));
    for (size_t i = 0; i < x->n_devices; i++)
        TRY(add_device(c, x->id, i, &x->devices[i], e));
    return ST_OK;
}

static status_t never_attached(const char *id, struct err *e) {
    return err_set(e, ST_NOT_FOUND, "executors/%s does not exist: it has never attached", id);
}

static status_t refuse_older(const struct store_executor *x, struct err *e) {
    return err_set(e, ST_FAILED_PRECONDITION, "executors/%s: a newer start than %lld of it has attached", x->id,
                   (long long)x->incarnation);
}

static status_t devices_body(struct connection *c, void *ctx, struct err *e) {
    const struct store_executor *x = ctx;
    struct sql_args a = { 0 };
    sql_add_text(&a, x->id);
    sql_add_int8(&a, x->incarnation);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &EXECUTOR_HOLD, &a, &r, e));
    if (PQntuples(r))
        return devices_write(c, x, e);
    struct sql_args id = { 0 };
    sql_add_text(&id, x->id);
    CLEANUP(sql_clearp) PGresult *row = NULL;
    TRY(sql_run(c, &EXECUTOR_EXISTS, &id, &row, e));
    if (PQntuples(row) == 0)
        return never_attached(x->id, e);
    return refuse_older(x, e);
}

static status_t attach_one(struct connection *c, const struct store_executor *x, struct err *e) {
    struct sql_args a = { 0 };
    struct sentence reason;
    sql_add_text(&a, x->id);
    sql_add_int8(&a, x->incarnation);
    sql_add_text(&a, x->hostname);
    sql_add_text(&a, x->address);
    sql_add_text(&a, x->version);
    sql_add_int4(&a, x->slots);
    sql_add_text(&a, sentence_of(x->reason, &reason));
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &EXECUTOR_ATTACH, &a, &r, e));
    return PQntuples(r) ? devices_write(c, x, e) : refuse_older(x, e);
}

struct attaching {
    const struct store_executor *executors;
    size_t n;
};

static status_t attach_body(struct connection *c, void *ctx, struct err *e) {
    const struct attaching *x = ctx;
    for (size_t i = 0; i < x->n; i++)
        TRY(attach_one(c, &x->executors[i], e));
    return ST_OK;
}

status_t store_executor_attach(struct store *s, int64_t epoch, const struct store_executor *executors, size_t n,
                               struct err *e) {
    return store_transact(s, epoch, attach_body, &(struct attaching){ executors, n }, e);
}

status_t store_executor_devices(struct store *s, int64_t epoch, const char *id, int64_t incarnation,
                                const struct store_device *devices, size_t n, struct err *e) {
    struct store_executor x = { .id = id, .incarnation = incarnation, .devices = devices, .n_devices = n };
    return store_transact(s, epoch, devices_body, &x, e);
}

struct lost {
    const char *id, *reason;
};

static status_t lost_body(struct connection *c, void *ctx, struct err *e) {
    const struct lost *x = ctx;
    struct sql_args a = { 0 };
    struct sentence reason;
    sql_add_text(&a, x->id);
    sql_add_text(&a, sentence_of(x->reason, &reason));
    return sql_run(c, &EXECUTOR_LOST, &a, NULL, e);
}

status_t store_executor_lost(struct store *s, int64_t epoch, const char *id, const char *reason, struct err *e) {
    return store_transact(s, epoch, lost_body, &(struct lost){ id, reason }, e);
}

struct heard {
    const char *const *ids;
    const int64_t *times_us;
    size_t n;
};

static status_t heard_body(struct connection *c, void *ctx, struct err *e) {
    const struct heard *x = ctx;
    struct sql_args a = { 0 };
    CLEANUP(freep) char *ids = NULL;
    TRY(sql_add_text_array(&a, x->ids, x->n, &ids, e));
    CLEANUP(freep) char *times = malloc(sql_array_bytes_8(x->n));
    if (!times)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for %zu heartbeats", x->n);
    sql_add_time_array(&a, times, x->times_us, x->n);
    return sql_run(c, &EXECUTOR_HEARD, &a, NULL, e);
}

status_t store_executor_heard(struct store *s, int64_t epoch, const char *const *ids, const int64_t *times_us, size_t n,
                              struct err *e) {
    return store_transact(s, epoch, heard_body, &(struct heard){ ids, times_us, n }, e);
}

/* ---- drain ---- */

struct drain {
    const char *id, *reason, *requester;
    bool now;
};

static status_t drain_body(struct connection *c, void *ctx, struct err *e) {
    const struct drain *x = ctx;
    struct sql_args a = { 0 };
    struct sentence reason, requester;
    sql_add_text(&a, x->id);
    sql_add_text(&a, sentence_of(x->reason, &reason));
    sql_add_text(&a, sentence_of(x->requester, &requester));
    sql_add_bool(&a, x->now);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &EXECUTOR_DRAIN, &a, &r, e));
    return PQntuples(r) ? ST_OK : never_attached(x->id, e);
}

status_t store_executor_drain(struct store *s, int64_t epoch, const char *id, const char *reason, const char *requester,
                              bool now, struct err *e) {
    return store_transact(s, epoch, drain_body, &(struct drain){ id, reason, requester, now }, e);
}

static status_t undrain_body(struct connection *c, void *ctx, struct err *e) {
    const char *id = ctx;
    struct sql_args a = { 0 };
    sql_add_text(&a, id);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &EXECUTOR_UNDRAIN, &a, &r, e));
    return PQntuples(r) ? ST_OK : never_attached(id, e);
}

status_t store_executor_undrain(struct store *s, int64_t epoch, const char *id, struct err *e) {
    return store_transact(s, epoch, undrain_body, (void *)(uintptr_t)id, e);
}

/* ---- read ---- */

struct list {
    struct store_memory *m;
    const struct sql *statement;
    const char *id;         /* that, or those after it */
    const char *const *ids; /* else: these, or all but these */
    size_t n_ids;
    int limit;
    struct store_executor *executors;
    size_t n;
};

static void read_executor(const PGresult *r, int row, struct store_executor *ret) {
    *ret = (struct store_executor){
        .id = sql_text(r, row, 0),
        .incarnation = sql_int8(r, row, 1),
        .state = (enum store_executor_state)sql_int2(r, row, 2),
        .hostname = sql_text(r, row, 3),
        .address = sql_text(r, row, 4),
        .version = sql_text(r, row, 5),
        .slots = sql_int4(r, row, 6),
        .reason = sql_text(r, row, 7),
        .attach_time_us = sql_time(r, row, 8),
        .heartbeat_time_us = sql_time(r, row, 9),
        .slots_used = (int)sql_int8(r, row, 10),
        .drain_time_us = sql_is_null(r, row, 11) ? 0 : sql_time(r, row, 11),
        .drain_reason = sql_text(r, row, 12),
        .drain_requester = sql_text(r, row, 13),
        .drain_now = sql_bool(r, row, 14),
    };
}

/* One row a device; an executor without devices has one row of NULLs. */
static status_t list_body(struct connection *c, void *ctx, struct err *e) {
    struct list *x = ctx;
    struct sql_args a = { 0 };
    CLEANUP(freep) char *ids = NULL;
    if (x->ids)
        TRY(sql_add_text_array(&a, x->ids, x->n_ids, &ids, e));
    else
        sql_add_text(&a, x->id);
    sql_add_int8(&a, x->limit);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, x->statement, &a, &r, e));
    int rows = PQntuples(r);
    struct store_device *devices;
    TRY(store_memory_get(x->m, (size_t)rows, sizeof *x->executors, &x->executors, e));
    TRY(store_memory_get(x->m, (size_t)rows, sizeof *devices, &devices, e));
    x->n = 0;
    for (int row = 0; row < rows; row++) {
        if (row == 0 || strcmp(sql_text(r, row, 0), x->executors[x->n - 1].id) != 0) {
            read_executor(r, row, &x->executors[x->n++]);
            x->executors[x->n - 1].devices = &devices[row];
        }
        if (sql_is_null(r, row, 15))
            continue;
        devices[row] = (struct store_device){ .kind = sql_text(r, row, 15),
                                              .index = sql_int4(r, row, 16),
                                              .model = sql_text(r, row, 17),
                                              .memory_bytes = sql_int8(r, row, 18),
                                              .uuid = sql_text(r, row, 19),
                                              .pci_bus_id = sql_text(r, row, 20),
                                              .quarantined = sql_bool(r, row, 21),
                                              .reason = sql_text(r, row, 22),
                                              .links = sql_text(r, row, 23) };
        x->executors[x->n - 1].n_devices++;
    }
    return store_memory_keep(x->m, &r, e);
}

static status_t list(struct store *s, struct list *x, struct store_executor **ret, size_t *ret_n, struct err *e) {
    TRY(store_query(s, list_body, x, e));
    *ret = x->executors;
    *ret_n = x->n;
    return ST_OK;
}

status_t store_executor_list(struct store *s, struct store_memory *m, const char *after, int limit,
                             struct store_executor **ret, size_t *ret_n, struct err *e) {
    struct list x = { .m = m, .statement = &EXECUTOR_LIST, .id = after ? after : "", .limit = limit };
    return list(s, &x, ret, ret_n, e);
}

status_t store_executor_get(struct store *s, struct store_memory *m, const char *id, struct store_executor *ret,
                            struct err *e) {
    struct list x = { .m = m, .statement = &EXECUTOR_GET, .id = id, .limit = 1 };
    TRY(store_query(s, list_body, &x, e));
    if (x.n == 0)
        return never_attached(id, e);
    *ret = x.executors[0];
    return ST_OK;
}

status_t store_executor_some(struct store *s, struct store_memory *m, const char *const *ids, size_t n,
                             struct store_executor **ret, size_t *ret_n, struct err *e) {
    struct list x = { .m = m, .statement = &EXECUTOR_SOME, .ids = ids, .n_ids = n, .limit = (int)n };
    return list(s, &x, ret, ret_n, e);
}

status_t store_executor_lost_list(struct store *s, struct store_memory *m, const char *const *but, size_t n, int limit,
                                  struct store_executor **ret, size_t *ret_n, struct err *e) {
    struct list x = { .m = m, .statement = &EXECUTOR_LOST_LIST, .ids = but, .n_ids = n, .limit = limit };
    return list(s, &x, ret, ret_n, e);
}

static status_t counts_body(struct connection *c, void *ctx, struct err *e) {
    int64_t *counts = ctx;
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &EXECUTOR_COUNTS, NULL, &r, e));
    counts[0] = counts[1] = counts[2] = 0;
    for (int i = 0; i < PQntuples(r); i++)
        counts[sql_int2(r, i, 0)] = sql_int8(r, i, 1);
    return ST_OK;
}

status_t store_executor_counts(struct store *s, int64_t counts[3], struct err *e) {
    return store_query(s, counts_body, counts, e);
}
