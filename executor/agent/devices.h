/* This host's GPUs: their measurements, and which GPUs are unhealthy.
 *
 * Once a second each GPU is sampled. The samples are averaged over a step of the rank that has the GPU, and become
 * metrics of that rank. A GPU is unhealthy if it has had an uncorrected memory error since its driver was loaded, has
 * an Xid that a program does not cause, or is lost to the driver. Then the owner is called and quarantines the GPU.
 * DIR/quarantine keeps the quarantine over restarts (quarantine.h). A GPU that the driver does not describe, that is
 * too old, or that another executor of this host has claimed (device_claim.h) is also listed with that reason, until a
 * later start of the agent finds that the reason is gone.
 *
 * A device's number is its place in the inventory of this start. Files and messages that outlive the start name the
 * device by its UUID. */
#ifndef EXECUTOR_AGENT_DEVICES_H
#define EXECUTOR_AGENT_DEVICES_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/agent/host.h"
#include "executor/agent/nvml.h"

#include <trainyard/v1/executor.pb-c.h>
#include <trainyard/v1/worker.pb-c.h>

struct devices;

/* On the loop's thread. */
struct devices_owner {
    void *ctx;
    int64_t (*rank_step)(void *ctx, int device); /* newest step of the device's rank; -1: none, or no rank */
    void (*sample)(void *ctx, int device, const Trainyard__V1__MetricRow *row); /* metrics for that rank */
    void (*unhealthy)(void *ctx, int device, const char *reason);
    void (*inspected)(void *ctx, int device); /* devices_inspect is done */
};

/* Watches the devices of the host's inventory. Takes ownership of *nvml, the library that found the devices, unless
 * there are no devices. */
MUST_CHECK status_t devices_open(const struct host *host, struct nvml **nvml, const struct devices_owner *owner,
                                 struct devices **ret, struct err *e);
struct devices *devices_close(struct devices *d);
CLEANUP_DEFINE(struct devices *, devices_close)

const char *devices_uuid(const struct devices *d, int device);
int devices_index(const struct devices *d, int device);          /* in the driver's list */
const char *devices_reason(const struct devices *d, int device); /* why it gets no rank; "" = it is healthy */

/* A rank on this device starts: earlier samples do not belong to it. */
void devices_rank_starts(struct devices *d, int device);

/* Samples the device now, not at its next second, and calls `inspected` after `unhealthy`. */
void devices_inspect(struct devices *d, int device);

/* Marks the device in the list and in DIR/quarantine. */
void devices_quarantine(struct devices *d, int device, const char *reason);

/* The newest sample of the device; all values are NAN before the first. */
const struct nvml_sample *devices_sample(const struct devices *d, int device);
int devices_count(const struct devices *d);

/* The list for messages to the controller: pointers into d, valid until its next change. */
size_t devices_list(struct devices *d, Trainyard__V1__Device ***ret);

#endif
