#include "service/store/queue.h"

#include "api/rpc/access.h"
#include "base/limits.h"
#include "base/log.h"
#include "service/rpc/convert_job.h"
#include "service/rpc/name.h"
#include "service/rpc/page.h"
#include "service/rpc/services.h"

#include <trainyard/v1/queue.pb-c.h>

enum { MAX_WEIGHT = 1000, MAX_SLOTS = 1000000 }; /* as documented in the proto, and as the table checks */

static Trainyard__V1__SlotLimits *convert_limits(struct arena *a, const struct store_queue_settings *x, int slot) {
    Trainyard__V1__SlotLimits *l = arena_message(a, &trainyard__v1__slot_limits__descriptor);
    l->_quota_case = TRAINYARD__V1__SLOT_LIMITS___QUOTA_QUOTA;
    l->quota = x->quota[slot];
    l->_borrow_case = TRAINYARD__V1__SLOT_LIMITS___BORROW_BORROW;
    l->borrow = x->borrow[slot];
    l->_lend_case = TRAINYARD__V1__SLOT_LIMITS___LEND_LEND;
    l->lend = x->lend[slot];
    l->_user_case = TRAINYARD__V1__SLOT_LIMITS___USER_USER;
    l->user = x->user[slot];
    return l;
}

static Trainyard__V1__QueueSettings *convert_settings(struct arena *a, const struct store_queue_settings *x) {
    Trainyard__V1__QueueSettings *q = arena_message(a, &trainyard__v1__queue_settings__descriptor);
    q->_weight_case = TRAINYARD__V1__QUEUE_SETTINGS___WEIGHT_WEIGHT;
    q->weight = x->weight;
    q->_cohort_case = TRAINYARD__V1__QUEUE_SETTINGS___COHORT_COHORT;
    q->cohort = arena_printf(a, "%s", x->cohort);
    q->_max_priority_case = TRAINYARD__V1__QUEUE_SETTINGS___MAX_PRIORITY_MAX_PRIORITY;
    q->max_priority = x->max_priority;
    q->cpu = convert_limits(a, x, STORE_SLOT_CPU);
    q->cuda = convert_limits(a, x, STORE_SLOT_CUDA);
    return q;
}

static Trainyard__V1__Queue *convert_queue(struct arena *a, const struct store_queue *row) {
    Trainyard__V1__Queue *q = arena_message(a, &trainyard__v1__queue__descriptor);
    q->name = (char *)row->name;
    q->waiting = row->waiting;
    q->running = row->running;
    q->paused = row->paused;
    q->cpu_slots_used = row->used[STORE_SLOT_CPU];
    q->cuda_slots_used = row->used[STORE_SLOT_CUDA];
    q->cpu_slots_wanted = row->wanted[STORE_SLOT_CPU];
    q->cuda_slots_wanted = row->wanted[STORE_SLOT_CUDA];
    if (row->oldest)
        q->oldest_waiting = arena_printf(a, "jobs/%lld", (long long)row->oldest);
    q->oldest_waiting_time = convert_timestamp(a, row->oldest_time_us);
    if (row->created)
        q->settings = convert_settings(a, &row->settings);
    q->cpu_slots_average = row->average[STORE_SLOT_CPU];
    q->cuda_slots_average = row->average[STORE_SLOT_CUDA];
    return q;
}

/* The list is ordered by name, so the page token is the last name of the page. */
static status_t list_queues(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__ListQueuesRequest *in = (const void *)request;
    int size;
    TRY(page_size(in->page_size, &size, e));
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    struct store_queue *rows;
    size_t n;
    TRY(store_queue_list(controller_store(service), m, in->page_token, size, &rows, &n, e));
    Trainyard__V1__ListQueuesResponse out = TRAINYARD__V1__LIST_QUEUES_RESPONSE__INIT;
    out.queues = arena_alloc(a, n, sizeof *out.queues);
    out.n_queues = n;
    for (size_t i = 0; i < out.n_queues; i++)
        out.queues[i] = convert_queue(a, &rows[i]);
    if (n == (size_t)size)
        out.next_page_token = (char *)rows[n - 1].name;
    rpc_reply(call, &out.base);
    return ST_OK;
}

/* ---- settings ---- */

static status_t take_number(bool given, int value, const char *field, int min, int max, int *to, struct err *e) {
    if (!given)
        return ST_OK;
    if (value < min || value > max)
        return err_set(e, ST_INVALID_ARGUMENT, "settings.%s: %d is not from %d to %d", field, value, min, max);
    *to = value;
    return ST_OK;
}

#define TAKE_LIMIT(l, name, NAME, slot)                                                                                \
    take_number((l)->_##name##_case == TRAINYARD__V1__SLOT_LIMITS___##NAME##_##NAME, (l)->name,                        \
                (slot) == STORE_SLOT_CPU ? "cpu." #name : "cuda." #name, STORE_QUEUE_NO_LIMIT, MAX_SLOTS,              \
                &to->name[slot], e)

static status_t take_limits(const Trainyard__V1__SlotLimits *l, int slot, struct store_queue_settings *to,
                            struct err *e) {
    if (l) {
        TRY(TAKE_LIMIT(l, quota, QUOTA, slot));
        TRY(TAKE_LIMIT(l, borrow, BORROW, slot));
        TRY(TAKE_LIMIT(l, lend, LEND, slot));
        TRY(TAKE_LIMIT(l, user, USER, slot));
    }
    const char *kind = slot == STORE_SLOT_CPU ? "cpu" : "cuda";
    if ((to->borrow[slot] >= 0 || to->lend[slot] >= 0) && (to->quota[slot] < 0 || !*to->cohort))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "settings.%s.%s: a queue borrows and lends within its cohort and beside its quota: set both, or "
                       "remove this limit (-1)",
                       kind, to->borrow[slot] >= 0 ? "borrow" : "lend");
    return ST_OK;
}

static status_t take_settings(const Trainyard__V1__QueueSettings *in, struct store_queue_settings *to, struct err *e) {
    if (in) {
        TRY(take_number(in->_weight_case == TRAINYARD__V1__QUEUE_SETTINGS___WEIGHT_WEIGHT, in->weight, "weight", 1,
                        MAX_WEIGHT, &to->weight, e));
        TRY(take_number(in->_max_priority_case == TRAINYARD__V1__QUEUE_SETTINGS___MAX_PRIORITY_MAX_PRIORITY,
                        in->max_priority, "max_priority", -STORE_QUEUE_MAX_PRIORITY, STORE_QUEUE_MAX_PRIORITY,
                        &to->max_priority, e));
        if (in->_cohort_case == TRAINYARD__V1__QUEUE_SETTINGS___COHORT_COHORT) {
            if (*in->cohort)
                TRY(name_queue(in->cohort, "settings.cohort", e));
            to->cohort = in->cohort;
        }
    }
    TRY(take_limits(in ? in->cpu : NULL, STORE_SLOT_CPU, to, e));
    return take_limits(in ? in->cuda : NULL, STORE_SLOT_CUDA, to, e);
}

static status_t change_settings(const void *request, struct store_queue_settings *settings, struct err *e) {
    return take_settings(((const Trainyard__V1__UpdateQueueRequest *)request)->settings, settings, e);
}

static status_t reply_settings(struct controller *c, struct rpc_call *call, const char *name, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    struct store_queue_row row;
    TRY(store_queue_get(controller_store(c), m, name, &row, e));
    const Trainyard__V1__QueueSettings *out = convert_settings(a, &row.settings);
    rpc_reply(call, &out->base);
    return ST_OK;
}

static status_t create_queue(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__CreateQueueRequest *in = (const void *)request;
    struct store_queue_settings settings = STORE_QUEUE_DEFAULTS;
    TRY(name_queue(in->name, "name", e));
    TRY(take_settings(in->settings, &settings, e));
    TRY(controller_queue_create(service, in->name, &settings, rpc_deadline(call, UNARY_DEADLINE_MS), e));
    log_event(LOG_INFO, "queue_created", "queue", LOG_STR(in->name), "by", LOG_STR(rpc_caller(call)), NULL);
    return reply_settings(service, call, in->name, e);
}

static status_t update_queue(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__UpdateQueueRequest *in = (const void *)request;
    const deadline_ms_t deadline = rpc_deadline(call, UNARY_DEADLINE_MS);
    TRY(rpc_found(call, controller_queue_set(service, in->name, change_settings, in, deadline, e), "QUEUE_NOT_FOUND"));
    log_event(LOG_INFO, "queue_changed", "queue", LOG_STR(in->name), "by", LOG_STR(rpc_caller(call)), NULL);
    return reply_settings(service, call, in->name, e);
}

static status_t delete_queue(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__DeleteQueueRequest *in = (const void *)request;
    TRY(rpc_found(call, controller_queue_delete(service, in->name, rpc_deadline(call, UNARY_DEADLINE_MS), e),
                  "QUEUE_NOT_FOUND"));
    log_event(LOG_INFO, "queue_deleted", "queue", LOG_STR(in->name), "by", LOG_STR(rpc_caller(call)), NULL);
    Trainyard__V1__DeleteQueueResponse out = TRAINYARD__V1__DELETE_QUEUE_RESPONSE__INIT;
    rpc_reply(call, &out.base);
    return ST_OK;
}

static const struct rpc_method methods[] = {
    { .name = "ListQueues", .kind = RPC_UNARY, .unary = list_queues },
    { .name = "CreateQueue", .kind = RPC_UNARY, .unary = create_queue },
    { .name = "UpdateQueue", .kind = RPC_UNARY, .unary = update_queue },
    { .name = "DeleteQueue", .kind = RPC_UNARY, .unary = delete_queue },
};

const struct rpc_service rpc_queue_service = { &trainyard__v1__queue_service__descriptor, methods,
                                               sizeof methods / sizeof *methods };
