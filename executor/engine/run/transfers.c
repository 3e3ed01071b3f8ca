#include "executor/engine/run/transfers.h"

#include "base/clock.h"
#include "executor/engine/run/execute.h"
#include "executor/engine/run/profiler.h"

#include <stdlib.h>

enum { NOTHING = -1 }; /* the ticket of an empty transfer */

struct transfers {
    struct collective *collective;
    const struct plan *plan;
    const struct execution *execution;
    int next[QUEUES];       /* first entry that is not posted */
    int *ticket[QUEUES];    /* by entry */
    int64_t *begun[QUEUES]; /* by entry: when it was posted, for the profiler */
    int64_t waited_ns;
};

static const enum plan_queue QUEUE[] = { QUEUE_ACTIVATIONS, QUEUE_GRADIENTS };

static enum collective_channel channel_of(enum plan_queue queue) {
    return queue == QUEUE_ACTIVATIONS ? COLLECTIVE_FORWARD : COLLECTIVE_BACKWARD;
}

/* Every rank that this one posts to or gets from, once for each channel and direction. */
static status_t links_of(const struct plan *const *plans, int n_plans, struct collective_link *links, int *ret,
                         struct err *e) {
    int n = 0;
    for (int p = 0; p < n_plans; p++)
        for (int q = 0; q < 2; q++) {
            const struct instruction_list *list = &plans[p]->queue[QUEUE[q]];
            for (int i = 0; i < list->n; i++) {
                const struct collective_link l = { .channel = channel_of(QUEUE[q]),
                                                   .peer = list->items[i].peer,
                                                   .is_send = list->items[i].kind == INSTRUCTION_SEND };
                int at = 0;
                while (at < n &&
                       (links[at].channel != l.channel || links[at].peer != l.peer || links[at].is_send != l.is_send))
                    at++;
                if (at == COLLECTIVE_LINKS_MOST)
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
    CLEANUP(transfers_closep) struct transfers *t = calloc(1, sizeof *t);
    if (!t)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for transfers");
    t->collective = collective;
    struct collective_link links[COLLECTIVE_LINKS_MOST];
    int n_links = 0;
    TRY(links_of(plans, n, links, &n_links, e));
    TRY(collective_connect(collective, links, n_links, e));
    for (int q = 0; q < 2; q++) {
        int most = 0;
        for (int i = 0; i < n; i++)
            most = plans[i]->queue[QUEUE[q]].n > most ? plans[i]->queue[QUEUE[q]].n : most;
        t->ticket[QUEUE[q]] = calloc((size_t)most + 1, sizeof(int));
        t->begun[QUEUE[q]] = calloc((size_t)most + 1, sizeof(int64_t));
        if (!t->ticket[QUEUE[q]] || !t->begun[QUEUE[q]])
            return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for %d transfers", most);
    }
    *ret = take_ptr(&t);
    return ST_OK;
}

struct transfers *transfers_close(struct transfers *t) {
    for (int q = 0; t && q < QUEUES; q++) {
        free(t->ticket[q]);
        free(t->begun[q]);
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

/* The bytes that an entry sends or receives; NULL where there are none. */
static void *memory_of(const struct transfers *t, const struct instruction *i, size_t *ret_bytes) {
    const struct plan *plan = t->plan;
    struct plan_place place;
    size_t element = sizeof(float);
    if (i->what == WHAT_TENSOR) {
        *ret_bytes = plan_tensor_bytes(plan, i->op);
        return execution_at(t->execution, plan_tensor_place(plan, i->op, i->flight, instruction_life(plan, i)));
    }
    if (i->what == WHAT_GRADIENT) {
        place = plan_gradient_place(plan, i->buffer, plan->slot_begin[i->op] + i->begin);
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
    *ticket = NOTHING;
    t->begun[queue][entry] = clock_mono_ns();
    if (bytes == 0)
        return ST_OK;
    if (i->kind == INSTRUCTION_SEND)
        return collective_post_send(t->collective, channel_of(queue), i->peer, memory, bytes, ticket, e);
    return collective_post_recv(t->collective, channel_of(queue), i->peer, memory, bytes, ticket, e);
}

status_t transfers_reached(struct transfers *t, int done, struct err *e) {
    for (int q = 0; q < 2; q++) {
        const struct instruction_list *list = &t->plan->queue[QUEUE[q]];
        int *next = &t->next[QUEUE[q]];
        for (; *next < list->n && list->items[*next].after <= done; ++*next)
            TRY(post(t, QUEUE[q], *next, e));
    }
    return ST_OK;
}

status_t transfers_wait(struct transfers *t, enum plan_queue queue, int entry, struct err *e) {
    if (t->ticket[queue][entry] != NOTHING) {
        int64_t start = clock_mono_ns();
        TRY(collective_finish(t->collective, channel_of(queue), t->ticket[queue][entry], e));
        t->waited_ns += clock_mono_ns() - start;
    }
    const struct execution *x = t->execution;
    if (!x->profiler)
        return ST_OK;
    TRY(x->kernels->finish(x->kernels, e)); /* where the kernels wait, the host does too for a profile */
    profiler_note(x->profiler, t->plan, queue, entry, t->begun[queue][entry], clock_mono_ns());
    return ST_OK;
}

int64_t transfers_wait_ns(const struct transfers *t) { return t->waited_ns; }
