#include "executor/engine/run/execute.h"

/* Nobody is told of progress within a step that is launched, so it is a short one: a launch saves a longer one nothing.
 * Steps that are looked into are walked; and those with other ranks, though all of their calls only queue work: NCCL
 * launches what it is given from a thread of its own, on streams that would have to be drawn into the capture, on all
 * ranks alike. */
bool execute_can_launch(const struct execution *x, const struct plan *plan) {
    return x->kernels->deferred && x->walked && !x->refused && !x->channel && !x->transfers && !x->profiler &&
           !x->culprit && execute_is_short(x, plan);
}

static status_t stage_all(struct execution *x, const struct plan *plan, struct err *e) {
    const struct instruction_list *compute = &plan->queue[QUEUE_COMPUTE];
    for (int i = 0; i < compute->n; i++)
        if (compute->items[i].kind == INSTRUCTION_LOAD)
            TRY(execute_stage(x, &compute->items[i], e));
    return ST_OK;
}

/* The calls of a step, once for each slot: their addresses are the slot's. */
static status_t capture(struct execution *x, const struct plan *plan, void **ret, struct err *e) {
    const struct kernels *k = x->kernels;
    void (*progress)(void *) = x->progress;
    struct err ignored;
    TRY(k->capture_begin(k, e));
    x->progress = NULL;
    status_t st = execute_calls(x, plan, e);
    x->progress = progress;
    if (st == ST_OK)
        return k->capture_end(k, ret, e);
    if (k->capture_end(k, ret, &ignored) == ST_OK)
        k->capture_free(k, *ret);
    *ret = NULL;
    return st;
}

/* What cannot be captured has not run: it is walked, as all steps after it. */
static status_t walk_instead(struct execution *x, const struct plan *plan, struct err *e) {
    x->refused = true;
    step_control_slot(&x->control)->unstaged = 0;
    return execute_calls(x, plan, e);
}

status_t execute_launch(struct execution *x, const struct plan *plan, struct err *e) {
    const struct kernels *k = x->kernels;
    struct step_control_slot *slot = step_control_slot(&x->control);
    TRY(stage_all(x, plan, e));
    if (x->progress)
        x->progress(x->progress_ctx);
    x->staged = true;
    status_t st = ST_OK;
    if (!slot->capture && capture(x, plan, &slot->capture, &x->refusal) != ST_OK)
        st = walk_instead(x, plan, e);
    else
        st = k->launch(k, slot->capture, e);
    x->staged = false;
    return st;
}
