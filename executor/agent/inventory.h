/* The resources that this host offers: slots for ranks, cores, and the GPUs that NVML lists (nvml.h), or one sentence
 * why there are no GPUs. */
#ifndef EXECUTOR_AGENT_INVENTORY_H
#define EXECUTOR_AGENT_INVENTORY_H

#include "base/cpu_topology.h"
#include "executor/agent/cuda_libraries.h"
#include "executor/agent/nvml.h"

enum { INVENTORY_DEVICES_MAX = NVML_DEVICES_MAX };

/* In NVML's order. A device that cannot be used is listed too, with the reason. */
struct inventory_device {
    int index;                /* in the driver's list, at this start */
    char model[96], uuid[96]; /* uuid: its permanent name */
    char pci_bus_id[32];
    char reason[96]; /* why it gets no rank, from nvml_facts; "" = it can get one */
    int64_t memory_bytes;
    char links[INVENTORY_DEVICES_MAX][NVML_LINK_BYTES]; /* to each of them */
};

struct inventory {
    char hostname[256];
    int cores; /* shared by its ranks */
    /* The CPUs of these cores; n_cpus 0: this executor has a part of the cores that it may use, and nothing says which,
     * or a part of their time. */
    struct cpu cpus[CPUS_MAX];
    int n_cpus;
    int slots;            /* ranks at a time */
    int threads_per_rank; /* cores / slots, at least 1: the smallest share of a rank */
    int n_devices;
    struct inventory_device devices[INVENTORY_DEVICES_MAX];
    char device_reason
        [CUDA_LIBRARIES_SENTENCE_BYTES]; /* why there are no devices, or which libraries are missing; "": neither */
    bool devices_single_rank;            /* ranks on them cannot communicate: only jobs of one rank run there */
};

/* cores 0: all that this process may use. slots 0: one for each core. library: NVML's name, "libnvidia-ml.so.1" except
 * in tests. part: the part of its devices that is offered. *ret_nvml: the library as it was opened for the devices,
 * owned by the caller; NULL if there are none. */
void inventory_take(struct inventory *ret, int cores, int slots, const char *library, struct nvml_part part,
                    struct nvml **ret_nvml);

#endif
