/* Passes each event to the file that decides about it.
 *
 * Each event changes the state at once and appends actions; no action is awaited. The result of an action (a process
 * was spawned, a device was inspected) comes back as an event of its own.
 *
 * Deadlines (a signal, an inspection, the hang check, cores to give out, the exit) are times in the state. The caller
 * sleeps until the earliest of them; a tick then does everything that is due. */
#include "executor/agent/core/state.h"

/* The hello carries ended attempts, pids and addresses. */
static void report_again(struct agent_core *c) {
    EACH_ATTEMPT(c, at) {
        if (at->ended)
            continue;
        EACH_RANK(at, r) {
            if (!r->has_end)
                act(c, AGENT_ACT_REPORT_THREADS, at, r);
            if (r->has_end)
                act(c, AGENT_ACT_REPORT_ENDED, at, r);
            else if (r->joined)
                act(c, AGENT_ACT_REPORT_JOINED, at, r);
        }
    }
}

/* ---- events ---- */

/* Every message of a worker is a sign of life: its ALIVE records wait in the pipe behind its other records. */
static void step_worker(struct agent_core *c, const struct agent_event *ev, struct agent_attempt *at,
                        struct agent_rank *r) {
    r->seen_ms = c->now_ms;
    switch (ev->kind) {
    case AGENT_EV_ADDRESS:
        rank_progressed(c, r);
        act(c, AGENT_ACT_REPORT_ADDRESS, at, r);
        break;
    case AGENT_EV_JOINED:
        rank_progressed(c, r);
        r->joined = true;
        act(c, AGENT_ACT_REPORT_JOINED, at, r);
        break;
    case AGENT_EV_STOP_STEP: act(c, AGENT_ACT_REPORT_STOP_STEP, at, r); break;
    case AGENT_EV_ALIVE:
        if (ev->progress != r->progress || ev->flag)
            rank_progressed(c, r);
        r->progress = ev->progress;
        break;
    case AGENT_EV_FINAL_REPORT: r->final = *ev->final; break;
    case AGENT_EV_SPOOL_WAIT: r->waits_for_spool = ev->flag; break;
    case AGENT_EV_BROKEN: rank_stop(c, at, r, 0, 0, ev->text); break;
    case AGENT_EV_EXITED: end_exited(c, at, r, ev); break;
    default: break;
    }
}

static void step_attempt(struct agent_core *c, const struct agent_event *ev, struct agent_attempt *at) {
    struct agent_rank *r = rank_find(at, ev->rank);
    switch (ev->kind) {
    case AGENT_EV_ACKNOWLEDGED: stop_acknowledged(c, at); break;
    case AGENT_EV_FENCED: stop_fenced(c, at); break;
    case AGENT_EV_STARTED: start_done(c, at); break;
    case AGENT_EV_START_FAILED: start_failed(c, at, ev->text); break;
    case AGENT_EV_REMOVED: attempt_removed(c, at); break;
    case AGENT_EV_SPAWNED:
        if (r)
            start_spawned(c, r, ev);
        break;
    default:
        if (r && (r->state == AGENT_RANK_RUNS || r->state == AGENT_RANK_DEAD))
            step_worker(c, ev, at, r);
    }
}

void agent_core_step(struct agent_core *c, const struct agent_event *ev, int64_t now_ms, struct agent_actions *ret) {
    struct agent_attempt *at;
    c->now_ms = now_ms;
    c->wall_us = ev->wall_us;
    c->actions = ret;
    switch (ev->kind) {
    case AGENT_EV_START: start_order(c, ev); break;
    case AGENT_EV_STOP: stop_order(c, ev); break;
    case AGENT_EV_ATTACHED: report_again(c); break;
    case AGENT_EV_DEVICE_UNHEALTHY: end_device_unhealthy(c, ev->device, ev->text); break;
    case AGENT_EV_DEVICE_INSPECTED: end_device_inspected(c, ev->device); break;
    case AGENT_EV_LEAVE: stop_all(c); break;
    case AGENT_EV_DRAIN: stop_drain(c); break;
    case AGENT_EV_TICK:
        stop_tick(c, ev);
        end_tick(c);
        hang_tick(c);
        threads_tick(c);
        break;
    default:
        at = attempt_find(c, ev->job, ev->attempt);
        if (at)
            step_attempt(c, ev, at);
    }
}

static int64_t sooner(int64_t a_ms, int64_t b_ms) { return b_ms && b_ms < a_ms ? b_ms : a_ms; }

int64_t agent_core_deadline_ms(const struct agent_core *c) {
    int64_t at_ms = sooner(sooner(c->hang_check_ms, c->share_cores_ms), c->leave_check_ms);
    EACH_ATTEMPT(c, at)
    EACH_RANK(at, r) {
        at_ms = sooner(at_ms, r->inspect_until_ms);
        if (r->state == AGENT_RANK_RUNS)
            at_ms = sooner(at_ms, kill_escalation_deadline_ms(&r->kill));
    }
    return at_ms;
}
