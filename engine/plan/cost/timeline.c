/* The simulation of a step on one clock. Each rank runs its compute queue and advances its own clock, until a WAIT
 * needs an entry without an end time. Then transfers and collectives whose participants have all posted get their
 * times: a transfer from the later post of its two halves, one after another in each direction; a collective from the
 * last member's post. This repeats until nothing moves. */
#include "engine/plan/cost/timeline.h"

#include "base/array.h"
#include "engine/plan/cost/step_cost.h"
#include "engine/plan/op_cost.h"
#include "engine/plan/transfer_match.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One rank while its step is laid along the clock. */
struct runner {
    const struct plan *plan;
    int at, posted[QUEUES], passed;
    double now, data_free; /* compute's clock; when the data queue is free */
    double *posted_at[QUEUES], *done_at[QUEUES];
    bool *done[QUEUES];
    double out_free[QUEUES], in_free[QUEUES];
    int first_open[QUEUES];
};

struct simulation {
    const struct timeline_costs *costs;
    struct transfer_match *matches;
    struct runner *runners;
    int n, columns;
    struct timeline *out;
};

const char *timeline_work_name(enum timeline_work work) {
    static const char *const names[TIMELINE_WORKS] = { "forward", "recompute", "backward", "weight",  "update",
                                                       "reduce",  "gather",    "exchange", "transfer" };
    return names[work];
}

static enum timeline_work work_of(enum instruction_kind kind) {
    switch (kind) {
    case INSTRUCTION_LOAD:
    case INSTRUCTION_FORWARD: return TIMELINE_FORWARD;
    case INSTRUCTION_RECOMPUTE: return TIMELINE_RECOMPUTE;
    case INSTRUCTION_BACKWARD_INPUT:
    case INSTRUCTION_COPY_GRADIENT: return TIMELINE_BACKWARD;
    case INSTRUCTION_BACKWARD_WEIGHT: return TIMELINE_WEIGHT;
    case INSTRUCTION_REDUCE: return TIMELINE_REDUCE;
    case INSTRUCTION_GATHER: return TIMELINE_GATHER;
    case INSTRUCTION_EXCHANGE:
    case INSTRUCTION_EXCHANGE_NORMS:
    case INSTRUCTION_EXCHANGE_STATISTICS: return TIMELINE_EXCHANGE;
    case INSTRUCTION_SEND:
    case INSTRUCTION_RECV: return TIMELINE_TRANSFER;
    default: return TIMELINE_UPDATE;
    }
}

/* Neighbouring compute of one kind and micro-batch is one span. Without a split the weight's part is drawn with the
 * input's. */
static status_t note(struct simulation *s, int number, enum plan_queue queue, const struct instruction *i, double begin,
                     double end, struct err *e) {
    struct timeline *t = s->out;
    enum timeline_work work = work_of(i->kind);
    const struct plan_layout *l = &s->runners[number].plan->layout;
    if (work == TIMELINE_WEIGHT && !(l->schedule->splits_weight && l->stages > 1))
        work = TIMELINE_BACKWARD;
    if (end <= begin)
        return ST_OK;
    struct timeline_span *last = t->n_spans ? &t->spans[t->n_spans - 1] : NULL;
    if (last && queue == QUEUE_COMPUTE && last->queue == queue && last->number == number && last->work == work &&
        last->micro_batch == i->micro_batch && last->virtual_stage == i->virtual_stage &&
        begin <= last->end * (1 + 1e-12)) {
        last->end = end;
        return ST_OK;
    }
    TRY(array_grow(&t->spans, t->n_spans, e));
    t->spans[t->n_spans++] = (struct timeline_span){ .begin = begin,
                                                     .end = end,
                                                     .number = number,
                                                     .queue = queue,
                                                     .work = work,
                                                     .micro_batch = i->micro_batch,
                                                     .in_flight = i->in_flight,
                                                     .virtual_stage = i->virtual_stage };
    return ST_OK;
}

static double seconds(const struct simulation *s, int number, enum plan_queue queue, const struct instruction *i) {
    return s->costs->seconds(s->costs->ctx, s->runners[number].plan, queue, i);
}

static void post(struct runner *r) {
    for (enum plan_queue q = QUEUE_DATA; q < QUEUES; q++)
        for (const struct instruction_list *list = &r->plan->queue[q];
             r->posted[q] < list->n && list->items[r->posted[q]].after <= r->at; r->posted[q]++)
            r->posted_at[q][r->posted[q]] = r->now;
}

/* False while what it waits for has no time yet. */
static bool wait(struct runner *r, const struct instruction *i, struct timeline_rank *rank) {
    if (!r->done[i->queue][i->entry])
        return false;
    double until = r->done_at[i->queue][i->entry];
    if (until > r->now) {
        enum instruction_kind kind = r->plan->queue[i->queue].items[i->entry].kind;
        bool data = kind == INSTRUCTION_REDUCE || kind == INSTRUCTION_GATHER;
        *(data ? &rank->data_wait : &rank->stage_wait) += until - r->now;
        r->now = until;
    }
    return true;
}

static status_t run_compute(struct simulation *s, int number, bool *moved, struct err *e) {
    struct runner *r = &s->runners[number];
    struct timeline_rank *rank = &s->out->ranks[number];
    const struct instruction_list *list = &r->plan->queue[QUEUE_COMPUTE];
    int from = r->at;
    for (; r->at < list->n; post(r)) {
        const struct instruction *i = &list->items[r->at];
        if (i->kind == INSTRUCTION_WAIT) {
            if (!wait(r, i, rank))
                break;
        } else {
            double begin = r->now;
            r->now += seconds(s, number, QUEUE_COMPUTE, i);
            rank->busy += r->now - begin;
            rank->work[work_of(i->kind)] += r->now - begin;
            rank->flops += step_cost_work(r->plan, i).flops;
            TRY(note(s, number, QUEUE_COMPUTE, i, begin, r->now, e));
        }
        r->at++;
    }
    *moved |= r->at > from;
    return ST_OK;
}

/* --- transfers and collectives ---*/

static status_t run_transfers(struct simulation *s, int number, enum plan_queue q, bool *moved, struct err *e) {
    struct runner *r = &s->runners[number];
    for (int i = r->first_open[q]; i < r->posted[q]; i++) {
        const struct instruction *x = &r->plan->queue[q].items[i];
        struct transfer_peer to = s->matches[number].peer[q][i];
        struct runner *peer = &s->runners[to.plan];
        if (x->kind == INSTRUCTION_SEND && !r->done[q][i] && peer->posted[q] > to.entry) {
            double begin = fmax(fmax(r->posted_at[q][i], peer->posted_at[q][to.entry]),
                                fmax(r->out_free[q], peer->in_free[q]));
            double end = begin + seconds(s, number, q, x);
            r->out_free[q] = peer->in_free[q] = r->done_at[q][i] = peer->done_at[q][to.entry] = end;
            r->done[q][i] = peer->done[q][to.entry] = *moved = true;
            TRY(note(s, number, q, x, begin, end, e));
        }
        if (i == r->first_open[q] && r->done[q][i])
            r->first_open[q]++;
    }
    return ST_OK;
}

static status_t run_collectives(struct simulation *s, int number, bool *moved, struct err *e) {
    struct runner *r = &s->runners[number];
    while (r->posted[QUEUE_DATA] > r->passed) {
        const struct instruction *i = &r->plan->queue[QUEUE_DATA].items[r->passed];
        int first, step, count;
        transfer_match_group(&s->matches[number], s->n, i->group, &first, &step, &count);
        if (first != number)
            break;
        double begin = 0, longest = 0;
        for (int k = 0; k < count; k++) {
            struct runner *peer = &s->runners[first + k * step];
            if (peer->posted[QUEUE_DATA] <= peer->passed ||
                peer->plan->queue[QUEUE_DATA].items[peer->passed].group != i->group) /* it is at another one before */
                return ST_OK;
            begin = fmax(begin, fmax(peer->data_free, peer->posted_at[QUEUE_DATA][peer->passed]));
            longest = fmax(
                longest, seconds(s, first + k * step, QUEUE_DATA, &peer->plan->queue[QUEUE_DATA].items[peer->passed]));
        }
        for (int k = 0; k < count; k++) {
            struct runner *peer = &s->runners[first + k * step];
            TRY(note(s, first + k * step, QUEUE_DATA, &peer->plan->queue[QUEUE_DATA].items[peer->passed], begin,
                     begin + longest, e));
            peer->data_free = peer->done_at[QUEUE_DATA][peer->passed] = begin + longest;
            peer->done[QUEUE_DATA][peer->passed++] = true;
        }
        *moved = true;
    }
    return ST_OK;
}

static status_t run(struct simulation *s, struct err *e) {
    for (int m = 0; m < s->n; m++)
        post(&s->runners[m]);
    for (bool moved = true; moved;) {
        moved = false;
        for (int m = 0; m < s->n; m++)
            TRY(run_compute(s, m, &moved, e));
        for (int m = 0; m < s->n; m++) {
            TRY(run_collectives(s, m, &moved, e));
            TRY(run_transfers(s, m, QUEUE_ACTIVATIONS, &moved, e));
            TRY(run_transfers(s, m, QUEUE_GRADIENTS, &moved, e));
        }
    }
    for (int m = 0; m < s->n; m++)
        if (s->runners[m].at < s->runners[m].plan->queue[QUEUE_COMPUTE].n)
            return err_set(e, ST_FAILED_PRECONDITION, "plan of rank %d, instruction %d: waits forever",
                           s->runners[m].plan->layout.rank, s->runners[m].at);
    return ST_OK;
}

/* --- from beginning to end ---*/

static status_t open_rank(struct simulation *s, int m, const struct plan *p, struct err *e) {
    struct runner *r = &s->runners[m];
    r->plan = p;
    for (enum plan_queue q = QUEUE_DATA; q < QUEUES; q++) {
        TRY(array_new(&r->posted_at[q], p->queue[q].n, e));
        TRY(array_new(&r->done_at[q], p->queue[q].n, e));
        TRY(array_new(&r->done[q], p->queue[q].n, e));
    }
    s->out->ranks[m] = (struct timeline_rank){ .rank = p->layout.rank, .stage = plan_stage(&p->layout) };
    return transfer_match_init(&s->matches[m], p, s->columns, m, e);
}

static void close_rank(struct simulation *s, int m) {
    for (enum plan_queue q = QUEUE_DATA; q < QUEUES; q++) {
        free(s->runners[m].posted_at[q]);
        free(s->runners[m].done_at[q]);
        free(s->runners[m].done[q]);
    }
    transfer_match_done(&s->matches[m]);
}

static int by_time(const void *a, const void *b) {
    const struct timeline_span *x = a, *y = b;
    if (x->number != y->number)
        return x->number - y->number;
    if (x->queue != y->queue)
        return (int)x->queue - (int)y->queue;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static void sum_up(struct simulation *s) {
    struct timeline *t = s->out;
    for (int m = 0; m < s->n; m++)
        t->seconds = fmax(t->seconds, fmax(s->runners[m].now, s->runners[m].data_free));
    for (int m = 0; m < s->n; m++) {
        t->ranks[m].stage_wait += t->seconds - s->runners[m].now;
        t->ranks[m].bubble = t->seconds > 0 ? t->ranks[m].stage_wait / t->seconds : 0;
    }
    qsort(t->spans, (size_t)t->n_spans, sizeof *t->spans, by_time);
}

static status_t simulate(struct simulation *s, const struct plan *const *plans, struct err *e) {
    TRY(array_new(&s->out->ranks, s->n, e));
    for (int m = 0; m < s->n; m++)
        TRY(open_rank(s, m, plans[m], e));
    TRY(transfer_match_all(s->matches, s->n, e));
    TRY(run(s, e));
    sum_up(s);
    return ST_OK;
}

status_t timeline_simulate(const struct plan *const *plans, int n, const struct timeline_costs *costs,
                           struct timeline *ret, struct err *e) {
    CLEANUP(freep) struct transfer_match *matches = NULL;
    CLEANUP(freep) struct runner *runners = NULL;
    TRY(array_new(&matches, n, e));
    TRY(array_new(&runners, n, e));
    struct timeline t = { .n = n };
    struct simulation s = { .costs = costs,
                            .matches = matches,
                            .runners = runners,
                            .n = n,
                            .columns = n / plans[0]->layout.stages,
                            .out = &t };
    status_t st = simulate(&s, plans, e);
    for (int m = 0; m < n; m++)
        close_rank(&s, m);
    if (st == ST_OK)
        *ret = t;
    else
        timeline_done(&t);
    return st;
}

void timeline_done(struct timeline *t) {
    free(t->spans);
    free(t->ranks);
    *t = (struct timeline){ 0 };
}

double timeline_profile_seconds(void *ctx, const struct plan *plan, enum plan_queue queue,
                                const struct instruction *i) {
    return step_cost_seconds(plan, queue, i, ctx);
}
