/* How ranks and attempts end.
 *
 * The death of a process comes first; two steps may have to follow before the rank is closed. Its pipes may not be
 * empty, because a full spool holds its records back. And its GPU may have to be inspected: the driver can report a
 * failure after the death of the worker that the failure caused, and a hardware failure must not use up one of the
 * job's restarts. The end is decided and reported once the GPU has been inspected, or at once if there is nothing to
 * inspect; the rank is closed when its end is decided and its pipes are empty. The last rank that is closed ends the
 * attempt. A GPU that becomes unhealthy while its rank runs ends that rank. */
#include "executor/agent/core/state.h"

#include <stdio.h>

enum { INSPECT_MAX_MS = 900 }; /* a death is reported within a second, even if the driver hangs */

void end_attempt_if_closed(struct agent_core *c, struct agent_attempt *at) {
    EACH_RANK(at, r)
    if (r->state != AGENT_RANK_CLOSED)
        return;
    at->ended = true;
    act(c, AGENT_ACT_SAVE, at, NULL);
    act(c, AGENT_ACT_REPORT_ATTEMPT_ENDED, at, NULL);
    if (at->acknowledged)
        act(c, AGENT_ACT_REMOVE, at, NULL);
}

static void others_stop(struct agent_core *c, struct agent_attempt *at) {
    EACH_RANK(at, r)
    rank_stop(c, at, r, 0, KILL_ESCALATION_MS, "did not end after another rank's death and was killed");
}

static void end_set(const struct agent_core *c, struct agent_rank *r, exit_cause cause, const char *sentence) {
    r->has_end = true;
    r->end = (struct agent_rank_end){ .status = r->status,
                                      .cause = cause,
                                      .time_us = r->died_us ? r->died_us : c->wall_us,
                                      .step = r->final.received ? r->final.step
                                              : r->step < 0     ? 0
                                                                : r->step };
    snprintf(r->end.message, sizeof r->end.message, "%s", sentence);
    snprintf(r->end.weights_sha256, sizeof r->end.weights_sha256, "%s", r->final.weights_sha256);
}

static void reason_find(const struct agent_core *c, const struct agent_rank *r, struct exit_reason *ret) {
    const struct exit_facts facts = { .status = r->status,
                                      .final = &r->final,
                                      .killed_because = kill_escalation_reason(&r->kill),
                                      .device = r->device == AGENT_NO_DEVICE ? 0 : c->devices[r->device].index,
                                      .device_reason = device_reason(c, r),
                                      .memory = &r->memory,
                                      .leaving = r->left };
    exit_reason_decide(&facts, ret);
}

static void end_decide(struct agent_core *c, struct agent_attempt *at, struct agent_rank *r) {
    struct exit_reason reason;
    r->inspect_until_ms = 0;
    reason_find(c, r, &reason);
    if (!reason.reported)
        snprintf(act(c, AGENT_ACT_LOG, at, r)->text, AGENT_TEXT_BYTES, "%s", reason.sentence);
    end_set(c, r, reason.cause, reason.sentence);
    act(c, AGENT_ACT_REPORT_ENDED, at, r);
    act(c, AGENT_ACT_SAVE, at, NULL);
}

static void close_if_done(struct agent_core *c, struct agent_attempt *at, struct agent_rank *r) {
    if (!r->has_end || !r->drained)
        return;
    r->state = AGENT_RANK_CLOSED;
    act(c, AGENT_ACT_CLOSE, at, r);
    device_release(c, r);
    end_attempt_if_closed(c, at);
}

static bool needs_inspection(const struct agent_core *c, const struct agent_rank *r, exit_cause cause) {
    return r->device != AGENT_NO_DEVICE && !device_reason(c, r) && !r->left && cause != EXIT_CAUSE(FINISHED) &&
           cause != EXIT_CAUSE(STOPPED);
}

/* The spool has refused a record: the final report may be among those that still wait in the pipe. */
static bool report_may_follow(const struct agent_rank *r) {
    return !r->drained && !r->final.received && r->status.signal == 0;
}

static void end_seek(struct agent_core *c, struct agent_attempt *at, struct agent_rank *r) {
    struct exit_reason reason;
    reason_find(c, r, &reason);
    if (needs_inspection(c, r, reason.cause)) {
        r->inspect_until_ms = c->now_ms + INSPECT_MAX_MS;
        act(c, AGENT_ACT_INSPECT, at, r)->device = r->device;
    } else {
        end_decide(c, at, r);
    }
}

static void died(struct agent_core *c, struct agent_attempt *at, struct agent_rank *r, const struct agent_event *ev) {
    struct exit_reason reason;
    r->state = AGENT_RANK_DEAD;
    r->status = ev->status;
    r->memory = ev->memory;
    r->died_us = ev->wall_us;
    r->left = c->leaving && !c->draining;
    threads_freed(c);
    reason_find(c, r, &reason);
    if (!report_may_follow(r))
        end_seek(c, at, r);
    if (reason.cause != EXIT_CAUSE(FINISHED) && !at->stopping)
        others_stop(c, at);
}

void end_exited(struct agent_core *c, struct agent_attempt *at, struct agent_rank *r, const struct agent_event *ev) {
    r->drained = ev->flag;
    r->step = ev->step;
    if (r->state == AGENT_RANK_RUNS)
        died(c, at, r, ev);
    else if (!r->has_end && !r->inspect_until_ms && !report_may_follow(r))
        end_seek(c, at, r);
    close_if_done(c, at, r);
}

static void inspected(struct agent_core *c, struct agent_attempt *at, struct agent_rank *r) {
    if (!r->inspect_until_ms)
        return;
    end_decide(c, at, r);
    close_if_done(c, at, r);
}

void end_device_unhealthy(struct agent_core *c, int device, const char *reason) {
    struct agent_device *d = &c->devices[device];
    struct agent_attempt *at;
    char why[120];
    if (*d->reason)
        return;
    snprintf(d->reason, sizeof d->reason, "%s", reason);
    struct agent_action *a = act(c, AGENT_ACT_QUARANTINE, NULL, NULL);
    a->device = device;
    snprintf(a->text, sizeof a->text, "%s", d->reason);
    struct agent_rank *r = rank_on(c, device, &at);
    if (!r)
        return;
    snprintf(why, sizeof why, "was killed because its GPU is quarantined: %.76s", reason);
    rank_stop(c, at, r, 0, 0, why);
    inspected(c, at, r);
}

void end_device_inspected(struct agent_core *c, int device) {
    struct agent_attempt *at;
    struct agent_rank *r = rank_on(c, device, &at);
    if (r)
        inspected(c, at, r);
}

void end_tick(struct agent_core *c) {
    EACH_ATTEMPT(c, at)
    EACH_RANK(at, r)
    if (r->inspect_until_ms && c->now_ms >= r->inspect_until_ms)
        inspected(c, at, r);
}

void end_unstarted(struct agent_core *c, struct agent_attempt *at, struct agent_rank *r, const char *reason) {
    /* A start order that arrives after the agent's goodbye does not use up a restart of its job. */
    const exit_cause cause = c->leaving ? EXIT_CAUSE(AGENT_LOST) : EXIT_CAUSE(NOT_STARTED);
    device_release(c, r);
    r->state = AGENT_RANK_CLOSED;
    r->status = (struct exit_status){ .exit_code = -1 };
    end_set(c, r, cause, reason);
    threads_freed(c);
    act(c, AGENT_ACT_REPORT_ENDED, at, r);
}
