#include "executor/engine/run/execute.h"

/* Nobody is told of progress within a step that is launched, so it is a short one: a launch saves a longer one nothing.
 * Steps that are looked into are walked; and those with other ranks, though all of their calls only queue work: NCCL
 * launches what it is given from a thread of its own, on streams that would have to be drawn into the capture, on all
 * ranks alike. */
bool execute_can_launch(const struct execution *x, const struct plan *plan) {
    return x->kernels->deferred && x->walked && !x->refused && !x->channel && !x->transfers && !x->profiler &&
           !x->culprit && execute_is_short(x, plan);
}

/* A part's calls know no address of the host's, nor any of the step: all steps launch the same. */
static status_t capture(struct execution *x, const struct plan *plan, int from, int to, void **ret, struct err *e) {
    const struct kernels *k = x->kernels;
    void (*progress)(void *) = x->progress;
    struct err ignored;
    TRY(k->capture_begin(k, e));
    x->progress = NULL;
    status_t st = execute_calls(x, plan, from, to, e);
    x->progress = progress;
    if (st == ST_OK)
        return k->capture_end(k, ret, e);
    if (k->capture_end(k, ret, &ignored) == ST_OK)
        k->capture_free(k, *ret);
    *ret = NULL;
    return st;
}

/* What cannot be captured has not run: it is walked, as all that comes after it. */
static status_t launch(struct execution *x, const struct plan *plan, int from, int to, void **captured, struct err *e) {
    const struct kernels *k = x->kernels;
    if (!*captured && !x->refused)
        x->refused = capture(x, plan, from, to, captured, &x->refusal) != ST_OK;
    return x->refused ? execute_calls(x, plan, from, to, e) : k->launch(k, *captured, e);
}

static int next_load(const struct instruction_list *compute, int from) {
    while (from < compute->n && compute->items[from].kind != INSTRUCTION_LOAD)
        from++;
    return from;
}

/* LOADs are walked: what a batch's upload waits for are places between launches, which no capture has within. */
status_t execute_launch(struct execution *x, const struct plan *plan, struct err *e) {
    const struct instruction_list *compute = &plan->queue[QUEUE_COMPUTE];
    for (int at = 0, part = 0; at < compute->n; part++) {
        const int load = next_load(compute, at);
        if (load > at)
            TRY(launch(x, plan, at, load, &x->captures[part], e));
        at = load < compute->n ? load + 1 : load;
        TRY(execute_calls(x, plan, load, at, e));
    }
    return ST_OK;
}
