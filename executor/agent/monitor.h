/* Asks NVML about every device each second, and listens for Xids between, in a thread of its own: a device that is ill
 * makes the driver slow, and heartbeats must not wait for it. What it learns is posted to the agent's loop. */
#ifndef EXECUTOR_AGENT_MONITOR_H
#define EXECUTOR_AGENT_MONITOR_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/agent/nvml.h"
#include "executor/agent/reactor.h"

struct monitor;

struct monitor_reading {
    enum monitor_kind {
        MONITOR_SAMPLE, /* device, sample */
        MONITOR_XID,    /* device, xid */
        MONITOR_LOOKED, /* look: what was asked for up to this number is done, and told */
    } kind;
    int device;
    int xid;
    int64_t look;
    struct nvml_sample sample;
};

/* On the loop's thread. */
typedef void monitor_fn(void *ctx, const struct monitor_reading *reading);

/* Takes `nvml`, also on failure. */
MUST_CHECK status_t monitor_open(struct reactor *loop, struct nvml *nvml, monitor_fn *fn, void *ctx,
                                 struct monitor **ret, struct err *e);
/* On the loop's thread. fn is not called again, also for what waits in the loop, and the loop may be closed. Waits two
 * seconds at most for the thread; one that the driver holds for longer frees what it uses when it gets out. */
struct monitor *monitor_close(struct monitor *m);
CLEANUP_DEFINE(struct monitor *, monitor_close)

/* Listens for 200 ms and samples every device, as soon as the driver answers, then says so: returns the number that
 * MONITOR_LOOKED will have reached. */
int64_t monitor_look(struct monitor *m);

#endif
