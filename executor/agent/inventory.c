#include "executor/agent/inventory.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Devices keep NVML's numbers: one that the driver does not describe takes its place without a model. */
static void devices_find(struct inventory *inv, const char *library) {
    CLEANUP(nvml_closep) struct nvml *n = NULL;
    struct err why;
    int described = 0;
    if (nvml_open(library, &n, &why) != ST_OK) {
        snprintf(inv->device_reason, sizeof inv->device_reason, "%s", why.msg);
        return;
    }
    inv->n_devices = nvml_count(n);
    for (int i = 0; i < inv->n_devices; i++) {
        struct inventory_device *d = &inv->devices[i];
        struct nvml_facts facts;
        described += nvml_facts(n, i, &facts);
        d->index = i;
        d->memory_bytes = facts.memory_bytes;
        snprintf(d->model, sizeof d->model, "%s", facts.model);
        snprintf(d->uuid, sizeof d->uuid, "%s", facts.uuid);
        snprintf(d->pci_bus_id, sizeof d->pci_bus_id, "%s", facts.pci_bus_id);
        for (int to = 0; to < inv->n_devices; to++)
            nvml_link(n, i, to, d->links[to]);
    }
    if (described > 0)
        return;
    snprintf(inv->device_reason, sizeof inv->device_reason, "NVML lists %d GPUs but describes none", inv->n_devices);
    inv->n_devices = 0;
}

void inventory_take(struct inventory *ret, int slots, const char *nvml) {
    memset(ret, 0, sizeof *ret);
    if (gethostname(ret->hostname, sizeof ret->hostname - 1) < 0)
        snprintf(ret->hostname, sizeof ret->hostname, "localhost");
    cpu_set_t set;
    ret->cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    ret->slots = slots > 0 ? slots : ret->cores;
    ret->threads_per_rank = ret->cores / ret->slots > 0 ? ret->cores / ret->slots : 1;
    devices_find(ret, nvml);
}
