/* Executors attach: rows, welcomes, and what they say of their attempts. */
#include "base/bytes.h"
#include "base/limits.h"
#include "base/log.h"
#include "service/controller/state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool device_quarantined(const Trainyard__V1__Device *d) {
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

void device_rows_done(struct device_rows *rows) {
    for (size_t i = 0; i < rows->n; i++)
        free((char *)rows->items[i].links);
    free(rows->items);
}

/* What a message borrows, but for the links. */
struct device_rows device_rows_of(Trainyard__V1__Device *const *devices, size_t n) {
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
                                               .quarantined = device_quarantined(d),
                                               .reason = device_quarantined(d) ? d->reason : "",
                                               .links = links_of(d) };
    }
    return rows;
}

int devices_cuda(Trainyard__V1__Device *const *devices, size_t n, bool quarantined) {
    int found = 0;
    for (size_t i = 0; i < n; i++)
        found += strcmp(devices[i]->kind, "cuda") == 0 && device_quarantined(devices[i]) == quarantined;
    return found;
}

static void row_of(const Trainyard__V1__AgentHello *h, struct store_executor *ret, struct device_rows *ret_devices) {
    *ret_devices = device_rows_of(h->devices, h->n_devices);
    *ret = (struct store_executor){ .id = h->executor,
                                    .incarnation = h->incarnation,
                                    .state = STORE_EXECUTOR_ATTACHED,
                                    .hostname = h->hostname,
                                    .address = h->address,
                                    .version = h->version,
                                    .slots = h->slots,
                                    .reason = h->device_reason,
                                    .devices = ret_devices->items,
                                    .n_devices = ret_devices->n };
}

/* In one transaction: all of them, or none. */
static enum write_after write_rows(struct controller *c, const struct store_executor *rows, size_t n, struct err *e) {
    int tries = 0;
    enum write_after after;
    do
        after = write_judge(c, store_executor_attach(c->store, c->own_epoch, rows, n, e), e, &tries);
    while (after == WRITE_AGAIN);
    return after;
}

static bool store_together(struct controller *c, struct inbox_item *const *hellos, size_t n) {
    CLEANUP(freep) struct store_executor *rows = calloc(n, sizeof *rows);
    CLEANUP(freep) struct device_rows *devices = calloc(n, sizeof *devices);
    struct err e = { "" };
    if (!rows || !devices)
        return false;
    for (size_t i = 0; i < n; i++)
        row_of(hellos[i]->message->hello, &rows[i], &devices[i]);
    enum write_after after = write_rows(c, rows, n, &e);
    for (size_t i = 0; i < n; i++)
        device_rows_done(&devices[i]);
    return after == WRITE_DONE;
}

/* False: it is not to attach, and has been told why. */
static bool store_alone(struct controller *c, const struct inbox_item *hello) {
    struct store_executor row;
    struct device_rows devices;
    struct err e = { "" };
    row_of(hello->message->hello, &row, &devices);
    enum write_after after = write_rows(c, &row, 1, &e);
    device_rows_done(&devices);
    if (after == WRITE_DONE)
        return true;
    log_event(LOG_WARN, "executor_refused", "executor", LOG_STR(hello->executor), "incarnation",
              LOG_INT(hello->incarnation), "reason", LOG_STR(e.msg), NULL);
    dispatch_refuse(c->dispatch, hello->executor, hello->incarnation, ST_ABORTED, e.msg);
    return false;
}

/* Together, since a thousand may come at once; where that is refused for the sake of one (a newer start of it has a
 * row, a text that cannot be stored), each alone, so that only this one is kept out. */
void hello_store(struct controller *c, struct inbox_item *const *items, size_t n) {
    struct inbox_item *hellos[EVENTS_PER_TURN];
    size_t n_hellos = 0;
    assert(n <= EVENTS_PER_TURN);
    for (size_t i = 0; i < n; i++)
        if (inbox_item_is_hello(items[i]))
            hellos[n_hellos++] = items[i];
    bool all = n_hellos > 1 && store_together(c, hellos, n_hellos);
    for (size_t i = 0; i < n_hellos && !lead_over(c); i++)
        hellos[i]->stored = all || store_alone(c, hellos[i]);
}

/* The blobs of what runs there, for a gang whose addresses are still to be sent. */
static void offer_again(struct controller *c, const Trainyard__V1__AttemptStatus *a) {
    for (size_t r = 0; r < a->n_ranks; r++)
        if (a->ranks[r]->address.len > 0)
            rendezvous_offer(c->rendezvous, a->job, a->attempt, a->ranks[r]->rank, a->ranks[r]->address.data,
                             a->ranks[r]->address.len);
}

struct attach_room { /* for one attempt of a hello */
    struct scheduler_rank_report *ranks;
    struct rank_end *ends;
};

static bool fill_part(const Trainyard__V1__AttemptStatus *a, struct attach_room *room,
                      struct scheduler_part_report *ret) {
    size_t n_ends = a->end ? a->end->n_ranks : 0;
    room->ranks = calloc(a->n_ranks + 1, sizeof *room->ranks);
    room->ends = calloc(n_ends + 1, sizeof *room->ends);
    *ret = (struct scheduler_part_report){ .job = a->job, .attempt = a->attempt, .ended = a->ended };
    if (!room->ranks || !room->ends)
        return false;
    for (size_t r = 0; r < a->n_ranks; r++)
        room->ranks[r] = (struct scheduler_rank_report){ .rank = a->ranks[r]->rank,
                                                         .offered = a->ranks[r]->address.len > 0,
                                                         .joined = a->ranks[r]->joined };
    for (size_t r = 0; r < n_ends; r++)
        room->ends[r] = rank_end_of(a->end->ranks[r]);
    ret->ranks = room->ranks;
    ret->n_ranks = (int)a->n_ranks;
    ret->ends = room->ends;
    ret->n_ends = (int)n_ends;
    return true;
}

static void welcome(struct controller *c, const char *executor) {
    Trainyard__V1__Welcome w = TRAINYARD__V1__WELCOME__INIT;
    w.lease_ttl_ms = LEASE_TTL_MS;
    w.heartbeat_ms = HEARTBEAT_INTERVAL_MS;
    Trainyard__V1__ControllerMessage m = TRAINYARD__V1__CONTROLLER_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_WELCOME;
    m.welcome = &w;
    dispatch_welcome(c->dispatch, executor, &m);
}

void hello_tell(struct controller *c, const struct inbox_item *item) {
    const Trainyard__V1__AgentHello *h = item->message->hello;
    const char *executor = item->executor;
    if (!item->stored)
        return;
    welcome(c, executor);
    size_t n = h->n_attempts;
    struct scheduler_part_report *parts = calloc(n + 1, sizeof *parts);
    struct attach_room *rooms = calloc(n + 1, sizeof *rooms);
    bool whole = parts && rooms;
    for (size_t i = 0; whole && i < n; i++) {
        whole = fill_part(h->attempts[i], &rooms[i], &parts[i]);
        offer_again(c, h->attempts[i]);
    }
    if (whole) {
        struct scheduler_event ev = { .kind = EV_EXECUTOR_ATTACHED, .executor = executor };
        ev.attach.incarnation = h->incarnation;
        ev.attach.slots[SCHEDULER_SLOT_CPU] = h->slots;
        ev.attach.slots[SCHEDULER_SLOT_CUDA] = devices_cuda(h->devices, h->n_devices, false);
        ev.attach.quarantined = devices_cuda(h->devices, h->n_devices, true);
        ev.attach.lone = h->devices_lone;
        ev.attach.parts = parts;
        ev.attach.n_parts = (int)n;
        act_on(c, &ev);
    } else {
        dispatch_refuse(c->dispatch, executor, item->incarnation, ST_RESOURCE_EXHAUSTED,
                        "the controller has no memory for what the executor tells of its attempts: attach again");
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
