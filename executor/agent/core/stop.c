/* Stops ranks: on an order of the controller, on a fence, or because the agent itself stops.
 *
 * A stop order gives a grace time. The worker gets the order at once; TERM follows two seconds before the grace ends,
 * and KILL when it ends, so a worker that writes a checkpoint has all of the grace time except those two seconds. An
 * attempt that the controller has closed or fenced gets KILL at once: further work of its ranks is not used.
 *
 * An agent that leaves sends TERM to all ranks, and KILL two seconds later. It ends its stream when no rank is left and
 * every record is acknowledged, and exits when the stream has ended. After LEAVE_MAX_MS the agent does both at once:
 * the spool keeps the records for the next start. An agent that drains leaves its ranks to the controller, and waits
 * for their end, and for a stream, without a time limit: whoever asked it to drain may ask it to leave. */
#include "executor/agent/core/state.h"

#include <signal.h>
#include <stdio.h>

enum { LEAVE_CHECK_MS = 20, LEAVE_MAX_MS = 5000 };

/* Sends the signals that are due now. */
static void rank_signal(struct agent_core *c, struct agent_attempt *at, struct agent_rank *r) {
    const int signal = kill_escalation_due(&r->kill, c->now_ms);
    if (signal == SIGTERM)
        act(c, AGENT_ACT_TERM, at, r);
    else if (signal == SIGKILL)
        snprintf(act(c, AGENT_ACT_KILL, at, r)->text, AGENT_TEXT_BYTES, "%s", r->kill.reason);
}

void rank_stop(struct agent_core *c, struct agent_attempt *at, struct agent_rank *r, int64_t term_ms, int64_t kill_ms,
               const char *reason) {
    if (r->state != AGENT_RANK_RUNS || r->kill.killed)
        return;
    kill_escalation_request(&r->kill, c->now_ms, term_ms, kill_ms, reason);
    rank_signal(c, at, r);
}

static void attempt_kill(struct agent_core *c, struct agent_attempt *at, const char *reason) {
    at->stopping = true;
    EACH_RANK(at, r)
    rank_stop(c, at, r, 0, 0, reason);
}

static void attempt_stop(struct agent_core *c, struct agent_attempt *at, int grace_ms, const char *reason) {
    const int escalation_ms = grace_ms / 2 < KILL_ESCALATION_MS ? grace_ms / 2 : KILL_ESCALATION_MS;
    at->stopping = true;
    EACH_RANK(at, r) {
        if (grace_ms > 0 && r->state == AGENT_RANK_RUNS) {
            struct agent_action *order = act(c, AGENT_ACT_ORDER_STOP, at, r);
            order->grace_ms = grace_ms;
            snprintf(order->text, AGENT_TEXT_BYTES, "%s", reason);
        }
        rank_stop(c, at, r, grace_ms - escalation_ms, grace_ms, "did not stop in time and was killed");
    }
}

void stop_order(struct agent_core *c, const struct agent_event *ev) {
    EACH_ATTEMPT(c, at)
    if (at->job == ev->job && at->attempt == ev->attempt && !at->ended) {
        attempt_stop(c, at, ev->grace_ms > 0 ? ev->grace_ms : 0, ev->text);
        return;
    }
    struct agent_action *a = act(c, AGENT_ACT_REPORT_ATTEMPT_ENDED, NULL, NULL);
    a->job = ev->job;
    a->attempt = ev->attempt;
}

void stop_acknowledged(struct agent_core *c, struct agent_attempt *at) {
    at->acknowledged = true;
    if (at->ended)
        act(c, AGENT_ACT_REMOVE, at, NULL);
    else
        attempt_kill(c, at, "was killed because the controller has closed its attempt");
}

void stop_fenced(struct agent_core *c, struct agent_attempt *at) {
    attempt_kill(c, at, "was killed because its attempt is over");
    EACH_RANK(at, r)
    act(c, AGENT_ACT_DISCARD, at, r);
}

void stop_drain(struct agent_core *c) {
    if (c->leaving)
        return;
    c->leaving = c->draining = true;
    c->leave_check_ms = c->now_ms;
    c->leave_until_ms = INT64_MAX;
}

void stop_all(struct agent_core *c) {
    c->leaving = true;
    c->draining = false;
    c->leave_check_ms = c->now_ms;
    c->leave_until_ms = c->now_ms + LEAVE_MAX_MS;
    EACH_ATTEMPT(c, at) {
        at->stopping = true;
        EACH_RANK(at, r)
        rank_stop(c, at, r, 0, KILL_ESCALATION_MS, NULL);
    }
}

static void leave_tick(struct agent_core *c, const struct agent_event *ev) {
    const bool late = c->now_ms >= c->leave_until_ms;
    const bool delivered = ev->uploaded && !(c->draining && ev->stream_ended);
    if (!c->stream_closing && (late || (delivered && agent_core_ranks_open(c) == 0))) {
        c->stream_closing = true;
        act(c, AGENT_ACT_END_STREAM, NULL, NULL);
    }
    c->leave_check_ms = c->now_ms + LEAVE_CHECK_MS;
    if (late || (c->stream_closing && ev->stream_ended))
        act(c, AGENT_ACT_EXIT, NULL, NULL);
}

void stop_tick(struct agent_core *c, const struct agent_event *ev) {
    EACH_ATTEMPT(c, at)
    EACH_RANK(at, r)
    if (r->state == AGENT_RANK_RUNS)
        rank_signal(c, at, r);
    if (c->leaving && c->now_ms >= c->leave_check_ms)
        leave_tick(c, ev);
}
