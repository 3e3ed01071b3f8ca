#include "base/log.h"
#include "service/controller/state.h"
#include "service/store/attempt.h"
#include "service/store/executor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rank_end rank_end_of(const Trainyard__V1__RankEnd *m) {
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

static void tell_devices(struct controller *c, const char *executor, int64_t incarnation,
                         const Trainyard__V1__DevicesChanged *m) {
    struct device_rows devices = device_rows_of(m->devices, m->n_devices);
    struct err e = { "" };
    int tries = 0;
    enum write_after after;
    do
        after = write_judge(
            c, store_executor_devices(c->store, c->own_epoch, executor, incarnation, devices.items, devices.n, &e), &e,
            &tries);
    while (after == WRITE_AGAIN);
    for (size_t i = 0; after == WRITE_DONE && i < m->n_devices; i++) /* not of an older start: nothing of it is so */
        if (device_quarantined(m->devices[i]))
            log_event(LOG_WARN, "device_quarantined", "executor", LOG_STR(executor), "device",
                      LOG_INT(m->devices[i]->index), "reason", LOG_STR(m->devices[i]->reason), NULL);
    device_rows_done(&devices);
    act_on(c, &(struct scheduler_event){
                  .kind = EV_EXECUTOR_DEVICES,
                  .executor = executor,
                  .attach = { .incarnation = incarnation,
                              .slots = { [SCHEDULER_SLOT_CUDA] = devices_cuda(m->devices, m->n_devices, false) },
                              .quarantined = devices_cuda(m->devices, m->n_devices, true) } });
}

static void tell_ends(struct controller *c, const char *executor, enum scheduler_event_kind kind, int64_t job,
                      int attempt, Trainyard__V1__RankEnd *const *ranks, size_t n) {
    struct rank_end *ends = calloc(n + 1, sizeof *ends);
    struct store_rank_end *rows = calloc(n + 1, sizeof *rows);
    if (!ends || !rows) { /* it is told again when the executor attaches */
        dispatch_close(c->dispatch, executor, ST_RESOURCE_EXHAUSTED,
                       "the controller has no memory for how ranks ended: attach again");
        free(ends);
        free(rows);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const Trainyard__V1__RankEnd *r = ranks[i];
        ends[i] = rank_end_of(r);
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
    act_on(c, &(struct scheduler_event){
                  .kind = kind, .executor = executor, .job = job, .attempt = attempt, .ends = ends, .n_ends = (int)n });
    free(ends);
    free(rows);
}

static void tell_rank(struct controller *c, enum scheduler_event_kind kind, int64_t job, int attempt, int rank) {
    act_on(c, &(struct scheduler_event){ .kind = kind, .job = job, .attempt = attempt, .rank = rank });
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

void tell_agent(struct controller *c, const struct inbox_item *item) {
    const char *executor = item->executor;
    const Trainyard__V1__AgentMessage *m = item->message;
    switch (m->message_case) {
    case TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_HELLO: hello_tell(c, item); break;
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
    case TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_DEVICES_CHANGED:
        tell_devices(c, executor, item->incarnation, m->devices_changed);
        break;
    case TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_REFUSED:
        log_event(LOG_WARN, "order_refused", "executor", LOG_STR(executor), "job", LOG_INT(m->refused->job), "reason",
                  LOG_STR(m->refused->message), NULL);
        break;
    default: break;
    }
}
