#include "service/rpc/convert_executor.h"

#include "service/rpc/convert_job.h"
#include "service/rpc/convert_state.h"

#include <string.h>

/* links: words separated by spaces; each word becomes one element. */
static void convert_links(struct arena *a, const char *links, Trainyard__V1__Device *d) {
    size_t max = strlen(links) / 2 + 1; /* the largest number of words: each has one letter and one space */
    d->links = arena_alloc(a, max, sizeof *d->links);
    for (const char *word = links; *word;) {
        size_t n = strcspn(word, " ");
        d->links[d->n_links++] = arena_printf(a, "%.*s", (int)n, word);
        word += n + strspn(word + n, " ");
    }
}

static Trainyard__V1__Executor__State executor_state(const struct store_executor *row) {
    if (row->detach_time_us)
        return row->leaving ? TRAINYARD__V1__EXECUTOR__STATE__LEAVING : TRAINYARD__V1__EXECUTOR__STATE__DISCONNECTED;
    if (row->state != STORE_EXECUTOR_ATTACHED || !row->drain_time_us)
        return convert_executor_state(row->state);
    return row->slots_used ? TRAINYARD__V1__EXECUTOR__STATE__DRAINING : TRAINYARD__V1__EXECUTOR__STATE__DRAINED;
}

static Trainyard__V1__Drain *convert_drain(struct arena *a, const struct store_executor *row) {
    if (!row->drain_time_us)
        return NULL;
    Trainyard__V1__Drain *drain = arena_message(a, &trainyard__v1__drain__descriptor);
    drain->time = convert_timestamp(a, row->drain_time_us);
    drain->reason = (char *)row->drain_reason;
    drain->requester = (char *)row->drain_requester;
    drain->now = row->drain_now;
    return drain;
}

static Trainyard__V1__HostFault *convert_fault(struct arena *a, const struct store_executor *row) {
    if (!row->fault_time_us)
        return NULL;
    Trainyard__V1__HostFault *fault = arena_message(a, &trainyard__v1__host_fault__descriptor);
    if (!fault)
        return NULL;
    fault->time = convert_timestamp(a, row->fault_time_us);
    fault->job = arena_printf(a, "jobs/%lld", (long long)row->fault_job);
    fault->jobs = row->fault_jobs;
    fault->reason = (char *)row->fault_reason;
    return fault;
}

Trainyard__V1__Executor *convert_executor(struct arena *a, const struct store_executor *row) {
    Trainyard__V1__Executor *x = arena_message(a, &trainyard__v1__executor__descriptor);
    x->name = arena_printf(a, "executors/%s", row->id);
    x->state = executor_state(row);
    x->drain = convert_drain(a, row);
    x->fault = convert_fault(a, row);
    if (row->detach_time_us)
        x->detach_time = convert_timestamp(a, row->detach_time_us);
    x->hostname = (char *)row->hostname;
    x->address = (char *)row->address;
    x->slots = row->slots;
    x->cores = row->cores;
    x->slots_used = row->slots_used;
    x->version = (char *)row->version;
    x->attach_time = convert_timestamp(a, row->attach_time_us);
    x->heartbeat_time = convert_timestamp(a, row->heartbeat_time_us);
    x->reason = (char *)row->reason;
    x->devices = arena_alloc(a, row->n_devices, sizeof *x->devices);
    x->n_devices = row->n_devices;
    for (size_t i = 0; i < x->n_devices; i++) {
        Trainyard__V1__Device *d = x->devices[i] = arena_message(a, &trainyard__v1__device__descriptor);
        d->kind = (char *)row->devices[i].kind;
        d->index = row->devices[i].index;
        d->model = (char *)row->devices[i].model;
        d->memory_bytes = row->devices[i].memory_bytes;
        d->uuid = (char *)row->devices[i].uuid;
        d->pci_bus_id = (char *)row->devices[i].pci_bus_id;
        d->state = row->devices[i].quarantined ? TRAINYARD__V1__DEVICE__STATE__QUARANTINED
                                               : TRAINYARD__V1__DEVICE__STATE__HEALTHY;
        d->reason = (char *)row->devices[i].reason;
        convert_links(a, row->devices[i].links, d);
    }
    return x;
}
