/* Executors attach. Each new control stream begins with a hello, which passes through two phases of the loop:
 *
 *   attach_write_rows     before the items of a turn are handled: writes the rows of all hellos in one transaction. If
 *                         that is refused, each row is written alone, and refused executors are disconnected
 *   attach_handle_hello   in the order of arrival: welcomes the executor, collects the addresses of its running ranks,
 *                         and passes its slots and attempts to the scheduler (EV_EXECUTOR_ATTACHED), which compares
 *                         them with its own state (service/scheduler/adopt.c)
 *
 * A row is stored before the welcome, so that an executor that gets orders is always in the database. The messages
 * behind a hello that was refused are dropped (handle_agent_message): the token of their stream may not speak for the
 * executor. */
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "base/log.h"
#include "service/controller/convert_agent.h"
#include "service/controller/state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Writes the rows in one transaction: all of them or none. */
static enum write_result write_rows(struct controller *c, const struct store_executor *rows, size_t n, status_t *ret,
                                    struct err *e) {
    return WRITE_REPEATED(c, *ret = store_executor_attach(c->store, c->own_epoch, rows, n, e), e);
}

static void row_of(const struct inbox_item *hello, struct store_executor *ret, struct device_rows *ret_devices) {
    executor_row_of(hello->message->hello, ret, ret_devices);
    ret->token = hello->token;
}

static bool store_together(struct controller *c, struct inbox_item *const *hellos, size_t n) {
    CLEANUP(freep) struct store_executor *rows = alloc_zeroed(n, sizeof *rows);
    CLEANUP(freep) struct device_rows *devices = alloc_zeroed(n, sizeof *devices);
    struct err e = { "" };
    status_t st = ST_OK;
    for (size_t i = 0; i < n; i++)
        row_of(hellos[i], &rows[i], &devices[i]);
    enum write_result after = write_rows(c, rows, n, &st, &e);
    for (size_t i = 0; i < n; i++)
        device_rows_done(&devices[i]);
    return after == WRITE_DONE;
}

/* False: the executor is refused, and its stream is closed with the reason. */
static bool store_alone(struct controller *c, const struct inbox_item *hello) {
    struct store_executor row;
    struct device_rows devices;
    struct err e = { "" };
    status_t st = ST_OK;
    row_of(hello, &row, &devices);
    enum write_result after = write_rows(c, &row, 1, &st, &e);
    device_rows_done(&devices);
    if (after == WRITE_DONE)
        return true;
    log_event(LOG_WARN, "executor_refused", "executor", LOG_STR(hello->executor), "incarnation",
              LOG_INT(hello->incarnation), "reason", LOG_STR(e.msg), NULL);
    dispatch_refuse(c->dispatch, hello->ticket, st == ST_PERMISSION_DENIED ? st : ST_ABORTED, e.msg);
    return false;
}

/* Writes all rows together, because a thousand executors may attach at once. One executor may cause a refusal (its row
 * has a newer incarnation, its token speaks for another executor, or a text cannot be stored). Then each row is written
 * alone, so that only this executor is refused. */
void attach_write_rows(struct controller *c, struct inbox_item *const *items, size_t n) {
    struct inbox_item *hellos[EVENTS_PER_TURN];
    size_t n_hellos = 0;
    assert(n <= EVENTS_PER_TURN);
    for (size_t i = 0; i < n; i++)
        if (inbox_item_is_hello(items[i]))
            hellos[n_hellos++] = items[i];
    bool all = n_hellos > 1 && store_together(c, hellos, n_hellos);
    for (size_t i = 0; i < n_hellos && !leadership_over(c); i++)
        hellos[i]->stored = all || store_alone(c, hellos[i]);
}

/* Collects the addresses of the running ranks again, for a gang whose addresses are not sent yet. */
static void offer_again(struct controller *c, const char *executor, const Trainyard__V1__AttemptStatus *a) {
    for (size_t r = 0; r < a->n_ranks; r++)
        if (a->ranks[r]->address.len > 0 &&
            scheduler_has_rank(c->scheduler, executor, a->job, a->attempt, a->ranks[r]->rank, NULL))
            rendezvous_offer(c->rendezvous, a->job, a->attempt, a->ranks[r]->rank, a->ranks[r]->address.data,
                             a->ranks[r]->address.len);
}

/* The caller frees ranks and ends of the result. */
static struct scheduler_part_report part_of(const Trainyard__V1__AttemptStatus *a) {
    const size_t n_ends = a->end ? a->end->n_ranks : 0;
    struct scheduler_rank_report *ranks = alloc_zeroed(a->n_ranks, sizeof *ranks);
    struct rank_end *ends = alloc_zeroed(n_ends, sizeof *ends);
    for (size_t r = 0; r < a->n_ranks; r++)
        ranks[r] = (struct scheduler_rank_report){ .rank = a->ranks[r]->rank,
                                                   .offered = a->ranks[r]->address.len > 0,
                                                   .joined = a->ranks[r]->joined };
    for (size_t r = 0; r < n_ends; r++)
        ends[r] = rank_end_of(a->end->ranks[r]);
    return (struct scheduler_part_report){ .job = a->job,
                                           .attempt = a->attempt,
                                           .ended = a->ended,
                                           .ranks = ranks,
                                           .n_ranks = (int)a->n_ranks,
                                           .ends = ends,
                                           .n_ends = (int)n_ends };
}

static void welcome(struct controller *c, uint64_t ticket) {
    char cluster[STORE_UUID_BYTES];
    Trainyard__V1__Welcome w = TRAINYARD__V1__WELCOME__INIT;
    election_history_cluster(c->election_history, cluster);
    w.cluster = cluster;
    w.lease_ttl_ms = LEASE_TTL_MS;
    w.heartbeat_ms = HEARTBEAT_INTERVAL_MS;
    Trainyard__V1__ControllerMessage m = TRAINYARD__V1__CONTROLLER_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_WELCOME;
    m.welcome = &w;
    dispatch_welcome(c->dispatch, ticket, &m);
}

void attach_handle_hello(struct controller *c, const struct inbox_item *item) {
    const Trainyard__V1__AgentHello *h = item->message->hello;
    const char *executor = item->executor;
    if (!item->stored)
        return;
    welcome(c, item->ticket);
    const size_t n = h->n_attempts;
    CLEANUP(freep) struct scheduler_part_report *parts = alloc_zeroed(n, sizeof *parts);
    for (size_t i = 0; i < n; i++) {
        parts[i] = part_of(h->attempts[i]);
        offer_again(c, executor, h->attempts[i]);
    }
    struct scheduler_event ev = { .kind = EV_EXECUTOR_ATTACHED, .executor = executor };
    ev.attach.incarnation = h->incarnation;
    ev.attach.slots[SCHEDULER_SLOT_CPU] = h->slots;
    ev.attach.slots[SCHEDULER_SLOT_CUDA] = devices_cuda(h->devices, h->n_devices, false);
    ev.attach.quarantined = devices_cuda(h->devices, h->n_devices, true);
    ev.attach.single_rank = h->devices_single_rank;
    for (size_t i = 0; i < h->n_features; i++)
        ev.attach.features |= scheduler_feature_read(h->features[i]);
    ev.attach.parts = parts;
    ev.attach.n_parts = (int)n;
    actions_run(c, &ev);
    /* The stream may have ended meanwhile, and its end may have been handled before this attach. */
    if (!dispatch_attached(c->dispatch, executor))
        detach_executor(c, executor, h->incarnation);
    for (size_t i = 0; i < n; i++) {
        free((void *)(uintptr_t)parts[i].ranks);
        free((void *)(uintptr_t)parts[i].ends);
    }
    log_event(LOG_INFO, "executor_attached", "executor", LOG_STR(executor), "incarnation", LOG_INT(h->incarnation),
              "slots", LOG_INT(h->slots), "attempts", LOG_INT((int64_t)n), NULL);
}
