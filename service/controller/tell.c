#include "base/bytes.h"
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

static bool is_quarantined(const Trainyard__V1__Device *d) {
    return d->state == TRAINYARD__V1__DEVICE__STATE__QUARANTINED;
}

/* `LINKS` of the row: words between spaces. */
static char *links_of(const Trainyard__V1__Device *d) {
    struct bytes text;
    bytes_init(&text, LIMIT_RPC_MESSAGE_BYTES);
    status_ignore(bytes_append(&text, "", 1, NULL));
    text.len = 0;
    for (size_t i = 0; i < d->n_links; i++)
        status_ignore(bytes_printf(&text, NULL, "%s%s", i ? " " : "", d->links[i]));
    return bytes_take(&text);
}

struct device_rows {
    struct store_device *items;
    size_t n;
};

static void device_rows_done(struct device_rows *rows) {
    for (size_t i = 0; i < rows->n; i++)
        free((char *)rows->items[i].links);
    free(rows->items);
}

/* What a message borrows, but for the links. */
static struct device_rows device_rows_of(Trainyard__V1__Device *const *devices, size_t n) {
    struct device_rows rows = { .items = calloc(n + 1, sizeof *rows.items) };
    rows.n = rows.items ? n : 0;
    for (size_t i = 0; i < rows.n; i++) {
        const Trainyard__V1__Device *d = devices[i];
        rows.items[i] = (struct store_device){ .kind = d->kind,
                                               .index = d->index,
                                               .model = d->model,
                                               .memory_bytes = d->memory_bytes,
                                               .uuid = d->uuid,
                                               .pci_bus_id = d->pci_bus_id,
                                               .quarantined = is_quarantined(d),
                                               .reason = is_quarantined(d) ? d->reason : "",
                                               .links = links_of(d) };
    }
    return rows;
}

static void tell_hello_row(struct controller *c, const Trainyard__V1__AgentHello *h) {
    struct device_rows devices = device_rows_of(h->devices, h->n_devices);
    struct store_executor row = { .id = h->executor,
                                  .incarnation = h->incarnation,
                                  .state = STORE_EXECUTOR_ATTACHED,
                                  .hostname = h->hostname,
                                  .address = h->address,
                                  .version = h->version,
                                  .slots = h->slots,
                                  .reason = h->device_reason,
                                  .devices = devices.items,
                                  .devices_n = devices.n };
    RECORD(c, store_executor_attach(c->store, c->own_epoch, &row, e));
    device_rows_done(&devices);
}

static int cuda_devices(Trainyard__V1__Device *const *devices, size_t n, bool quarantined) {
    int found = 0;
    for (size_t i = 0; i < n; i++)
        found += strcmp(devices[i]->kind, "cuda") == 0 && is_quarantined(devices[i]) == quarantined;
    return found;
}

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
        if (is_quarantined(m->devices[i]))
            log_event(LOG_WARN, "device_quarantined", "executor", LOG_STR(executor), "device",
                      LOG_INT(m->devices[i]->index), "reason", LOG_STR(m->devices[i]->reason), NULL);
    device_rows_done(&devices);
    act_on(c, &(struct sched_event){
                  .kind = EV_EXECUTOR_DEVICES,
                  .executor = executor,
                  .attach = { .incarnation = incarnation,
                              .slots = { [SCHED_SLOT_CUDA] = cuda_devices(m->devices, m->n_devices, false) },
                              .quarantined = cuda_devices(m->devices, m->n_devices, true) } });
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
        ev.attach.slots[SCHED_SLOT_CUDA] = cuda_devices(h->devices, h->n_devices, false);
        ev.attach.quarantined = cuda_devices(h->devices, h->n_devices, true);
        ev.attach.lone = h->devices_lone;
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

void tell_agent(struct controller *c, const char *executor, int64_t incarnation, const Trainyard__V1__AgentMessage *m) {
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
    case TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_DEVICES_CHANGED:
        tell_devices(c, executor, incarnation, m->devices_changed);
        break;
    case TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_REFUSED:
        log_event(LOG_WARN, "order_refused", "executor", LOG_STR(executor), "job", LOG_INT(m->refused->job), "reason",
                  LOG_STR(m->refused->message), NULL);
        break;
    default: break;
    }
}
