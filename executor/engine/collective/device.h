/* The part of a gang that the CUDA plugin carries: what it is told, and the name under which the plugin exports it.
 * Private to this folder. */
#ifndef EXECUTOR_ENGINE_COLLECTIVE_DEVICE_H
#define EXECUTOR_ENGINE_COLLECTIVE_DEVICE_H

#include "executor/engine/collective/transport.h"

#include <stdint.h>

#define COLLECTIVE_PLUGIN_NAME "collective_plugin"
#define COLLECTIVE_PLUGIN_ABI  4

/* `host` carries ids, and tells of deaths that NCCL does not notice; it is borrowed and outlives the transport. */
struct device_gang {
    int rank, world_size, timeout_ms, piece; /* of its data group's pieces, this rank's */
    const bool *swaps;                       /* (world_size): with whom this rank will swap, as they with it */
    struct transport *host;
    collective_exchange_fn *exchange;
    void *exchange_ctx;
};

struct collective_plugin {
    uint32_t abi;
    MUST_CHECK status_t (*open)(const struct device_gang *gang, const struct collective_device *device,
                                struct transport **ret, struct err *e);
    MUST_CHECK status_t (*check)(struct err *e); /* collective_device_check */
};

#endif
