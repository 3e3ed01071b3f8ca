#include "executor/engine/run/execute.h"

#include "base/clock.h"
#include "executor/engine/run/profiler.h"

#include <math.h>
#include <stdlib.h>

static size_t record_values(const struct plan *plan) {
    return (size_t)plan->layout.micro_batches * (size_t)(1 + plan->graph->n_reports);
}

size_t step_record_bytes(const struct plan *plan) {
    return sizeof(struct step_record) + record_values(plan) * sizeof(double);
}

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
    size_t record = 0, values = 0, norms = 1;
    for (int i = 0; i < n; i++) {
        record = step_record_bytes(plans[i]) > record ? step_record_bytes(plans[i]) : record;
        values = record_values(plans[i]) > values ? record_values(plans[i]) : values;
        norms = (size_t)plans[i]->norm_chunks > norms ? (size_t)plans[i]->norm_chunks : norms;
    }
    void *results = NULL;
    x->kernels = kernels;
    x->arena = arena;
    TRY(kernels->memory_new(kernels, (values + 1) * sizeof *x->results, &results, e));
    x->results = results;
    x->answer = (bool *)(x->results + values);
    x->record = calloc(1, record);
    x->norms = calloc(norms, sizeof *x->norms);
    return x->record && x->norms ? ST_OK : err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the step record");
}

void execution_close(struct execution *x) {
    if (x->kernels)
        x->kernels->memory_free(x->kernels, x->results);
    free(x->record);
    free(x->norms);
}

/* --- the walk ---*/

static status_t run_wait(struct execution *x, const struct instruction *i, struct err *e) {
    return i->queue == QUEUE_DATA ? channel_wait(x->channel, i->entry, e)
                                  : transfers_wait(x->transfers, i->queue, i->entry, e);
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

static status_t take_results(struct execution *x, const struct plan *plan, struct err *e) {
    const struct kernels *k = x->kernels;
    TRY(k->download(k, x->record->losses, x->results, record_values(plan) * sizeof *x->results, e));
    return k->finish(k, e);
}

/* Tells the other queues that compute has done its first `done` instructions. */
static status_t reached(struct execution *x, const struct plan *plan, int done, struct err *e) {
    if (done == x->results_due)
        TRY(take_results(x, plan, e));
    if (x->channel)
        TRY(channel_reached(x->channel, done, e));
    return x->transfers ? transfers_reached(x->transfers, done, e) : ST_OK;
}

/* How many instructions are done when the host must see this rank's losses: before other ranks do, and DECIDE. */
static int results_due(const struct plan *plan) {
    const struct instruction_list *data = &plan->queue[QUEUE_DATA], *compute = &plan->queue[QUEUE_COMPUTE];
    for (int i = 0; i < data->n; i++)
        if (data->items[i].kind == INSTRUCTION_EXCHANGE)
            return data->items[i].after;
    for (int i = 0; i < compute->n; i++)
        if (compute->items[i].kind == INSTRUCTION_DECIDE)
            return i;
    return compute->n;
}

static status_t begin(struct execution *x, const struct plan *plan, struct err *e) {
    const struct kernels *k = x->kernels;
    const int64_t floats = sizeof(double) / sizeof(float);
    TRY(k->fill(k, (float *)(void *)x->results, 0, (int64_t)record_values(plan) * floats, e));
    if (plan->layout.kind == PLAN_TRAIN)
        TRY(k->fill(k, (float *)(void *)execution_chunk_sums(x, plan), 0, plan->norm_chunks * floats, e));
    x->results_due = results_due(plan);
    if (x->channel)
        channel_begin(x->channel, plan, x);
    if (x->transfers)
        transfers_begin(x->transfers, plan, x);
    return ST_OK;
}

status_t execute(struct execution *x, const struct plan *plan, struct err *e) {
    const struct instruction_list *compute = &plan->queue[QUEUE_COMPUTE];
    TRY(begin(x, plan, e));
    TRY(reached(x, plan, 0, e));
    for (int n = 0; n < compute->n; n++) {
        int64_t start = x->profiler ? clock_mono_ns() : 0;
        TRY(run_instruction(x, plan, &compute->items[n], e));
        if (x->profiler)
            profiler_note(x->profiler, plan, QUEUE_COMPUTE, n, start, clock_mono_ns());
        TRY(reached(x, plan, n + 1, e));
        if (x->progress)
            x->progress(x->progress_ctx);
    }
    return ST_OK;
}

/* --- results ---*/

double execution_loss_sum(const struct execution *x, const struct plan *plan, int *ret_bad) {
    double sum = 0;
    *ret_bad = -1;
    for (int k = 0; k < plan->layout.micro_batches; k++) {
        double loss = x->record->losses[k];
        if (!isfinite(loss) && *ret_bad < 0)
            *ret_bad = k;
        sum += loss;
    }
    return sum;
}

double execution_report_sum(const struct execution *x, const struct plan *plan, int report) {
    const double *values = x->record->losses + (size_t)(1 + report) * (size_t)plan->layout.micro_batches;
    double sum = 0;
    for (int k = 0; k < plan->layout.micro_batches; k++)
        sum += values[k];
    return sum;
}
