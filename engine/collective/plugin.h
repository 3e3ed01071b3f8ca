/* The collective's part of the CUDA plugin: the arguments that the engine passes, and the name under which the plugin
 * exports its functions. Private to this folder. */
#ifndef ENGINE_COLLECTIVE_PLUGIN_H
#define ENGINE_COLLECTIVE_PLUGIN_H

#include "engine/collective/transport.h"

#include <stdint.h>

#define COLLECTIVE_PLUGIN_NAME "collective_plugin"
#define COLLECTIVE_PLUGIN_ABI  5

/* `host` carries NCCL's ids and detects deaths that NCCL does not notice. It is borrowed and outlives the transport. */
struct device_gang {
    int rank, world_size, timeout_ms;
    int shard;         /* the shard of its data group's reductions that this rank owns */
    const bool *peers; /* [world_size] the ranks with which this rank will exchange; symmetric */
    struct collective_transport *host;
    collective_rendezvous_fn *rendezvous;
    void *rendezvous_ctx;
};

struct collective_plugin {
    uint32_t abi;
    MUST_CHECK status_t (*open)(const struct device_gang *gang, const struct collective_device *device,
                                struct collective_transport **ret, struct err *e);
    MUST_CHECK status_t (*check)(struct err *e); /* collective_device_check */
};

#endif
