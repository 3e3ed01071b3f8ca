/* What this host offers: slots for ranks, cores, and GPUs. GPUs are asked of NVML (nvml.h); why there are none is one
 * sentence. */
#ifndef EXECUTOR_AGENT_INVENTORY_H
#define EXECUTOR_AGENT_INVENTORY_H

#include "executor/agent/nvml.h"

enum { INVENTORY_DEVICES_MOST = NVML_DEVICES_MOST };

/* In NVML's order, the whole list: one that cannot be used takes its place, with the reason. */
struct inventory_device {
    int index;                /* in this opening of NVML */
    char model[96], uuid[96]; /* uuid: what names it, here and everywhere */
    char pci_bus_id[32];
    char reason[96]; /* why it can get no rank, as nvml_facts has it; "" = it can */
    int64_t memory_bytes;
    char links[INVENTORY_DEVICES_MOST][NVML_LINK_BYTES]; /* to each of them */
};

struct inventory {
    char hostname[256];
    int cores;            /* that this process may run on */
    int slots;            /* ranks at a time */
    int threads_per_rank; /* cores / slots, at least 1 */
    int n_devices;
    struct inventory_device devices[INVENTORY_DEVICES_MOST];
    char device_reason[480]; /* why there are no devices; "" when there are some */
};

/* slots 0: one for each core. library: NVML's name, "libnvidia-ml.so.1" but in tests. *ret_nvml is the caller's, open
 * as the devices were found in it; NULL when there are none. */
void inventory_take(struct inventory *ret, int slots, const char *library, struct nvml **ret_nvml);

#endif
