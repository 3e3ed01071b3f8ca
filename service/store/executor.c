/* Executors and their devices.
 *
 * An executor is one row, and a row of `device` for each of its devices. Every write is guarded by the incarnation, so
 * that a message of an older start of the agent changes nothing. A read joins both tables: the rows of one executor are
 * adjacent, and read_executors groups them. The slots in use are not stored: each read counts the open placements of
 * attempts that have not ended.
 *
 * States are only ATTACHED and LOST. Drained, detached, leaving and faulty are marks beside the state, each with the
 * time from which it holds. */
#include "service/store/executor.h"

#include "service/store/pool.h"
#include "service/store/token.h"

#include <string.h>

static const struct sql EXECUTOR_ATTACH = {
    "executor_attach",
    "INSERT INTO executor (id, incarnation, state, hostname, address, version, slots, reason, cores, attach_time, "
    "heartbeat_time) "
    "VALUES ($1, $2, " SQL_EXECUTOR_ATTACHED ", $3, $4, $5, $6, $7, $8, now(), now()) "
    "ON CONFLICT (id) DO UPDATE SET incarnation = $2, state = " SQL_EXECUTOR_ATTACHED ", "
    "hostname = $3, address = $4, version = $5, slots = $6, reason = $7, cores = $8, attach_time = now(), "
    "heartbeat_time = now(), lost_time = NULL, detach_time = NULL, leaving = false "
    "WHERE executor.incarnation <= $2 RETURNING 1"
};
static const struct sql EXECUTOR_LOCK = { "executor_lock", "SELECT 1 FROM executor WHERE id = $1 AND incarnation <= $2 "
                                                           "FOR NO KEY UPDATE" };
static const struct sql EXECUTOR_EXISTS = { "executor_exists", "SELECT 1 FROM executor WHERE id = $1" };
static const struct sql DEVICE_CLEAR = { "device_clear", "DELETE FROM device WHERE executor = $1" };
static const struct sql DEVICE_ADD = {
    "device_add",
    "INSERT INTO device (executor, position, kind, index, model, memory_bytes, uuid, pci_bus_id, quarantined, reason, "
    "links) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
};
/* Before the rows of the devices are replaced: a device that was healthy, or unknown, until now. The lock is that of
 * migrations/0030. */
static const struct sql QUARANTINE_NOTIFIES = {
    "quarantine_notifies",
    "INSERT INTO notification (target, time, kind, executor, message) "
    "SELECT t.name, now(), 'device_quarantined', x.id, 'host ' || x.hostname || ', device ' || $2 || ' (' || $3 || "
    "'): ' || $4 FROM notification_target t JOIN executor x ON x.id = $1 WHERE 'device_quarantined' = ANY (t.kinds) "
    "AND NOT EXISTS (SELECT 1 FROM device d WHERE d.executor = $1 AND d.index = $2 AND d.quarantined) "
    "FOR KEY SHARE OF t"
};
static const struct sql EXECUTOR_LOST = { "executor_lost",
                                          "UPDATE executor SET state = " SQL_EXECUTOR_LOST
                                          ", reason = $2, lost_time = now(), detach_time = NULL, leaving = false WHERE "
                                          "id = $1 AND state = " SQL_EXECUTOR_ATTACHED };
static const struct sql EXECUTOR_DETACHED = {
    "executor_detached", "UPDATE executor SET detach_time = coalesce(detach_time, now()), leaving = leaving OR $3 "
                         "FROM unnest($1, $2) AS d(id, incarnation) WHERE executor.id = d.id "
                         "AND executor.incarnation = d.incarnation AND state = " SQL_EXECUTOR_ATTACHED
};
static const struct sql EXECUTOR_HEARTBEATS = {
    "executor_heartbeats", "UPDATE executor SET heartbeat_time = h.time FROM unnest($1, $2) AS h(id, time) "
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

static const struct sql EXECUTOR_FORGET = {
    "executor_forget", "DELETE FROM executor WHERE id IN (SELECT x.id FROM executor x "
                       "WHERE x.state = " SQL_EXECUTOR_LOST " AND x.drain_time IS NULL "
                       "AND x.lost_time < now() - $1 * interval '1 day' "
                       "AND NOT EXISTS (SELECT 1 FROM placement p WHERE p.executor = x.id AND p.end_time IS NULL) "
                       "ORDER BY x.lost_time LIMIT $2) AND state = " SQL_EXECUTOR_LOST " AND drain_time IS NULL"
};

/* One row for each device; an executor without devices has one row whose device is NULLs. */
struct executor_device {
    struct store_executor executor;
    struct store_device device; /* kind "": none */
};
static const struct sql_column EXECUTOR_DEVICE_COLUMNS[] = {
    SQL_COLUMN(struct executor_device, executor.id, "x.id"),
    SQL_COLUMN(struct executor_device, executor.incarnation, "x.incarnation"),
    SQL_COLUMN(struct executor_device, executor.state, "x.state"),
    SQL_COLUMN(struct executor_device, executor.hostname, "x.hostname"),
    SQL_COLUMN(struct executor_device, executor.address, "x.address"),
    SQL_COLUMN(struct executor_device, executor.version, "x.version"),
    SQL_COLUMN(struct executor_device, executor.slots, "x.slots"),
    SQL_COLUMN(struct executor_device, executor.cores, "x.cores"),
    SQL_COLUMN(struct executor_device, executor.slots_used, "coalesce(u.n, 0)::integer"),
    SQL_COLUMN(struct executor_device, executor.reason, "x.reason"),
    SQL_COLUMN(struct executor_device, executor.attach_time_us, "x.attach_time"),
    SQL_COLUMN(struct executor_device, executor.heartbeat_time_us, "x.heartbeat_time"),
    SQL_COLUMN(struct executor_device, executor.drain_time_us, "x.drain_time"),
    SQL_COLUMN(struct executor_device, executor.drain_reason, "x.drain_reason"),
    SQL_COLUMN(struct executor_device, executor.drain_requester, "x.drain_requester"),
    SQL_COLUMN(struct executor_device, executor.drain_now, "x.drain_now"),
    SQL_COLUMN(struct executor_device, executor.detach_time_us, "x.detach_time"),
    SQL_COLUMN(struct executor_device, executor.leaving, "x.leaving"),
    SQL_COLUMN(struct executor_device, executor.fault_time_us, "x.fault_time"),
    SQL_COLUMN(struct executor_device, executor.fault_job, "x.fault_job"),
    SQL_COLUMN(struct executor_device, executor.fault_jobs, "x.fault_jobs"),
    SQL_COLUMN(struct executor_device, executor.fault_reason, "x.fault_reason"),
    SQL_COLUMN(struct executor_device, device.kind, "d.kind"),
    SQL_COLUMN(struct executor_device, device.index, "d.index"),
    SQL_COLUMN(struct executor_device, device.model, "d.model"),
    SQL_COLUMN(struct executor_device, device.memory_bytes, "d.memory_bytes"),
    SQL_COLUMN(struct executor_device, device.uuid, "d.uuid"),
    SQL_COLUMN(struct executor_device, device.pci_bus_id, "d.pci_bus_id"),
    SQL_COLUMN(struct executor_device, device.quarantined, "d.quarantined"),
    SQL_COLUMN(struct executor_device, device.reason, "d.reason"),
    SQL_COLUMN(struct executor_device, device.links, "d.links"),
};
static const struct sql_row EXECUTOR_DEVICE = SQL_ROW_OF(struct executor_device, EXECUTOR_DEVICE_COLUMNS);

/* The running ranks of each executor are found by the index of open placements, so that a page costs what its executors
 * run, however many others there are. */
#define EXECUTORS_OF(ids, rows, order)                                                                                 \
    "SELECT {columns} FROM (SELECT * FROM executor WHERE " ids " " rows ") x "                                         \
    "LEFT JOIN LATERAL (SELECT count(*) AS n FROM placement p JOIN attempt a ON a.job = p.job AND a.number = "         \
    "p.attempt WHERE p.executor = x.id AND p.end_time IS NULL AND a.state < " SQL_ATTEMPT_ENDED ") u ON true "         \
    "LEFT JOIN device d ON d.executor = x.id ORDER BY " order "x.id, d.position"
#define IDS_AFTER "id > $1"
#define ID_IS     "id = $1"
#define IDS_AMONG "id = ANY ($1)"
#define IDS_BUT   "id <> ALL ($1)"
static const struct sql_query EXECUTOR_LIST = {
    { "executor_list", EXECUTORS_OF(IDS_AFTER, "ORDER BY id LIMIT $2", "") }, &EXECUTOR_DEVICE
};
static const struct sql_query EXECUTOR_GET = { { "executor_get", EXECUTORS_OF(ID_IS, "", "") }, &EXECUTOR_DEVICE };
static const struct sql_query EXECUTOR_SOME = { { "executor_some", EXECUTORS_OF(IDS_AMONG, "", "") },
                                                &EXECUTOR_DEVICE };
static const struct sql_query EXECUTOR_LOST_LIST = {
    { "executor_lost_list",
      EXECUTORS_OF(IDS_BUT, "AND state = " SQL_EXECUTOR_LOST " ORDER BY lost_time DESC, id LIMIT $2",
                   "x.lost_time DESC, ") },
    &EXECUTOR_DEVICE
};
static const struct sql_query EXECUTOR_LIVE = {
    { "executor_live", "SELECT {columns} FROM executor WHERE (state = " SQL_EXECUTOR_ATTACHED
                       " OR drain_time IS NOT NULL) AND id > $1 ORDER BY id LIMIT $2" },
    SQL_ROW(struct store_executor, SQL_COLUMN(struct store_executor, id, "id"),
            SQL_COLUMN(struct store_executor, state, "state"),
            SQL_COLUMN(struct store_executor, drain_time_us, "drain_time"),
            SQL_COLUMN(struct store_executor, drain_reason, "drain_reason"),
            SQL_COLUMN(struct store_executor, drain_now, "drain_now"))
};
static const struct sql_query EXECUTOR_COUNTS = {
    { "executor_counts", "SELECT {columns} FROM executor GROUP BY state" },
    SQL_ROW(struct state_count, SQL_COLUMN(struct state_count, state, "state"),
            SQL_COLUMN(struct state_count, n, "count(*)"))
};

/* ---- attach, detach, lost, heartbeats ---- */

static status_t write_devices(struct connection *c, const struct store_executor *x, struct err *e) {
    TRY(sql_execute(c, &DEVICE_CLEAR, ARGS(arg_text(x->id)), NULL, e));
    for (size_t i = 0; i < x->n_devices; i++) {
        const struct store_device *d = &x->devices[i];
        TRY(sql_execute(c, &DEVICE_ADD,
                        ARGS(arg_text(x->id), arg_int4((int)i), arg_text(d->kind), arg_int4(d->index),
                             arg_text(d->model), arg_int8(d->memory_bytes), arg_text(d->uuid), arg_text(d->pci_bus_id),
                             arg_bool(d->quarantined), arg_sentence(d->reason), arg_text(d->links)),
                        NULL, e));
    }
    return ST_OK;
}

static status_t never_attached(const char *id, struct err *e) {
    return err_set(e, ST_NOT_FOUND, "executors/%s does not exist: it has never attached", id);
}

static status_t refuse_older(const struct store_executor *x, struct err *e) {
    return err_set(e, ST_FAILED_PRECONDITION, "executors/%s: a newer start than %lld of it has attached", x->id,
                   (long long)x->incarnation);
}

static status_t replace_devices(struct connection *c, const struct store_executor *x, struct err *e) {
    int64_t n;
    TRY(sql_execute(c, &EXECUTOR_LOCK, ARGS(arg_text(x->id), arg_int8(x->incarnation)), &n, e));
    for (size_t i = 0; n && i < x->n_devices; i++)
        if (x->devices[i].quarantined)
            TRY(sql_execute(c, &QUARANTINE_NOTIFIES,
                            ARGS(arg_text(x->id), arg_int4(x->devices[i].index), arg_text(x->devices[i].uuid),
                                 arg_sentence(x->devices[i].reason)),
                            NULL, e));
    if (n)
        return write_devices(c, x, e);
    TRY(sql_execute(c, &EXECUTOR_EXISTS, ARGS(arg_text(x->id)), &n, e));
    return n ? refuse_older(x, e) : never_attached(x->id, e);
}

static status_t attach(struct connection *c, const struct store_executor *executors, size_t n, struct err *e) {
    for (size_t i = 0; i < n; i++) {
        const struct store_executor *x = &executors[i];
        int64_t attached;
        if (x->token && *x->token)
            TRY(token_bind_executor(c, x->token, x->id, e));
        TRY(sql_execute(c, &EXECUTOR_ATTACH,
                        ARGS(arg_text(x->id), arg_int8(x->incarnation), arg_text(x->hostname), arg_text(x->address),
                             arg_text(x->version), arg_int4(x->slots), arg_sentence(x->reason), arg_int4(x->cores)),
                        &attached, e));
        if (!attached)
            return refuse_older(x, e);
        TRY(write_devices(c, x, e));
    }
    return ST_OK;
}

status_t store_executor_attach(struct store *s, int64_t epoch, const struct store_executor *executors, size_t n,
                               struct err *e) {
    return STORE_WRITE(s, epoch, c, attach(c, executors, n, e), e);
}

status_t store_executor_devices(struct store *s, int64_t epoch, const char *id, int64_t incarnation,
                                const struct store_device *devices, size_t n, struct err *e) {
    const struct store_executor x = { .id = id, .incarnation = incarnation, .devices = devices, .n_devices = n };
    return STORE_WRITE(s, epoch, c, replace_devices(c, &x, e), e);
}

status_t store_executor_lost(struct store *s, int64_t epoch, const char *id, const char *reason, struct err *e) {
    return store_execute(s, epoch, &EXECUTOR_LOST, ARGS(arg_text(id), arg_sentence(reason)), NULL, e);
}

status_t store_executor_detached(struct store *s, int64_t epoch, const char *const *ids, const int64_t *incarnations,
                                 size_t n, bool leaving, struct err *e) {
    return store_execute(s, epoch, &EXECUTOR_DETACHED,
                         ARGS(arg_texts(ids, n), arg_int8s(incarnations, n), arg_bool(leaving)), NULL, e);
}

status_t store_executor_heartbeats(struct store *s, int64_t epoch, const char *const *ids, const int64_t *times_us,
                                   size_t n, struct err *e) {
    return store_execute(s, epoch, &EXECUTOR_HEARTBEATS, ARGS(arg_texts(ids, n), arg_times(times_us, n)), NULL, e);
}

/* ---- drain ---- */

status_t store_executor_drain(struct store *s, int64_t epoch, const char *id, const char *reason, const char *requester,
                              bool now, struct err *e) {
    int64_t n;
    TRY(store_execute(s, epoch, &EXECUTOR_DRAIN,
                      ARGS(arg_text(id), arg_sentence(reason), arg_sentence(requester), arg_bool(now)), &n, e));
    return n ? ST_OK : never_attached(id, e);
}

status_t store_executor_undrain(struct store *s, int64_t epoch, const char *id, struct err *e) {
    int64_t n;
    TRY(store_execute(s, epoch, &EXECUTOR_UNDRAIN, ARGS(arg_text(id)), &n, e));
    return n ? ST_OK : never_attached(id, e);
}

/* ---- forget ---- */

status_t store_executor_forget(struct store *s, int64_t epoch, int days, int limit, int64_t *ret_n, struct err *e) {
    return store_execute(s, epoch, &EXECUTOR_FORGET, ARGS(arg_int4(days), arg_int8(limit)), ret_n, e);
}

/* ---- read ---- */

/* Rows of one executor are adjacent: each becomes one device of it. */
static status_t read_executors(struct store *s, struct store_memory *m, const struct sql_query *q,
                               const struct sql_arg *args, struct store_executor **ret, size_t *ret_n, struct err *e) {
    struct executor_device *rows;
    struct store_executor *executors, *x = NULL;
    struct store_device *devices;
    size_t n;
    TRY(store_rows(s, m, q, args, &rows, &n, e));
    executors = store_memory_get(m, n, sizeof *executors);
    devices = store_memory_get(m, n, sizeof *devices);
    *ret_n = 0;
    for (size_t i = 0; i < n; i++) {
        if (!x || strcmp(rows[i].executor.id, x->id) != 0) {
            x = &executors[(*ret_n)++];
            *x = rows[i].executor;
            x->devices = &devices[i];
        }
        if (*rows[i].device.kind)
            devices[i] = rows[i].device;
        x->n_devices += *rows[i].device.kind != 0;
    }
    *ret = executors;
    return ST_OK;
}

status_t store_executor_list(struct store *s, struct store_memory *m, const char *after, int limit,
                             struct store_executor **ret, size_t *ret_n, struct err *e) {
    return read_executors(s, m, &EXECUTOR_LIST, ARGS(arg_text(after ? after : ""), arg_int8(limit)), ret, ret_n, e);
}

status_t store_executor_get(struct store *s, struct store_memory *m, const char *id, struct store_executor *ret,
                            struct err *e) {
    struct store_executor *found;
    size_t n;
    TRY(read_executors(s, m, &EXECUTOR_GET, ARGS(arg_text(id)), &found, &n, e));
    if (n == 0)
        return never_attached(id, e);
    *ret = found[0];
    return ST_OK;
}

status_t store_executor_some(struct store *s, struct store_memory *m, const char *const *ids, size_t n,
                             struct store_executor **ret, size_t *ret_n, struct err *e) {
    return read_executors(s, m, &EXECUTOR_SOME, ARGS(arg_texts(ids, n)), ret, ret_n, e);
}

status_t store_executor_lost_list(struct store *s, struct store_memory *m, const char *const *but, size_t n, int limit,
                                  struct store_executor **ret, size_t *ret_n, struct err *e) {
    return read_executors(s, m, &EXECUTOR_LOST_LIST, ARGS(arg_texts(but, n), arg_int8(limit)), ret, ret_n, e);
}

status_t store_executor_live(struct store *s, struct store_memory *m, const char *after, int limit,
                             struct store_executor **ret, size_t *ret_n, struct err *e) {
    return store_rows_within(s, STORE_RECOVERY_TIMEOUT_MS, m, &EXECUTOR_LIVE,
                             ARGS(arg_text(after ? after : ""), arg_int8(limit)), ret, ret_n, e);
}

status_t store_executor_counts(struct store *s, int64_t counts[3], struct err *e) {
    return store_state_counts(s, &EXECUTOR_COUNTS, counts, 3, e);
}
