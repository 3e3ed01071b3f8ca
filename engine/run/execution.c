#include "engine/run/execution.h"

#include "base/alloc.h"

#include <stdlib.h>

status_t execution_open(struct execution *x, const struct kernels *kernels, const struct arena *arena,
                        const struct plan *const *plans, int n, struct err *e) {
    void *finite = NULL;
    x->kernels = kernels;
    x->arena = arena;
    TRY(kernels->memory_new(kernels, sizeof *x->finite, &finite, e));
    x->finite = finite;
    TRY(throttle_open(&x->throttle, kernels, e));
    TRY(step_control_open(&x->control, kernels, plans, n, e));
    x->capture.n_parts = x->control.max_batches + 1; /* one more for instructions before the first LOAD */
    x->capture.parts = alloc_zeroed((size_t)x->capture.n_parts, sizeof *x->capture.parts);
    return ST_OK;
}

void execution_close(struct execution *x) {
    step_control_close(&x->control); /* waits for the device */
    for (int i = 0; x->capture.parts && i < x->capture.n_parts; i++)
        if (x->capture.parts[i])
            x->kernels->capture_free(x->kernels, x->capture.parts[i]);
    free(x->capture.parts);
    x->capture.parts = NULL;
    x->wait_clock = wait_clock_close(x->wait_clock);
    if (!x->kernels)
        return;
    throttle_close(&x->throttle);
    x->kernels->memory_free(x->kernels, x->finite);
}

void execution_progress(const struct execution *x) {
    if (x->progress)
        x->progress(x->progress_ctx);
}

void *execution_at(const struct execution *x, struct plan_place place) {
    return place.offset == SIZE_MAX ? NULL : x->arena->family[place.family] + place.offset;
}

void *execution_tensor(const struct execution *x, const struct plan *plan, int tensor, int in_flight) {
    return tensor < 0 ? NULL : execution_at(x, plan_tensor_place(plan, tensor, in_flight, LIFETIME_FORWARD));
}

float *execution_use(const struct execution *x, const struct plan *plan, int buffer, int use) {
    return execution_at(x, plan_gradient_place(plan, buffer, plan->use_begin[use]));
}

float *execution_statistics(const struct execution *x, const struct plan *plan) {
    return execution_at(x, (struct plan_place){ FAMILY_ACTIVATIONS, plan->statistics_begin });
}

double *execution_chunk_sums(const struct execution *x, const struct plan *plan) {
    (void)plan;
    return (double *)(void *)x->arena->family[FAMILY_WORKSPACE];
}

void *execution_workspace(const struct execution *x, const struct plan *plan) {
    return x->arena->family[FAMILY_WORKSPACE] + plan_chunk_sum_bytes(plan);
}
