/* What this host offers: slots for ranks, cores, and GPUs. GPUs are asked of NVML, which is loaded at run time, so that
 * the program runs where there is none; the reason why there are none is then one sentence. */
#ifndef EXECUTOR_AGENT_INVENTORY_H
#define EXECUTOR_AGENT_INVENTORY_H

#include <stdint.h>

enum { INVENTORY_DEVICES_MOST = 64 };

struct inventory_device {
    int index;
    char model[96];
    int64_t memory_bytes;
};

struct inventory {
    char hostname[256];
    int cores;            /* that this process may run on */
    int slots;            /* ranks at a time */
    int threads_per_rank; /* cores / slots, at least 1 */
    int n_devices;
    struct inventory_device devices[INVENTORY_DEVICES_MOST];
    char device_reason[240]; /* why there are no devices; "" when there are some */
};

/* slots 0: one for each core. nvml: the library's name, "libnvidia-ml.so.1" but in tests. */
void inventory_take(struct inventory *ret, int slots, const char *nvml);

#endif
