/* Samples every device through NVML each second and listens for Xids in between, in a thread of its own: a failing
 * device makes the driver slow, and the loop must not wait for it. Readings are posted to the agent's loop. */
#ifndef EXECUTOR_AGENT_DEVICE_MONITOR_H
#define EXECUTOR_AGENT_DEVICE_MONITOR_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/agent/nvml.h"
#include "executor/agent/reactor.h"

struct device_monitor;

struct device_monitor_reading {
    enum device_monitor_kind {
        DEVICE_MONITOR_SAMPLE,    /* device, sample */
        DEVICE_MONITOR_XID,       /* device, xid */
        DEVICE_MONITOR_INSPECTED, /* inspection: all up to this number are done, and their readings were posted */
    } kind;
    int device;
    int xid;
    int64_t inspection;
    struct nvml_sample sample;
};

/* On the loop's thread. */
typedef void device_monitor_fn(void *ctx, const struct device_monitor_reading *reading);

/* Closes `nvml` in the end, also on failure. */
MUST_CHECK status_t device_monitor_open(struct reactor *loop, struct nvml *nvml, device_monitor_fn *fn, void *ctx,
                                        struct device_monitor **ret, struct err *e);
/* On the loop's thread. fn is not called again, not even for readings that wait in the loop, and the loop may be
 * closed. Waits at most two seconds for the thread; a thread that the driver holds for longer frees its memory when the
 * driver returns. */
struct device_monitor *device_monitor_close(struct device_monitor *m);
CLEANUP_DEFINE(struct device_monitor *, device_monitor_close)

/* Inspects all devices as soon as the driver answers: listens for Xids for 200 ms, then samples each device. Returns
 * the number of the inspection, which DEVICE_MONITOR_INSPECTED reports. */
int64_t device_monitor_inspect(struct device_monitor *m);

#endif
