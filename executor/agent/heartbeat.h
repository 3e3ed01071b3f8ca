/* The agent's heartbeats, from a thread of their own. The agent's loop reads and writes files, and a disk may block it
 * for longer than a lease; the host is still alive then, and its ranks keep training.
 *
 * If the loop is late by stalled_ms, the heartbeats stop until the loop calls heartbeat_loop_alive again. The lease
 * then ends, because the controller gets no reports from this host. */
#ifndef EXECUTOR_AGENT_HEARTBEAT_H
#define EXECUTOR_AGENT_HEARTBEAT_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/agent/grpc_stream.h"
#include "executor/agent/nvml.h"

#include <stdint.h>

/* What a heartbeat reports (AgentUse in dispatch.proto). */
struct heartbeat_use {
    int64_t spool_bytes, spool_limit_bytes, records_waiting, samples_dropped, lines_dropped, training_waits;
    int64_t connects, disconnects;
    int64_t data_store_bytes, data_peer_bytes, data_cache_bytes;
    int n_devices;
    struct {
        int index;
        struct nvml_sample sample;
    } devices[NVML_DEVICES_MAX];
};

struct heartbeat;
/* Counts the loop as alive from now. */
MUST_CHECK status_t heartbeat_open(int stalled_ms, struct heartbeat **ret, struct err *e);
struct heartbeat *heartbeat_close(struct heartbeat *h);
CLEANUP_DEFINE(struct heartbeat *, heartbeat_close)

/* From the loop's thread, at least every HEARTBEAT_INTERVAL_MS. `use` is copied and sent with the next heartbeat. */
void heartbeat_loop_alive(struct heartbeat *h, const struct heartbeat_use *use);
/* Sends a heartbeat on this stream every HEARTBEAT_INTERVAL_MS from now. NULL: no heartbeats; set it before the stream
 * is closed. A congested stream misses heartbeats. */
void heartbeat_set_stream(struct heartbeat *h, struct grpc_stream *stream);

#endif
