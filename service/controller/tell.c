#include "base/limits.h"
#include "base/log.h"
#include "service/controller/state.h"
#include "service/store/attempt.h"
#include "service/store/executor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct rank_end end_of(const Trainyard__V1__RankEnd *m) {
    struct rank_end end = {
        .rank = m->rank, .cause = (enum rank_end_cause)m->cause, .last_sequence = m->last_sequence, .step = m->step
    };
    snprintf(end.message, sizeof end.message, "%s", m->message);
    return end;
}

/* Writes that a later one makes good, or that tell a person something: tried while PostgreSQL is away, never fatal. */
#define RECORD(c, call)                                                                                                \
    do {                                                                                                               \
        struct err e_ = { "" };                                                                                        \
        struct err *e = &e_;                                                                                           \
        int tries_ = 0;                                                                                                \
        while (write_judge((c), (call), e, &tries_) == WRITE_AGAIN)                                                    \
            ;                                                                                                          \
    } while (0)

static void tell_hello_row(struct controller *c, const Trainyard__V1__AgentHello *h) {
    struct store_device *devices = calloc(h->n_devices ? h->n_devices : 1, sizeof *devices);
    size_t n = devices ? h->n_devices : 0;
    for (size_t i = 0; i < n; i++)
        devices[i] = (struct store_device){ .kind = h->devices[i]->kind,
                                            .index = h->devices[i]->index,
                                            .model = h->devices[i]->model,
                                            .memory_bytes = h->devices[i]->memory_bytes };
    struct store_executor row = { .id = h->executor,
                                  .incarnation = h->incarnation,
                                  .state = STORE_EXECUTOR_ATTACHED,
                                  .hostname = h->hostname,
                                  .address = h->address,
                                  .version = h->version,
                                  .slots = h->slots,
                                  .reason = h->device_reason,
                                  .devices = devices,
                                  .devices_n = n };
    RECORD(c, store_executor_attach(c->store, c->own_epoch, &row, e));
    free(devices);
}

static int cuda_devices(const Trainyard__V1__AgentHello *h) {
    int n = 0;
    for (size_t i = 0; i < h->n_devices; i++)
        n += strcmp(h->devices[i]->kind, "cuda") == 0;
    return n;
}

/* The blobs of what runs there, for a gang whose addresses are still to be sent. */
static void offer_again(struct controller *c, const Trainyard__V1__AttemptStatus *a) {
    for (size_t r = 0; r < a->n_ranks; r++)
        if (a->ranks[r]->address.len > 0)
            rendezvous_offer(c->rendezvous, a->job, a->attempt, a->ranks[r]->rank, a->ranks[r]->address.data,
                             a->ranks[r]->address.len);
}

struct attach_room { /* for one attempt of a hello */
    struct sched_rank_report *ranks;
    struct rank_end *ends;
};

static void fill_part(const Trainyard__V1__AttemptStatus *a, struct attach_room *room, struct sched_part_report *ret) {
    size_t ends_n = a->end ? a->end->n_ranks : 0;
    room->ranks = calloc(a->n_ranks + 1, sizeof *room->ranks);
    room->ends = calloc(ends_n + 1, sizeof *room->ends);
    *ret = (struct sched_part_report){ .job = a->job, .attempt = a->attempt, .ended = a->ended };
    if (!room->ranks || !room->ends)
        return;
    for (size_t r = 0; r < a->n_ranks; r++)
        room->ranks[r] = (struct sched_rank_report){ .rank = a->ranks[r]->rank,
                                                     .offered = a->ranks[r]->address.len > 0,
                                                     .joined = a->ranks[r]->joined };
    for (size_t r = 0; r < ends_n; r++)
        room->ends[r] = end_of(a->end->ranks[r]);
    ret->ranks = room->ranks;
    ret->ranks_n = (int)a->n_ranks;
    ret->ends = room->ends;
    ret->ends_n = (int)ends_n;
}

static void tell_hello(struct controller *c, const char *executor, const Trainyard__V1__AgentHello *h) {
    tell_hello_row(c, h);
    size_t n = h->n_attempts;
    struct sched_part_report *parts = calloc(n + 1, sizeof *parts);
    struct attach_room *rooms = calloc(n + 1, sizeof *rooms);
    if (parts && rooms) {
        for (size_t i = 0; i < n; i++) {
            fill_part(h->attempts[i], &rooms[i], &parts[i]);
            offer_again(c, h->attempts[i]);
        }
        struct sched_event ev = { .kind = EV_EXECUTOR_ATTACHED, .executor = executor };
        ev.attach.incarnation = h->incarnation;
        ev.attach.slots[SCHED_SLOT_CPU] = h->slots;
        ev.attach.slots[SCHED_SLOT_CUDA] = cuda_devices(h);
        ev.attach.parts = parts;
        ev.attach.parts_n = (int)n;
        act_on(c, &ev);
    }
    for (size_t i = 0; rooms && i < n; i++) {
        free(rooms[i].ranks);
        free(rooms[i].ends);
    }
    free(rooms);
    free(parts);
    log_event(LOG_INFO, "executor_attached", "executor", LOG_STR(executor), "incarnation", LOG_INT(h->incarnation),
              "slots", LOG_INT(h->slots), "attempts", LOG_INT((int64_t)n), NULL);
}

static void tell_ends(struct controller *c, const char *executor, enum sched_event_kind kind, int64_t job, int attempt,
                      Trainyard__V1__RankEnd *const *ranks, size_t n) {
    struct rank_end *ends = calloc(n + 1, sizeof *ends);
    struct store_rank_end *rows = calloc(n + 1, sizeof *rows);
    if (!ends || !rows) {
        free(ends);
        free(rows);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const Trainyard__V1__RankEnd *r = ranks[i];
        ends[i] = end_of(r);
        rows[i] = (struct store_rank_end){ .rank = r->rank,
                                           .exit_code = r->exit_code,
                                           .signal = r->signal,
                                           .cause = (int)r->cause,
                                           .message = r->message,
                                           .last_sequence = r->last_sequence,
                                           .step = r->step,
                                           .time_us = r->time_us };
    }
    /* The audit trail first: closing the attempt may end the job. */
    if (n > 0)
        RECORD(c, store_rank_ended(c->store, c->own_epoch, job, attempt, rows, n, e));
    wake_now(c->wakes, job);
    act_on(c, &(struct sched_event){
                  .kind = kind, .executor = executor, .job = job, .attempt = attempt, .ends = ends, .ends_n = (int)n });
    free(ends);
    free(rows);
}

static void tell_rank(struct controller *c, enum sched_event_kind kind, int64_t job, int attempt, int rank) {
    act_on(c, &(struct sched_event){ .kind = kind, .job = job, .attempt = attempt, .rank = rank });
}

static void keep_start(struct controller *c, const Trainyard__V1__RankStarted *r) {
    struct starts *all = &c->starts;
    if (all->n == all->cap) {
        size_t cap = all->cap ? 2 * all->cap : 64;
        struct start *items = reallocarray(all->items, cap, sizeof *items);
        if (!items)
            return; /* a pid less to show */
        all->items = items;
        all->cap = cap;
    }
    all->items[all->n++] = (struct start){
        .job = r->job, .attempt = r->attempt, .rank = r->rank, .pid = r->pid, .pid_start_time = r->pid_start_time
    };
}

void tell_starts(struct controller *c) {
    for (size_t i = 0; i < c->starts.n; i++) {
        const struct start *s = &c->starts.items[i];
        RECORD(c,
               store_rank_started(c->store, c->own_epoch, s->job, s->attempt, s->rank, s->pid, s->pid_start_time, e));
    }
    c->starts.n = 0;
}

void tell_agent(struct controller *c, const char *executor, const Trainyard__V1__AgentMessage *m) {
    switch (m->message_case) {
    case TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_HELLO: tell_hello(c, executor, m->hello); break;
    case TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_RANK_STARTED: {
        const Trainyard__V1__RankStarted *r = m->rank_started;
        keep_start(c, r);
        tell_rank(c, EV_RANK_STARTED, r->job, r->attempt, r->rank);
        break;
    }
    case TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_RANK_OFFER: {
        const Trainyard__V1__RankOffer *r = m->rank_offer;
        if (rendezvous_offer(c->rendezvous, r->job, r->attempt, r->rank, r->address.data, r->address.len))
            tell_rank(c, EV_RANK_OFFERED, r->job, r->attempt, r->rank);
        break;
    }
    case TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_RANK_READY:
        tell_rank(c, EV_RANK_JOINED, m->rank_ready->job, m->rank_ready->attempt, m->rank_ready->rank);
        break;
    case TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_RANK_ENDED:
        if (m->rank_ended->end)
            tell_ends(c, executor, EV_RANK_ENDED, m->rank_ended->job, m->rank_ended->attempt, &m->rank_ended->end, 1);
        break;
    case TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_ATTEMPT_ENDED:
        tell_ends(c, executor, EV_PART_ENDED, m->attempt_ended->job, m->attempt_ended->attempt, m->attempt_ended->ranks,
                  m->attempt_ended->n_ranks);
        break;
    case TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_REFUSED:
        log_event(LOG_WARN, "order_refused", "executor", LOG_STR(executor), "job", LOG_INT(m->refused->job), "reason",
                  LOG_STR(m->refused->message), NULL);
        break;
    default: break;
    }
}
