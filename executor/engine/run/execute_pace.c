/* How far the walk is ahead of a device whose calls run later. Progress is told as the device makes it, not as work is
 * queued: who hears of none for half a minute takes this rank for hung. So where nobody knows that steps are short the
 * walk stays a few places ahead and no more, which keeps the device as busy as a whole step would. Other ranks wait for
 * nothing that is queued after such a place, as for nothing after a WAIT. */
#include "executor/engine/run/execute.h"

/* A step that has taken so long may come to take thirty times that before it is taken for a hang. */
static const int64_t SHORT_NS_MOST = 1000000000;

bool execute_is_short(const struct execution *x, const struct plan *plan) {
    return plan->layout.kind == PLAN_TRAIN && x->step_ns > 0 && x->step_ns <= SHORT_NS_MOST;
}

status_t execute_pace_open(struct execution *x, struct err *e) {
    for (int i = 0; x->kernels->deferred && i < EXECUTE_AHEAD; i++)
        TRY(x->kernels->event_new(x->kernels, &x->places.events[i], e));
    return ST_OK;
}

void execute_pace_close(struct execution *x) {
    for (int i = 0; i < EXECUTE_AHEAD; i++)
        if (x->places.events[i])
            x->kernels->event_free(x->kernels, x->places.events[i]);
}

/* The device has come to so many places; progress is told of each. */
static status_t pass_until(struct execution *x, int64_t places, struct err *e) {
    for (; x->places.passed < places; x->places.passed++) {
        TRY(x->kernels->event_wait(x->kernels, x->places.events[x->places.passed % EXECUTE_AHEAD], e));
        if (x->progress)
            x->progress(x->progress_ctx);
    }
    return ST_OK;
}

status_t execute_pace(struct execution *x, const struct plan *plan, const struct instruction *i, struct err *e) {
    const bool place = i->kind == INSTRUCTION_LOAD || i->kind == INSTRUCTION_WAIT;
    if (!place || !x->kernels->deferred || execute_is_short(x, plan))
        return ST_OK;
    TRY(pass_until(x, x->places.marked + 1 - EXECUTE_AHEAD, e));
    return x->kernels->event_record(x->kernels, x->places.events[x->places.marked++ % EXECUTE_AHEAD], e);
}

status_t execute_pace_out(struct execution *x, struct err *e) { return pass_until(x, x->places.marked, e); }
