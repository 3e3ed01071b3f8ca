/* The attempts whose ranks run on this host, or have ended here and wait for the controller's acknowledgement.
 *
 *   start         spawn each rank -> record pids in the directory -> send each its spec
 *   running       address, joined, alive of each rank are passed on; a rank without a sign of life for hang_ms is
 *                 killed, and one without progress for HANG_WAITING_MS more
 *   a rank dies   its last records are taken; unless it had finished, the attempt's other local ranks get TERM and, two
 *                 seconds later, KILL; RankEnded goes out at once, of a failed rank on CUDA once its device was looked
 *                 at (within a second): the device's own death may be told after the worker's
 *   ended         all local ranks are gone: AttemptEnded goes out, now and at each attach until it is acknowledged
 *
 * Whatever happens here is told to the controller through attach.h, and kept in the directory for the next start. */
#ifndef EXECUTOR_AGENT_ATTEMPTS_H
#define EXECUTOR_AGENT_ATTEMPTS_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/agent/agent.h"

#include <trainyard/v1/dispatch.pb-c.h>

/* Kills and awaits what an earlier agent left running, and takes up its attempts as ended. */
MUST_CHECK status_t attempts_open(struct agent *agent, struct attempts **ret, struct err *e);
/* Kills what still runs. */
struct attempts *attempts_close(struct attempts *a);
CLEANUP_DEFINE(struct attempts *, attempts_close)

/* Commands of the controller. Each may come twice; one for an attempt that is not here is answered or ignored as
 * dispatch.proto says. A start that cannot be carried out ends the attempt with the reason. */
void attempts_start(struct attempts *a, const Trainyard__V1__StartAttempt *start);
void attempts_rendezvous(struct attempts *a, const Trainyard__V1__AttemptRendezvous *rendezvous);
void attempts_stop(struct attempts *a, const Trainyard__V1__StopAttempt *stop);
void attempts_committed(struct attempts *a, const Trainyard__V1__AttemptCommitted *committed);
void attempts_acknowledged(struct attempts *a, int64_t job, int32_t attempt);

/* The attempt is over for the controller: its workers are killed at once, its records are dropped. */
void attempts_fenced(struct attempts *a, int64_t job, int32_t attempt);

/* Whether this attempt may still add records here. */
bool attempts_known(const struct attempts *a, int64_t job, int32_t attempt);

/* For AgentHello: one status each, newly allocated, freed by protobuf_c_message_free_unpacked. */
MUST_CHECK status_t attempts_statuses(const struct attempts *a, Trainyard__V1__AttemptStatus ***ret, size_t *ret_n,
                                      struct err *e);
/* After Welcome: what the hello does not carry (RankReady, RankEnded of attempts that still run) is sent again. */
void attempts_tell_all(struct attempts *a);

/* Of the rank that has this device: the newest step that it has reported (-1: none, or no rank); a row of samples for
 * its spool; its end, because the device is quarantined; that the device was looked at, as its own end waits for. */
int64_t attempts_device_step(const struct attempts *a, int device);
void attempts_device_sample(struct attempts *a, int device, const Trainyard__V1__MetricRow *row);
void attempts_device_lost(struct attempts *a, int device, const char *reason);
void attempts_device_looked(struct attempts *a, int device);

/* The agent leaves: every worker gets TERM, and KILL two seconds later; attempts_running becomes 0. */
void attempts_leave(struct attempts *a);
size_t attempts_running(const struct attempts *a); /* ranks */

#endif
