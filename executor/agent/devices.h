/* This host's GPUs: which rank has which, what is measured of them, and which may not be used.
 *
 *     devices_take(d, job, attempt, rank, &device, e);   // a free, healthy one: the rank's own until it ends
 *     devices_release(d, device);
 *
 * Each second's samples are averaged over a step of the rank that has the device, and go into its spool as metrics of
 * that rank. A device with an uncorrected memory error since the driver was loaded, or with an Xid that is not a
 * program's own fault, is quarantined: its rank is ended with that reason, the controller is told, and DIR/quarantine
 * keeps it until a person takes its line out and starts the agent again. */
#ifndef EXECUTOR_AGENT_DEVICES_H
#define EXECUTOR_AGENT_DEVICES_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/agent/agent.h"

#include <trainyard/v1/executor.pb-c.h>

enum { DEVICE_NONE = -1 };

/* Watches what inventory.h has found; without devices it is empty. */
MUST_CHECK status_t devices_open(struct agent *agent, struct devices **ret, struct err *e);
struct devices *devices_close(struct devices *d);
CLEANUP_DEFINE(struct devices *, devices_close)

/* RESOURCE_EXHAUSTED: none is free and healthy. */
MUST_CHECK status_t devices_take(struct devices *d, int *ret_device, struct err *e);
void devices_release(struct devices *d, int device);

const char *devices_uuid(const struct devices *d, int device);
/* Why it is quarantined; NULL when it is not. */
const char *devices_reason(const struct devices *d, int device);

/* The list for the hello: pointers into d, until its next change. */
size_t devices_list(struct devices *d, Trainyard__V1__Device ***ret);

#endif
