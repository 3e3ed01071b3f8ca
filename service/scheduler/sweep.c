#include "service/scheduler/sweep.h"

#include <stdio.h>

static int count(const struct sweep_state *s, enum sweep_trial_state state) {
    int n = 0;
    for (size_t i = 0; i < s->n_open; i++)
        n += s->open[i] == state;
    return n;
}

static enum sweep_trial_action decide_trial(enum sweep_trial_state state, bool cancel) {
    switch (state) {
    case SWEEP_TRIAL_RUNS: return cancel ? SWEEP_TRIAL_CANCEL : SWEEP_TRIAL_KEEP;
    case SWEEP_TRIAL_STOPPED: return SWEEP_TRIAL_CANCEL;
    case SWEEP_TRIAL_CANCELLING: return SWEEP_TRIAL_KEEP;
    case SWEEP_TRIAL_SUCCEEDED:
    case SWEEP_TRIAL_FAILED:
    case SWEEP_TRIAL_CANCELLED: break;
    }
    return SWEEP_TRIAL_STORE_END;
}

/* succeeded: with the trials whose end is stored now. */
static enum sweep_end decide_end(const struct sweep_state *s, int succeeded, struct sweep_decision *ret) {
    if (s->cancelling)
        return s->stopped ? SWEEP_END_FAILED : SWEEP_END_CANCELLED;
    if (succeeded > 0)
        return SWEEP_END_SUCCEEDED;
    snprintf(ret->reason, sizeof ret->reason, "none of the %d trial%s SUCCEEDED", s->trials, s->trials == 1 ? "" : "s");
    return SWEEP_END_FAILED;
}

void sweep_decide(const struct sweep_state *s, enum sweep_trial_action *actions, struct sweep_decision *ret) {
    const int unfinished = count(s, SWEEP_TRIAL_RUNS) + count(s, SWEEP_TRIAL_STOPPED) +
                           count(s, SWEEP_TRIAL_CANCELLING);
    const int failed = s->failed + count(s, SWEEP_TRIAL_FAILED), left = s->trials - s->created;
    const int free = s->max_parallel - unfinished;
    *ret = (struct sweep_decision){ .stop = !s->cancelling && failed > s->max_failures };
    for (size_t i = 0; i < s->n_open; i++)
        actions[i] = decide_trial(s->open[i], s->cancelling);
    if (ret->stop)
        snprintf(ret->reason, sizeof ret->reason, "%d trial%s FAILED, more than max_failures %d", failed,
                 failed == 1 ? "" : "s", s->max_failures);
    else if (unfinished == 0 && (s->cancelling || left == 0))
        ret->end = decide_end(s, s->succeeded + count(s, SWEEP_TRIAL_SUCCEEDED), ret);
    else if (!s->cancelling && free > 0)
        ret->start = left < free ? left : free;
}
