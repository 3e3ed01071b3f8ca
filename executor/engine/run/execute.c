#include "executor/engine/run/execute.h"

#include <math.h>
#include <stdlib.h>

void *execution_at(const struct execution *x, struct plan_place place) {
    return place.offset == SIZE_MAX ? NULL : x->arena->family[place.family] + place.offset;
}

void *execution_tensor(const struct execution *x, const struct plan *plan, int tensor, int flight) {
    return tensor < 0 ? NULL : execution_at(x, plan_tensor_place(plan, tensor, flight, LIFE_FORWARD));
}

float *execution_slot(const struct execution *x, const struct plan *plan, int buffer, int slot) {
    return execution_at(x, plan_gradient_place(plan, buffer, plan->slot_begin[slot]));
}

double *execution_chunk_sums(const struct execution *x, const struct plan *plan) {
    (void)plan;
    return (double *)(void *)x->arena->family[FAMILY_WORKSPACE];
}

void *execution_workspace(const struct execution *x, const struct plan *plan) {
    return x->arena->family[FAMILY_WORKSPACE] + plan_chunk_sum_bytes(plan);
}

status_t execution_open(struct execution *x, const struct kernels *kernels, const struct arena *arena,
                        const struct plan *const *plans, int n, struct err *e) {
    void *answer = NULL;
    x->kernels = kernels;
    x->arena = arena;
    TRY(kernels->memory_new(kernels, sizeof *x->answer, &answer, e));
    x->answer = answer;
    TRY(execute_pace_open(x, e));
    TRY(step_control_open(&x->control, kernels, plans, n, e));
    x->n_captures = x->control.batches_most + 1; /* what there may be before the first LOAD */
    x->captures = calloc((size_t)x->n_captures, sizeof *x->captures);
    return x->captures ? ST_OK : err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for %d captures", x->n_captures);
}

void execution_close(struct execution *x) {
    step_control_close(&x->control); /* which waits for the device */
    for (int i = 0; x->captures && i < x->n_captures; i++)
        if (x->captures[i])
            x->kernels->capture_free(x->kernels, x->captures[i]);
    free(x->captures);
    x->captures = NULL;
    x->wait_clock = wait_clock_close(x->wait_clock);
    if (!x->kernels)
        return;
    execute_pace_close(x);
    x->kernels->memory_free(x->kernels, x->answer);
}

/* --- the walk ---*/

static status_t run_wait(struct execution *x, const struct instruction *i, struct err *e) {
    if (x->wait_clock)
        TRY(wait_clock_enter(x->wait_clock, e));
    TRY(i->queue == QUEUE_DATA ? channel_wait(x->channel, i->entry, e)
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
    case INSTRUCTION_KEEP: return execute_op(x, plan, i, e);
    case INSTRUCTION_ADD:
    case INSTRUCTION_ADD_SLOT:
    case INSTRUCTION_NORM:
    case INSTRUCTION_DECIDE: return execute_gradient(x, plan, i, e);
    case INSTRUCTION_STEP: return execute_step(x, plan, i, e);
    case INSTRUCTION_WAIT: return run_wait(x, i, e);
    case INSTRUCTION_DROP: return ST_OK; /* its bytes are another's from here on */
    default: return err_set(e, ST_INTERNAL, "%s has no place in the compute queue", instruction_name(i->kind));
    }
}

/* Tells the other queues that compute has done its first `done` instructions. */
static status_t reached(struct execution *x, int done, struct err *e) {
    if (x->channel)
        TRY(channel_reached(x->channel, done, e));
    return x->transfers ? transfers_reached(x->transfers, done, e) : ST_OK;
}

static status_t begin(struct execution *x, const struct plan *plan, struct err *e) {
    const struct kernels *k = x->kernels;
    const int64_t floats = sizeof(double) / sizeof(float), losses = step_control_record_words(plan) - 1;
    TRY(step_control_upload(&x->control, e));
    TRY(k->fill(k, (float *)(void *)x->control.device->losses, 0, losses * floats, e));
    if (plan->layout.kind == PLAN_TRAIN)
        TRY(k->fill(k, (float *)(void *)execution_chunk_sums(x, plan), 0, plan->norm_chunks * floats, e));
    if (x->wait_clock)
        wait_clock_begin(x->wait_clock);
    if (x->channel)
        channel_begin(x->channel, plan, x);
    if (x->transfers)
        transfers_begin(x->transfers, plan, x);
    return reached(x, 0, e);
}

status_t execute_calls(struct execution *x, const struct plan *plan, int from, int to, struct err *e) {
    const struct instruction_list *compute = &plan->queue[QUEUE_COMPUTE];
    for (int n = from; n < to; n++) {
        execute_watch_instruction(x, plan, n);
        const status_t st = run_instruction(x, plan, &compute->items[n], e);
        execute_watched_instruction(x, plan, n);
        TRY(st);
        TRY(execute_pace(x, plan, &compute->items[n], e));
        TRY(reached(x, n + 1, e));
        if (x->progress)
            x->progress(x->progress_ctx);
    }
    return ST_OK;
}

static bool is_computed(const struct instruction *i) {
    return i->kind == INSTRUCTION_FORWARD || i->kind == INSTRUCTION_RECOMPUTE ||
           i->kind == INSTRUCTION_BACKWARD_INPUT || i->kind == INSTRUCTION_BACKWARD_WEIGHT;
}

status_t execute_rehearsal(struct execution *x, const struct plan *plan, struct err *e) {
    const struct instruction_list *compute = &plan->queue[QUEUE_COMPUTE];
    for (int n = 0; n < compute->n; n++) {
        const struct instruction *i = &compute->items[n];
        if (!is_computed(i) || i->flight != 0)
            continue;
        TRY(execute_op(x, plan, i, e));
        TRY(x->kernels->finish(x->kernels, e));
        if (x->progress)
            x->progress(x->progress_ctx);
    }
    return ST_OK;
}

static status_t walk(struct execution *x, const struct plan *plan, struct err *e) {
    TRY(begin(x, plan, e));
    TRY(execute_can_launch(x, plan) ? execute_launch(x, plan, e)
                                    : execute_calls(x, plan, 0, plan->queue[QUEUE_COMPUTE].n, e));
    return step_control_download(&x->control, plan, e);
}

status_t execute(struct execution *x, const struct plan *plan, struct err *e) {
    struct step_control *host = step_control_begin(&x->control);
    host->step = x->step;
    host->flags = x->flags;
    if (x->optimizer)
        optimizer_rates(x->optimizer, x->learning_rate, host->learning_rate);
    execute_watch_step(x, plan);
    const status_t st = walk(x, plan, e);
    execute_watched(x);
    TRY(st);
    TRY(execute_pace_out(x, e));
    x->walked = x->walked || plan->layout.kind == PLAN_TRAIN;
    return step_control_end(&x->control, e);
}

status_t execution_take(struct execution *x, const struct step_control **ret, struct err *e) {
    TRY(step_control_take(&x->control, ret, e));
    if (x->wait_clock)
        TRY(wait_clock_take(x->wait_clock, &x->kernels_waited_ns, e));
    return x->channel ? channel_confirm(x->channel, e) : ST_OK;
}

status_t execute_now(struct execution *x, const struct plan *plan, const struct step_control **ret, struct err *e) {
    TRY(execute(x, plan, e));
    return execution_take(x, ret, e);
}

/* --- results ---*/

double execution_loss_sum(const struct step_control *c, const struct plan *plan, int *ret_bad) {
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

double execution_report_sum(const struct step_control *c, const struct plan *plan, int report) {
    const double *values = c->losses + (size_t)(1 + report) * (size_t)plan->layout.micro_batches;
    double sum = 0;
    for (int k = 0; k < plan->layout.micro_batches; k++)
        sum += values[k];
    return sum;
}
