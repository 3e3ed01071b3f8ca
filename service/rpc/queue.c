#include "service/store/queue.h"

#include "service/rpc/convert_job.h"
#include "service/rpc/page.h"
#include "service/rpc/services.h"

#include <trainyard/v1/queue.pb-c.h>

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

static const struct rpc_method methods[] = {
    { .name = "ListQueues", .kind = RPC_UNARY, .unary = list_queues },
};

const struct rpc_service rpc_queue_service = { &trainyard__v1__queue_service__descriptor, methods,
                                               sizeof methods / sizeof *methods };
