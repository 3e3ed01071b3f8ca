#include "service/controller/convert_agent.h"

#include "base/alloc.h"
#include "base/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool device_quarantined(const Trainyard__V1__Device *d) {
    return d->state == TRAINYARD__V1__DEVICE__STATE__QUARANTINED;
}

/* The links of the row: words separated by spaces. */
static char *links_of(const Trainyard__V1__Device *d) {
    size_t bytes = 1, used = 0;
    for (size_t i = 0; i < d->n_links; i++)
        bytes += strlen(d->links[i]) + 1;
    char *text = alloc_zeroed(bytes, 1);
    for (size_t i = 0; i < d->n_links; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i ? " " : "", d->links[i]);
    return text;
}

void device_rows_done(struct device_rows *rows) {
    for (size_t i = 0; i < rows->n; i++)
        free((char *)rows->items[i].links);
    free(rows->items);
}

/* The rows borrow the message's strings, except the links, which are allocated. */
struct device_rows device_rows_of(Trainyard__V1__Device *const *devices, size_t n) {
    struct device_rows rows = { .items = alloc_zeroed(n, sizeof *rows.items), .n = n };
    for (size_t i = 0; i < n; i++) {
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

void executor_row_of(const Trainyard__V1__AgentHello *h, struct store_executor *ret, struct device_rows *ret_devices) {
    *ret_devices = device_rows_of(h->devices, h->n_devices);
    *ret = (struct store_executor){ .id = h->executor,
                                    .incarnation = h->incarnation,
                                    .state = STORE_EXECUTOR_ATTACHED,
                                    .hostname = h->hostname,
                                    .address = h->address,
                                    .version = h->version,
                                    .slots = h->slots,
                                    .cores = threads_of(h->cores),
                                    .reason = h->device_reason,
                                    .devices = ret_devices->items,
                                    .n_devices = ret_devices->n };
}

struct rank_end rank_end_of(const Trainyard__V1__RankEnd *m) {
    struct rank_end end = {
        .rank = m->rank, .cause = (enum rank_end_cause)m->cause, .last_sequence = m->last_sequence, .step = m->step
    };
    snprintf(end.message, sizeof end.message, "%s", m->message);
    return end;
}

struct store_rank_end rank_end_row_of(const Trainyard__V1__RankEnd *m) {
    return (struct store_rank_end){ .rank = m->rank,
                                    .exit_code = m->exit_code,
                                    .signal = m->signal,
                                    .cause = (int)m->cause,
                                    .message = m->message,
                                    .last_sequence = m->last_sequence,
                                    .step = m->step,
                                    .time_us = m->time_us };
}

int threads_of(int32_t reported) { return reported > 0 && reported <= LIMIT_CORES ? reported : 0; }
