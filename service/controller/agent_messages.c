#include "base/alloc.h"
#include "base/limits.h"
#include "base/log.h"
#include "service/controller/convert_agent.h"
#include "service/controller/state.h"
#include "service/store/attempt.h"
#include "service/store/executor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void handle_devices_changed(struct controller *c, const char *executor, int64_t incarnation,
                                   const Trainyard__V1__DevicesChanged *m) {
    struct device_rows devices = device_rows_of(m->devices, m->n_devices);
    struct err e = { "" };
    const enum write_result after = WRITE_REPEATED(
        c, store_executor_devices(c->store, c->own_epoch, executor, incarnation, devices.items, devices.n, &e), &e);
    for (size_t i = 0; after == WRITE_DONE && i < m->n_devices; i++) /* the write of an older incarnation is refused */
        if (device_quarantined(m->devices[i]))
            log_event(LOG_WARN, "device_quarantined", "executor", LOG_STR(executor), "device",
                      LOG_INT(m->devices[i]->index), "reason", LOG_STR(m->devices[i]->reason), NULL);
    device_rows_done(&devices);
    actions_run(c, &(struct scheduler_event){
                       .kind = EV_EXECUTOR_DEVICES,
                       .executor = executor,
                       .attach = { .incarnation = incarnation,
                                   .slots = { [SCHEDULER_SLOT_CUDA] = devices_cuda(m->devices, m->n_devices, false) },
                                   .quarantined = devices_cuda(m->devices, m->n_devices, true) } });
}

static void handle_ends(struct controller *c, const char *executor, enum scheduler_event_kind kind, int64_t job,
                        int attempt, Trainyard__V1__RankEnd *const *ranks, size_t n) {
    CLEANUP(freep) struct rank_end *ends = alloc_zeroed(n, sizeof *ends);
    CLEANUP(freep) struct store_rank_end *rows = alloc_zeroed(n, sizeof *rows);
    for (size_t i = 0; i < n; i++) {
        ends[i] = rank_end_of(ranks[i]);
        rows[i] = rank_end_row_of(ranks[i]);
    }
    /* The audit trail is written first, because closing the attempt may end the job. */
    struct err e = { "" };
    if (n > 0)
        (void)WRITE_REPEATED(c, store_rank_ended(c->store, c->own_epoch, executor, job, attempt, rows, n, &e), &e);
    job_watchers_notify(c->job_watchers, job);
    actions_run(
        c, &(struct scheduler_event){
               .kind = kind, .executor = executor, .job = job, .attempt = attempt, .ends = ends, .n_ends = (int)n });
}

/* An agent may only report about ranks that the scheduler has placed on its executor. Another one is mixed up, or its
 * token was stolen; or the database was restored, and the attempt is not the one that the agent means. A late message
 * about an earlier attempt is usual. */
static bool is_own_rank(struct controller *c, const char *executor, int64_t job, int attempt, int rank) {
    bool current = false;
    if (scheduler_has_rank(c->scheduler, executor, job, attempt, rank, &current))
        return true;
    if (current)
        log_event(LOG_WARN, "report_refused", "executor", LOG_STR(executor), "job", LOG_INT(job), "attempt",
                  LOG_INT(attempt), "rank", LOG_INT(rank), "reason", LOG_STR("the rank is placed on another executor"),
                  NULL);
    return false;
}

static void handle_rank(struct controller *c, enum scheduler_event_kind kind, int64_t job, int attempt, int rank) {
    actions_run(c, &(struct scheduler_event){ .kind = kind, .job = job, .attempt = attempt, .rank = rank });
}

static void handle_silent(struct controller *c, const char *executor, const Trainyard__V1__RankSilent *r) {
    if (r->silence && is_own_rank(c, executor, r->job, r->attempt, r->rank))
        actions_run(c, &(struct scheduler_event){ .kind = EV_RANK_SILENT,
                                                  .job = r->job,
                                                  .attempt = r->attempt,
                                                  .rank = r->rank,
                                                  .step = r->silence->step,
                                                  .silent_ms = r->silence->silent_ms,
                                                  .follows = r->silence->follows });
}

/* Passes the stop step that rank 0 has chosen on to every agent of the attempt. An agent that is not attached gets it
 * when it attaches, behind the stop order. */
static void handle_stop_step(struct controller *c, const char *executor, const Trainyard__V1__RankStopStep *chosen) {
    if (!chosen->stop_step || !is_own_rank(c, executor, chosen->job, chosen->attempt, 0))
        return;
    const struct start_order *order = start_orders_set_stop_step(&c->start_orders, chosen->job, chosen->attempt,
                                                                 chosen->stop_step->step);
    for (int r = 0; order && r < order->start->world_size; r++) {
        bool sent = false; /* to the executor, for a lower rank */
        for (int q = 0; q < r && !sent; q++)
            sent = strcmp(order->executors[q], order->executors[r]) == 0;
        if (!sent)
            send_stop_step(c, order, order->executors[r]);
    }
}

void handle_agent_message(struct controller *c, const struct inbox_item *item) {
    const char *executor = item->executor;
    const Trainyard__V1__AgentMessage *m = item->message;
    if (!inbox_item_is_hello(item) && !item->welcomed && !dispatch_is_welcomed(c->dispatch, item->ticket))
        return; /* its hello was refused, or the stream has ended since: the agent's next hello tells all again */
    switch (m->message_case) {
    case TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_HELLO: attach_handle_hello(c, item); break;
    case TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_RANK_STARTED: {
        const Trainyard__V1__RankStarted *r = m->rank_started;
        if (!is_own_rank(c, executor, r->job, r->attempt, r->rank))
            break;
        rank_starts_add(c, &(struct store_rank_start){ .job = r->job,
                                                       .attempt = r->attempt,
                                                       .rank = r->rank,
                                                       .pid = r->pid,
                                                       .pid_start_time = r->pid_start_time,
                                                       .threads = threads_of(r->threads),
                                                       .executor = executor });
        handle_rank(c, EV_RANK_STARTED, r->job, r->attempt, r->rank);
        break;
    }
    case TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_RANK_THREADS: {
        const Trainyard__V1__RankThreads *r = m->rank_threads;
        if (threads_of(r->threads) > 0 && is_own_rank(c, executor, r->job, r->attempt, r->rank))
            rank_starts_add(c, &(struct store_rank_start){ .job = r->job,
                                                           .attempt = r->attempt,
                                                           .rank = r->rank,
                                                           .threads = r->threads,
                                                           .executor = executor });
        break;
    }
    case TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_RANK_OFFER: {
        const Trainyard__V1__RankOffer *r = m->rank_offer;
        if (is_own_rank(c, executor, r->job, r->attempt, r->rank) &&
            rendezvous_offer(c->rendezvous, r->job, r->attempt, r->rank, r->address.data, r->address.len))
            handle_rank(c, EV_RANK_OFFERED, r->job, r->attempt, r->rank);
        break;
    }
    case TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_RANK_READY: {
        const Trainyard__V1__RankReady *r = m->rank_ready;
        if (is_own_rank(c, executor, r->job, r->attempt, r->rank))
            handle_rank(c, EV_RANK_JOINED, r->job, r->attempt, r->rank);
        break;
    }
    case TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_RANK_SILENT: handle_silent(c, executor, m->rank_silent); break;
    case TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_STOP_STEP: handle_stop_step(c, executor, m->stop_step); break;
    case TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_RANK_ENDED:
        if (m->rank_ended->end)
            handle_ends(c, executor, EV_RANK_ENDED, m->rank_ended->job, m->rank_ended->attempt, &m->rank_ended->end, 1);
        break;
    case TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_ATTEMPT_ENDED:
        handle_ends(c, executor, EV_PART_ENDED, m->attempt_ended->job, m->attempt_ended->attempt,
                    m->attempt_ended->ranks, m->attempt_ended->n_ranks);
        break;
    case TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_DEVICES_CHANGED:
        handle_devices_changed(c, executor, item->incarnation, m->devices_changed);
        break;
    case TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_GOODBYE:
        log_event(LOG_INFO, "executor_leaves", "executor", LOG_STR(executor), "reason", LOG_STR(m->goodbye->reason),
                  NULL);
        detach_leaving(c, executor, item->incarnation, m->goodbye->drain);
        break;
    case TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_REFUSED:
        log_event(LOG_WARN, "order_refused", "executor", LOG_STR(executor), "job", LOG_INT(m->refused->job), "reason",
                  LOG_STR(m->refused->message), NULL);
        break;
    default: break;
    }
}
