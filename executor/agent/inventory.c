#include "executor/agent/inventory.h"

#include "base/cores.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void device_describe(struct inventory_device *d, const struct nvml *n, int index, int count) {
    struct nvml_facts facts;
    nvml_facts(n, index, &facts);
    d->index = facts.index;
    d->memory_bytes = facts.memory_bytes;
    snprintf(d->model, sizeof d->model, "%s", *facts.model ? facts.model : "unknown");
    snprintf(d->uuid, sizeof d->uuid, "%s", facts.uuid);
    snprintf(d->pci_bus_id, sizeof d->pci_bus_id, "%s", facts.pci_bus_id);
    snprintf(d->reason, sizeof d->reason, "%s", facts.reason);
    for (int to = 0; to < count; to++)
        nvml_link(n, index, to, d->links[to]);
}

void inventory_take(struct inventory *ret, int cores, int slots, const char *library, struct nvml_part part,
                    struct nvml **ret_nvml) {
    struct err why;
    memset(ret, 0, sizeof *ret);
    *ret_nvml = NULL;
    if (gethostname(ret->hostname, sizeof ret->hostname - 1) < 0)
        snprintf(ret->hostname, sizeof ret->hostname, "localhost");
    /* By default every core that the process may use is one slot. */
    ret->cores = cores > 0 ? cores : cores_allowed();
    ret->n_cpus = cpu_topology_read(CPU_TOPOLOGY_ROOT, ret->cpus);
    if (cpu_topology_cores(ret->cpus, ret->n_cpus) != ret->cores)
        ret->n_cpus = 0;
    ret->slots = slots > 0 ? slots : ret->cores;
    ret->threads_per_rank = cores_per_rank(ret->cores, ret->slots);
    if (nvml_open(library, part, ret_nvml, &why) != ST_OK) {
        snprintf(ret->device_reason, sizeof ret->device_reason, "%s", why.msg);
        return;
    }
    ret->n_devices = nvml_count(*ret_nvml);
    for (int i = 0; i < ret->n_devices; i++)
        device_describe(&ret->devices[i], *ret_nvml, i, ret->n_devices);
}
