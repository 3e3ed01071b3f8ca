/* A transfer is posted as soon as the compute queue has reached the entry's `after`, and completes by itself; a WAIT
 * collects it by its ticket. Sends and receives of one queue use one stream of the collective, so both ends must post
 * them in the same order: the plan's. */
#include "engine/run/transfers.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/run/execution.h"
#include "engine/run/profiler.h"

#include <stdlib.h>

enum { NO_TICKET = -1 }; /* of an empty transfer */

struct transfers {
    struct collective *collective;
    const struct plan *plan;
    const struct execution *execution;
    int next[QUEUES];           /* first entry that is not posted */
    int *ticket[QUEUES];        /* by entry */
    int64_t *posted_ns[QUEUES]; /* by entry, for the profiler */
    int64_t waited_ns;
};

static const enum plan_queue QUEUE[] = { QUEUE_ACTIVATIONS, QUEUE_GRADIENTS };

static enum collective_stream stream_of(enum plan_queue queue) {
    return queue == QUEUE_ACTIVATIONS ? COLLECTIVE_FORWARD : COLLECTIVE_BACKWARD;
}

/* Every rank that this one sends to or receives from, once for each stream and direction. */
static status_t links_of(const struct plan *const *plans, int n_plans, struct collective_link *links, int *ret,
                         struct err *e) {
    int n = 0;
    for (int p = 0; p < n_plans; p++)
        for (int q = 0; q < 2; q++) {
            const struct instruction_list *list = &plans[p]->queue[QUEUE[q]];
            for (int i = 0; i < list->n; i++) {
                const struct collective_link l = { .stream = stream_of(QUEUE[q]),
                                                   .peer = list->items[i].peer,
                                                   .is_send = list->items[i].kind == INSTRUCTION_SEND };
                int at = 0;
                while (at < n &&
                       (links[at].stream != l.stream || links[at].peer != l.peer || links[at].is_send != l.is_send))
                    at++;
                if (at == COLLECTIVE_MAX_LINKS)
                    return err_set(e, ST_RESOURCE_EXHAUSTED, "more than %d ranks to exchange with", at);
                links[at] = l;
                n += at == n;
            }
        }
    *ret = n;
    return ST_OK;
}

status_t transfers_open(struct collective *collective, const struct plan *const *plans, int n, struct transfers **ret,
                        struct err *e) {
    CLEANUP(transfers_closep) struct transfers *t = alloc_zeroed(1, sizeof *t);
    t->collective = collective;
    struct collective_link links[COLLECTIVE_MAX_LINKS];
    int n_links = 0;
    TRY(links_of(plans, n, links, &n_links, e));
    TRY(collective_connect(collective, links, n_links, e));
    for (int q = 0; q < 2; q++) {
        int max = 0;
        for (int i = 0; i < n; i++)
            max = plans[i]->queue[QUEUE[q]].n > max ? plans[i]->queue[QUEUE[q]].n : max;
        t->ticket[QUEUE[q]] = alloc_zeroed((size_t)max + 1, sizeof(int));
        t->posted_ns[QUEUE[q]] = alloc_zeroed((size_t)max + 1, sizeof(int64_t));
    }
    *ret = take_ptr(&t);
    return ST_OK;
}

struct transfers *transfers_close(struct transfers *t) {
    for (int q = 0; t && q < QUEUES; q++) {
        free(t->ticket[q]);
        free(t->posted_ns[q]);
    }
    free(t);
    return NULL;
}

void transfers_begin(struct transfers *t, const struct plan *plan, const struct execution *x) {
    t->plan = plan;
    t->execution = x;
    for (int q = 0; q < QUEUES; q++)
        t->next[q] = 0;
}

/* The bytes that an entry sends or receives; NULL if it is empty. */
static void *memory_of(const struct transfers *t, const struct instruction *i, size_t *ret_bytes) {
    const struct plan *plan = t->plan;
    struct plan_place place;
    size_t element = sizeof(float);
    if (i->payload == PAYLOAD_TENSOR) {
        *ret_bytes = plan_tensor_bytes(plan, i->op);
        return execution_at(t->execution, plan_tensor_place(plan, i->op, i->in_flight, instruction_lifetime(plan, i)));
    }
    if (i->payload == PAYLOAD_GRADIENT) {
        place = plan_gradient_place(plan, i->buffer, plan->use_begin[i->op] + i->begin);
    } else {
        element = dtype_bytes(plan->graph->element);
        place = plan_parameter_place(plan, i->op);
        place.offset += (size_t)i->begin * element;
    }
    *ret_bytes = i->end > i->begin ? (size_t)(i->end - i->begin) * element : 0;
    return *ret_bytes ? execution_at(t->execution, place) : NULL;
}

static status_t post(struct transfers *t, enum plan_queue queue, int entry, struct err *e) {
    const struct instruction *i = &t->plan->queue[queue].items[entry];
    int *ticket = &t->ticket[queue][entry];
    size_t bytes = 0;
    void *memory = memory_of(t, i, &bytes);
    *ticket = NO_TICKET;
    t->posted_ns[queue][entry] = clock_mono_ns();
    if (bytes == 0)
        return ST_OK;
    if (i->kind == INSTRUCTION_SEND)
        return collective_post_send(t->collective, stream_of(queue), i->peer, memory, bytes, ticket, e);
    return collective_post_recv(t->collective, stream_of(queue), i->peer, memory, bytes, ticket, e);
}

status_t transfers_start_reached(struct transfers *t, int done, struct err *e) {
    for (int q = 0; q < 2; q++) {
        const struct instruction_list *list = &t->plan->queue[QUEUE[q]];
        int *next = &t->next[QUEUE[q]];
        for (; *next < list->n && list->items[*next].after <= done; ++*next)
            TRY(post(t, QUEUE[q], *next, e));
    }
    return ST_OK;
}

status_t transfers_wait(struct transfers *t, enum plan_queue queue, int entry, struct err *e) {
    if (t->ticket[queue][entry] != NO_TICKET) {
        int64_t start = clock_mono_ns();
        TRY(collective_finish(t->collective, stream_of(queue), t->ticket[queue][entry], e));
        t->waited_ns += clock_mono_ns() - start;
    }
    const struct execution *x = t->execution;
    if (!x->profiler)
        return ST_OK;
    TRY(x->kernels->finish(x->kernels, e)); /* for a profile the host waits, too */
    profiler_record(x->profiler, t->plan, queue, entry, t->posted_ns[queue][entry], clock_mono_ns());
    return ST_OK;
}

int64_t transfers_wait_ns(const struct transfers *t) { return t->waited_ns; }
