/* This host's GPUs: which rank has which, what is measured of them, and which may not be used.
 *
 *     devices_take(d, &device, e);   // a free, healthy one: the rank's own until it ends
 *     devices_release(d, device);
 *
 * Each second's samples are averaged over a step of the rank that has the device, and go into its spool as metrics of
 * that rank. A device with an uncorrected memory error since the driver was loaded, with an Xid that is not a program's
 * own fault, or one that the driver has lost, is quarantined: its rank is ended with that reason, the controller is
 * told, and DIR/quarantine keeps it (quarantine.h). One that the driver does not describe, that is too old, or that
 * another executor of this host has (claim.h), is shown with that reason and gets no rank either, until an agent's next
 * start finds it otherwise.
 *
 * A device's number is its place in the inventory, of this start only; what outlives the start goes by its UUID. */
#ifndef EXECUTOR_AGENT_DEVICES_H
#define EXECUTOR_AGENT_DEVICES_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/agent/agent.h"

#include <trainyard/v1/executor.pb-c.h>

enum { DEVICE_NONE = -1 };

/* Watches what inventory.h has found, with the agent's `nvml`, which it takes; without devices it is empty. */
MUST_CHECK status_t devices_open(struct agent *agent, struct devices **ret, struct err *e);
struct devices *devices_close(struct devices *d);
CLEANUP_DEFINE(struct devices *, devices_close)

/* RESOURCE_EXHAUSTED: none is free and healthy. */
MUST_CHECK status_t devices_take(struct devices *d, int *ret_device, struct err *e);
void devices_release(struct devices *d, int device);

const char *devices_uuid(const struct devices *d, int device);
/* In the driver's list, as people know it; DEVICE_NONE of that. */
int devices_index(const struct devices *d, int device);
/* Why it is quarantined; NULL when it is not. */
const char *devices_reason(const struct devices *d, int device);

/* Has the device looked at now, not at its next turn; attempts_device_looked tells that it is done. */
void devices_look(struct devices *d, int device);

/* The list for the hello: pointers into d, until its next change. */
size_t devices_list(struct devices *d, Trainyard__V1__Device ***ret);

#endif
