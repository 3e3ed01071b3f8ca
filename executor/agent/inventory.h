/* What this host offers: slots for ranks, cores, and GPUs. GPUs are asked of NVML (nvml.h); why there are none is one
 * sentence. */
#ifndef EXECUTOR_AGENT_INVENTORY_H
#define EXECUTOR_AGENT_INVENTORY_H

#include "executor/agent/libraries.h"
#include "executor/agent/nvml.h"

enum { INVENTORY_DEVICES_MOST = NVML_DEVICES_MOST };

/* In NVML's order, the whole part: one that cannot be used takes its place, with the reason. */
struct inventory_device {
    int index;                /* in the driver's list, at this start */
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
    char device_reason
        [LIBRARIES_SENTENCE_BYTES]; /* why there are no devices, or what jobs on them must do without; "" */
    bool devices_lone;              /* ranks on them cannot talk: only jobs of one rank run there */
};

/* slots 0: one for each core. library: NVML's name, "libnvidia-ml.so.1" but in tests. part: of its devices. *ret_nvml
 * is the caller's, open as the devices were found in it; NULL when there are none. */
void inventory_take(struct inventory *ret, int slots, const char *library, struct nvml_part part,
                    struct nvml **ret_nvml);

#endif
