/* A step is executed in this order:
 *
 *   1. upload what changes from step to step (step_control), clear the step results on the device
 *   2. for each instruction of the compute queue: issue its calls, then start the entries of the other queues whose
 *      `after` is reached. A WAIT makes the compute queue wait for an entry of another queue
 *   3. download the step's result
 *
 * On a deferred device nothing of this waits for the device, except the throttle if the step may be long. execute_take
 * waits for the result.
 *
 * A short step of a single rank is captured: the calls between two LOADs become one captured part (a CUDA graph), made
 * the first time and launched from then on. The calls have the same arguments in every step, because all that changes
 * is read from the device's memory. LOADs are issued call by call: they wait for events between the launches, and a
 * capture has no events inside. */
#include "engine/run/execute.h"

#include "engine/run/data_queue.h"
#include "engine/run/instructions.h"
#include "engine/run/instrument.h"
#include "engine/run/transfers.h"

#include <math.h>

/* An agent takes a rank for hung after about 30 s without progress, so a step of up to 1 s may become thirty times
 * slower before progress within the step matters. */
static const int64_t MAX_SHORT_NS = 1000000000;

static bool is_short(const struct execution *x, const struct plan *plan) {
    return plan->layout.kind == PLAN_TRAIN && x->step_ns > 0 && x->step_ns <= MAX_SHORT_NS;
}

/* --- one instruction after the other --- */

static status_t run_wait(struct execution *x, const struct instruction *i, struct err *e) {
    if (x->wait_clock)
        TRY(wait_clock_enter(x->wait_clock, e));
    TRY(i->queue == QUEUE_DATA ? data_queue_wait(x->data_queue, i->entry, e)
                               : transfers_wait(x->transfers, i->queue, i->entry, e));
    return x->wait_clock ? wait_clock_leave(x->wait_clock, e) : ST_OK;
}

static status_t run_instruction(struct execution *x, const struct plan *plan, const struct instruction *i,
                                struct err *e) {
    switch (i->kind) {
    case INSTRUCTION_LOAD:
    case INSTRUCTION_FORWARD:
    case INSTRUCTION_RECOMPUTE:
    case INSTRUCTION_BACKWARD_INPUT:
    case INSTRUCTION_BACKWARD_WEIGHT:
    case INSTRUCTION_COPY_GRADIENT: return execute_op(x, plan, i, e);
    case INSTRUCTION_ADD:
    case INSTRUCTION_ADD_USE:
    case INSTRUCTION_NORM:
    case INSTRUCTION_DECIDE: return execute_gradient(x, plan, i, e);
    case INSTRUCTION_STEP: return execute_step(x, plan, i, e);
    case INSTRUCTION_STATISTICS: return execute_statistics(x, plan, i, e);
    case INSTRUCTION_SWITCH_AVERAGES: return execute_switch_averages(x, plan, i, e);
    case INSTRUCTION_WAIT: return run_wait(x, i, e);
    case INSTRUCTION_DROP: return ST_OK; /* other tensors use these bytes from here on */
    default: return err_set(e, ST_INTERNAL, "%s is not allowed in the compute queue", instruction_name(i->kind));
    }
}

/* Starts the entries of the other queues that wait for the first `done` instructions of the compute queue. */
static status_t start_reached(struct execution *x, int done, struct err *e) {
    if (x->data_queue)
        TRY(data_queue_start_reached(x->data_queue, done, e));
    return x->transfers ? transfers_start_reached(x->transfers, done, e) : ST_OK;
}

static status_t throttle(struct execution *x, const struct plan *plan, const struct instruction *i, struct err *e) {
    if (!x->kernels->deferred || is_short(x, plan) || (i->kind != INSTRUCTION_LOAD && i->kind != INSTRUCTION_WAIT))
        return ST_OK;
    return throttle_mark(&x->throttle, x->progress, x->progress_ctx, e);
}

/* Instructions [from, to) of the compute queue. */
static status_t run_range(struct execution *x, const struct plan *plan, int from, int to, struct err *e) {
    const struct instruction_list *compute = &plan->queue[QUEUE_COMPUTE];
    for (int n = from; n < to; n++) {
        instrument_instruction_begin(x, plan, n);
        const status_t st = run_instruction(x, plan, &compute->items[n], e);
        instrument_instruction_end(x, plan, n);
        TRY(st);
        TRY(throttle(x, plan, &compute->items[n], e));
        TRY(start_reached(x, n + 1, e));
        execution_progress(x);
    }
    return ST_OK;
}

/* --- captured parts --- */

/* Within a launched step no progress is reported, so only short steps are launched; a launch would save a longer one
 * nothing. Profiled steps and the search for a culprit need every call. Steps with other ranks are not captured: NCCL
 * launches from its own thread, on streams that would have to join the capture, on all ranks alike. That is untested.
 */
bool execute_can_launch(const struct execution *x, const struct plan *plan) {
    return x->kernels->deferred && x->capture.shapes_known && !x->capture.refused && !x->data_queue && !x->transfers &&
           !x->profiler && !x->culprit && is_short(x, plan);
}

static status_t capture(struct execution *x, const struct plan *plan, int from, int to, void **ret, struct err *e) {
    const struct kernels *k = x->kernels;
    void (*progress)(void *) = x->progress;
    struct err ignored;
    TRY(k->capture_begin(k, e));
    x->progress = NULL;
    status_t st = run_range(x, plan, from, to, e);
    x->progress = progress;
    if (st == ST_OK)
        return k->capture_end(k, ret, e);
    if (k->capture_end(k, ret, &ignored) == ST_OK)
        k->capture_free(k, *ret);
    *ret = NULL;
    return st;
}

/* A part that the device cannot capture has not run yet: it is issued call by call, like all parts after it. */
static status_t launch(struct execution *x, const struct plan *plan, int from, int to, void **part, struct err *e) {
    const struct kernels *k = x->kernels;
    if (!*part && !x->capture.refused)
        x->capture.refused = capture(x, plan, from, to, part, &x->capture.refusal) != ST_OK;
    return x->capture.refused ? run_range(x, plan, from, to, e) : k->launch(k, *part, e);
}

static int next_load(const struct instruction_list *compute, int from) {
    while (from < compute->n && compute->items[from].kind != INSTRUCTION_LOAD)
        from++;
    return from;
}

static status_t launch_parts(struct execution *x, const struct plan *plan, struct err *e) {
    const struct instruction_list *compute = &plan->queue[QUEUE_COMPUTE];
    for (int at = 0, part = 0; at < compute->n; part++) {
        const int load = next_load(compute, at);
        if (load > at)
            TRY(launch(x, plan, at, load, &x->capture.parts[part], e));
        at = load < compute->n ? load + 1 : load;
        TRY(run_range(x, plan, load, at, e));
    }
    return ST_OK;
}

/* --- a whole plan --- */

static status_t begin(struct execution *x, const struct plan *plan, struct err *e) {
    const struct kernels *k = x->kernels;
    const int64_t floats = sizeof(double) / sizeof(float), losses = step_control_result_words(plan) - 1;
    TRY(step_control_upload(&x->control, e));
    TRY(k->fill(k, (float *)(void *)x->control.device->losses, 0, losses * floats, e));
    if (plan->layout.kind == PLAN_TRAIN)
        TRY(k->fill(k, (float *)(void *)execution_chunk_sums(x, plan), 0, plan->norm_chunks * floats, e));
    if (x->wait_clock)
        wait_clock_begin(x->wait_clock);
    if (x->data_queue)
        data_queue_begin(x->data_queue, plan, x);
    if (x->transfers)
        transfers_begin(x->transfers, plan, x);
    return start_reached(x, 0, e);
}

static status_t run_plan(struct execution *x, const struct plan *plan, struct err *e) {
    TRY(begin(x, plan, e));
    TRY(execute_can_launch(x, plan) ? launch_parts(x, plan, e)
                                    : run_range(x, plan, 0, plan->queue[QUEUE_COMPUTE].n, e));
    return step_control_download(&x->control, plan, e);
}

status_t execute(struct execution *x, const struct plan *plan, struct err *e) {
    struct step_control *host = step_control_begin(&x->control);
    host->step = x->step;
    host->flags = x->flags;
    if (x->optimizer)
        optimizer_rates(x->optimizer, x->learning_rate, host->learning_rate);
    instrument_step_begin(x, plan);
    const status_t st = run_plan(x, plan, e);
    instrument_step_end(x);
    TRY(st);
    TRY(throttle_drain(&x->throttle, x->progress, x->progress_ctx, e));
    x->capture.shapes_known = x->capture.shapes_known || plan->layout.kind == PLAN_TRAIN;
    return step_control_end(&x->control, e);
}

status_t execute_take(struct execution *x, const struct step_control **ret, struct err *e) {
    TRY(step_control_take(&x->control, ret, e));
    if (x->wait_clock)
        TRY(wait_clock_take(x->wait_clock, &x->kernels_waited_ns, e));
    return x->data_queue ? data_queue_confirm(x->data_queue, e) : ST_OK;
}

status_t execute_now(struct execution *x, const struct plan *plan, const struct step_control **ret, struct err *e) {
    TRY(execute(x, plan, e));
    return execute_take(x, ret, e);
}

static bool is_computed(const struct instruction *i) {
    return i->kind == INSTRUCTION_FORWARD || i->kind == INSTRUCTION_RECOMPUTE ||
           i->kind == INSTRUCTION_BACKWARD_INPUT || i->kind == INSTRUCTION_BACKWARD_WEIGHT;
}

status_t execute_warm_up(struct execution *x, const struct plan *plan, struct err *e) {
    const struct instruction_list *compute = &plan->queue[QUEUE_COMPUTE];
    for (int n = 0; n < compute->n; n++) {
        const struct instruction *i = &compute->items[n];
        if (!is_computed(i) || i->in_flight != 0)
            continue;
        TRY(execute_op(x, plan, i, e));
        TRY(x->kernels->finish(x->kernels, e));
        execution_progress(x);
    }
    return ST_OK;
}

/* --- results --- */

double execute_loss_sum(const struct step_control *c, const struct plan *plan, int *ret_bad) {
    double sum = 0;
    *ret_bad = -1;
    for (int k = 0; k < plan->layout.micro_batches; k++) {
        double loss = c->losses[k];
        if (!isfinite(loss) && *ret_bad < 0)
            *ret_bad = k;
        sum += loss;
    }
    return sum;
}
