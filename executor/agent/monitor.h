/* Asks NVML about every device each second, and listens for Xids between, in a thread of its own: a device that is ill
 * makes the driver slow, and heartbeats must not wait for it. Readings are posted to the agent's loop. */
#ifndef EXECUTOR_AGENT_MONITOR_H
#define EXECUTOR_AGENT_MONITOR_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/agent/nvml.h"
#include "executor/agent/reactor.h"

struct monitor;

struct monitor_reading {
    int device;
    int xid; /* 0: `sample` holds */
    struct nvml_sample sample;
};

/* On the loop's thread. */
typedef void monitor_fn(void *ctx, const struct monitor_reading *reading);

/* Takes `nvml`, also on failure. */
MUST_CHECK status_t monitor_open(struct reactor *loop, struct nvml *nvml, monitor_fn *fn, void *ctx,
                                 struct monitor **ret, struct err *e);
/* Ends the thread; one that the driver holds for more than two seconds is left to the process's end. */
struct monitor *monitor_close(struct monitor *m);
CLEANUP_DEFINE(struct monitor *, monitor_close)

#endif
