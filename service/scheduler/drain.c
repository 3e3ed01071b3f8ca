/* Hosts that a person takes out of use: they get no more ranks, and keep those that they have until these end, or until
 * a checkpoint is written. */
#include "service/scheduler/state.h"

#include <stdio.h>

void executor_mark(struct executor *ex, const struct scheduler_drain *drain) {
    ex->drained = drain->drained;
    ex->drained_now = drain->drained && drain->now;
    snprintf(ex->drain_reason, sizeof ex->drain_reason, "%s", drain->drained && drain->reason ? drain->reason : "");
}

/* A gang leaves as a whole: its ranks elsewhere can do nothing without those here. */
static void leave(struct scheduler *s, const struct executor *ex, struct scheduler_actions *out) {
    char why[sizeof ex->id + sizeof ex->drain_reason + 32];
    snprintf(why, sizeof why, "executor %s is drained%s%s", ex->id, ex->drain_reason[0] ? ": " : "", ex->drain_reason);
    for (struct job *job = s->active; job; job = job->next)
        if (job->attempt && attempt_part(job->attempt, ex))
            job_preempt(s, job, why, out);
}

status_t executor_drain(struct scheduler *s, const struct scheduler_event *ev, int64_t now_ms,
                        struct scheduler_actions *out, struct err *e) {
    struct executor *ex = executor_find(s, ev->executor);
    if (!ex && ev->drain.drained) { /* lost long ago: it is drained when it comes back */
        TRY(executor_add(s, ev->executor, now_ms, &ex, e));
        ex->lost = true;
    }
    if (ex) {
        executor_mark(ex, &ev->drain);
        if (ex->drained_now)
            leave(s, ex, out);
        executor_forget_if_gone(s, ex);
    }
    queue_tell_again(s);
    action_reply(out, ev->token);
    return ST_OK;
}

void executor_drain_loaded(struct scheduler *s, struct scheduler_actions *out) {
    for (int i = 0; s->drain_due && i < s->n_all; i++)
        if (s->all[i]->drained_now)
            leave(s, s->all[i], out);
    s->drain_due = false;
}

void executor_count_drained(const struct executor *ex, enum scheduler_slot slot, struct room *room) {
    if (ex->slots[slot] == 0)
        return;
    room->drained += ex->slots[slot];
    room->lone_drained += executor_judge(ex, slot, 2) == SCHEDULER_HOST_LONE ? ex->slots[slot] : 0;
    room->drained_at = room->drained_at ? room->drained_at : ex;
    room->drained_hosts++;
}

void executor_drained_text(struct room room, char ret[DRAINED_BYTES]) {
    const struct executor *first = room.drained_at;
    char others[32] = "";
    if (room.drained_hosts > 1)
        snprintf(others, sizeof others, " and %d other%s", room.drained_hosts - 1, room.drained_hosts == 2 ? "" : "s");
    snprintf(ret, DRAINED_BYTES, "executor %s%s%s%s%s", first->id, first->drain_reason[0] ? " (" : "",
             first->drain_reason, first->drain_reason[0] ? ")" : "", others);
}
