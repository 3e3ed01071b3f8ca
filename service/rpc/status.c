/* StatusService: one answer about the whole service. It reads counts of jobs by an index, all executors, and the
 * queues, and takes the slots from the scheduler's last tick. */
#include "base/clock.h"
#include "base/limits.h"
#include "service/rpc/attention.h"
#include "service/rpc/convert_job.h"
#include "service/rpc/convert_state.h"
#include "service/rpc/services.h"
#include "service/store/database.h"
#include "service/store/migrate.h"
#include "service/store/queue.h"

#include <string.h>
#include <trainyard/v1/status.pb-c.h>

enum { STATES = 12 };

static status_t add_database(struct controller *c, struct arena *a, struct store_memory *m,
                             Trainyard__V1__GetStatusResponse *out, struct err *e) {
    struct store_database database;
    const int64_t start_ns = clock_mono_ns();
    TRY(store_database_get(controller_store(c), m, &database, e));
    out->database_seconds = (double)(clock_mono_ns() - start_ns) / 1e9;
    out->database_version = (char *)database.version;
    out->schema_version = store_schema_version();
    out->leader = (char *)database.leader;
    out->epoch = database.epoch;
    out->elected_time = database.epoch > 0 ? convert_timestamp(a, database.elected_time_us) : NULL;
    return ST_OK;
}

/* *ret_queued: the jobs that wait. */
static status_t add_counts(struct controller *c, struct arena *a, Trainyard__V1__GetStatusResponse *out,
                           int64_t *ret_queued, struct err *e) {
    int64_t counts[STATES];
    TRY(store_job_counts(controller_store(c), counts, e));
    out->jobs = arena_alloc(a, STATES, sizeof *out->jobs);
    for (int state = STORE_JOB_QUEUED; state <= STORE_JOB_CANCELLED; state++) {
        if (counts[state] == 0)
            continue;
        Trainyard__V1__GetStatusResponse__JobCount *count = arena_message(
            a, &trainyard__v1__get_status_response__job_count__descriptor);
        count->state = convert_job_state((enum store_job_state)state);
        count->jobs = counts[state];
        out->jobs[out->n_jobs++] = count;
    }
    *ret_queued = counts[STORE_JOB_QUEUED];
    return ST_OK;
}

static void add_executor(const struct store_executor *x, Trainyard__V1__GetStatusResponse *out) {
    if (x->state == STORE_EXECUTOR_LOST) {
        out->executors_lost++;
        return;
    }
    out->executors_attached++;
    out->executors_drained += x->drain_time_us > 0;
    for (size_t i = 0; i < x->n_devices; i++) {
        out->devices += strcmp(x->devices[i].kind, "cuda") == 0;
        out->devices_quarantined += x->devices[i].quarantined;
    }
}

static status_t add_executors(struct controller *c, struct arena *a, struct attention *attention,
                              Trainyard__V1__GetStatusResponse *out, struct err *e) {
    char after[64] = "";
    for (size_t n = LIMIT_PAGE_SIZE; n == LIMIT_PAGE_SIZE;) {
        CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
        struct store_executor *rows;
        TRY(store_executor_list(controller_store(c), m, after, LIMIT_PAGE_SIZE, &rows, &n, e));
        for (size_t i = 0; i < n; i++) {
            add_executor(&rows[i], out);
            attention_add_executor(attention, a, &rows[i]);
            snprintf(after, sizeof after, "%s", rows[i].id);
        }
    }
    if (out->executors_attached == 0)
        attention_add(attention, a, "no executor is attached: no job can run");
    return ST_OK;
}

/* wanted: [STORE_SLOT_KINDS] */
static status_t read_wanted(struct controller *c, int64_t *wanted, struct err *e) {
    char after[256] = "";
    for (size_t n = LIMIT_PAGE_SIZE; n == LIMIT_PAGE_SIZE;) {
        CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
        struct store_queue *rows;
        TRY(store_queue_list(controller_store(c), m, after, LIMIT_PAGE_SIZE, &rows, &n, e));
        for (size_t i = 0; i < n; i++) {
            for (int kind = 0; kind < SCHEDULER_SLOT_KINDS; kind++)
                wanted[kind] += rows[i].wanted[kind];
            snprintf(after, sizeof after, "%s", rows[i].name);
        }
    }
    return ST_OK;
}

static status_t add_slots(struct controller *c, struct arena *a, const struct scheduler_counts *counts,
                          Trainyard__V1__GetStatusResponse *out, struct err *e) {
    static const char *const kinds[SCHEDULER_SLOT_KINDS] = { "cpu", "cuda" };
    int64_t wanted[SCHEDULER_SLOT_KINDS] = { 0 };
    TRY(read_wanted(c, wanted, e));
    out->slots = arena_alloc(a, SCHEDULER_SLOT_KINDS, sizeof *out->slots);
    out->n_slots = SCHEDULER_SLOT_KINDS;
    for (int kind = 0; kind < SCHEDULER_SLOT_KINDS; kind++) {
        Trainyard__V1__GetStatusResponse__Slots *s = out->slots[kind] = arena_message(
            a, &trainyard__v1__get_status_response__slots__descriptor);
        s->kind = (char *)(uintptr_t)kinds[kind];
        s->slots = counts->slots[kind];
        s->used = counts->used[kind];
        s->drained = counts->drained[kind];
        s->wanted = wanted[kind];
    }
    return ST_OK;
}

static status_t get_status(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    (void)request;
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    Trainyard__V1__GetStatusResponse out = TRAINYARD__V1__GET_STATUS_RESPONSE__INIT;
    struct attention attention = { .n = 0 };
    struct controller_stats stats;
    int64_t queued;
    controller_stats(service, &stats);
    out.version = (char *)(uintptr_t)TRAINYARD_VERSION;
    out.caller = (char *)(uintptr_t)rpc_caller(call);
    out.leads = stats.leads;
    TRY(add_database(service, a, m, &out, e));
    if (!stats.leads)
        attention_add(&attention, a, "this controller does not lead%s%s", *stats.cannot_lead.msg ? ": " : "",
                      stats.cannot_lead.msg);
    TRY(add_executors(service, a, &attention, &out, e));
    TRY(add_slots(service, a, &stats.scheduler, &out, e));
    TRY(add_counts(service, a, &out, &queued, e));
    TRY(attention_add_jobs(&attention, a, controller_store(service), queued, e));
    out.attention = attention.sentences;
    out.n_attention = attention.n;
    rpc_reply(call, &out.base);
    return ST_OK;
}

static const struct rpc_method methods[] = {
    { .name = "GetStatus", .kind = RPC_UNARY, .unary = get_status },
};

const struct rpc_service rpc_status_service = { &trainyard__v1__status_service__descriptor, methods,
                                                sizeof methods / sizeof *methods };
