/* Drained hosts: a person has taken them out of use. They get no more ranks. They keep the ranks that they have until
 * these end or, if the drain is immediate, until a checkpoint is written. */
#include "service/scheduler/state.h"

#include <stdio.h>

void executor_mark(struct scheduler *s, struct executor *ex, const struct scheduler_drain *drain) {
    ex->drained = drain->drained;
    ex->drained_now = drain->drained && drain->now;
    snprintf(ex->drain_reason, sizeof ex->drain_reason, "%s", drain->drained && drain->reason ? drain->reason : "");
    executor_recount(s, ex);
}

/* A gang leaves as a whole, because its ranks on other hosts cannot continue alone. */
void executor_preempt_jobs(struct scheduler *s, const struct executor *ex, const char *why,
                           struct scheduler_actions *out) {
    for (const struct part *part = ex->first_part; part; part = part->next)
        job_preempt(s, part->job, why, out);
}

static void leave(struct scheduler *s, const struct executor *ex, struct scheduler_actions *out) {
    char why[sizeof ex->id + sizeof ex->drain_reason + 32];
    snprintf(why, sizeof why, "executor %s is drained%s%s", ex->id, ex->drain_reason[0] ? ": " : "", ex->drain_reason);
    executor_preempt_jobs(s, ex, why, out);
}

void executor_drain(struct scheduler *s, const struct scheduler_event *ev, int64_t now_ms,
                    struct scheduler_actions *out) {
    struct executor *ex = executor_find(s, ev->executor);
    if (!ex && ev->drain.drained) { /* it was lost long ago; the mark counts when it attaches again */
        ex = executor_add(s, ev->executor, now_ms);
        ex->lost = true;
    }
    if (ex) {
        executor_mark(s, ex, &ev->drain);
        if (ex->drained_now)
            leave(s, ex, out);
        executor_forget_if_gone(s, ex);
    }
    queue_report_again(s);
    action_reply(out, ev->token);
}

void executor_drain_loaded(struct scheduler *s, struct scheduler_actions *out) {
    for (int i = 0; s->drain_due && i < s->n_all; i++)
        if (s->all[i]->drained_now)
            leave(s, s->all[i], out);
    s->drain_due = false;
}

void executor_count_drained(const struct executor *ex, enum scheduler_slot slot, struct capacity *capacity) {
    if (ex->slots[slot] == 0)
        return;
    capacity->drained += ex->slots[slot];
    capacity->single_rank_drained += executor_availability(ex, slot, 2) == SCHEDULER_HOST_SINGLE_RANK ? ex->slots[slot]
                                                                                                      : 0;
    capacity->drained_at = capacity->drained_at ? capacity->drained_at : ex;
    capacity->drained_hosts++;
}

void executor_drained_text(struct capacity capacity, char ret[DRAINED_BYTES]) {
    const struct executor *first = capacity.drained_at;
    char others[32] = "";
    if (capacity.drained_hosts > 1)
        snprintf(others, sizeof others, " and %d other%s", capacity.drained_hosts - 1,
                 capacity.drained_hosts == 2 ? "" : "s");
    snprintf(ret, DRAINED_BYTES, "executor %s%s%s%s%s", first->id, first->drain_reason[0] ? " (" : "",
             first->drain_reason, first->drain_reason[0] ? ")" : "", others);
}
