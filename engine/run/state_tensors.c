#include "engine/run/state_tensors.h"

#include "base/alloc.h"
#include "engine/optimizer/optimizer.h"
#include "engine/run/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Adds tensors of one kind (and state) of all parameters that have it. */
static void add_kind(struct state_tensors *s, const struct plan *plan, enum state_kind kind, int state) {
    const struct optimizer_kind *optimizer = plan->layout.optimizer;
    const struct graph *g = plan->graph;
    for (int i = 0; i < g->n_parameters; i++) {
        const struct parameter *p = &g->parameters[i];
        const bool whole = kind == STATE_OPTIMIZER && optimizer->state_elements;
        const struct shape shape = kind == STATE_OPTIMIZER ? optimizer_state_shape(optimizer, p, state) : p->shape;
        if (kind == STATE_OPTIMIZER && optimizer_state_elements(optimizer, p, state) == 0)
            continue;
        if (kind == STATE_AVERAGE && p->kind == PARAMETER_STATISTIC) /* running statistics are averages already */
            continue;
        struct checkpoint_tensor *t = &s->tensors[s->n];
        if (kind == STATE_OPTIMIZER)
            snprintf(s->names[s->n], CHECKPOINT_NAME_BYTES, CHECKPOINT_OPTIMIZER_PREFIX "%s.%s",
                     optimizer->state_name[state], p->name);
        else
            snprintf(s->names[s->n], CHECKPOINT_NAME_BYTES, "%s%s",
                     kind == STATE_AVERAGE ? CHECKPOINT_AVERAGE_PREFIX : "", p->name);
        *t = (struct checkpoint_tensor){ .name = s->names[s->n], .n_dims = shape.n };
        memcpy(t->shape, shape.dim, (size_t)shape.n * sizeof shape.dim[0]);
        s->of[s->n++] = (struct state_tensor){ .kind = kind, .parameter = i, .state = state, .elementwise = !whole };
    }
}

struct state_tensors *state_tensors_new(const struct plan *plan) {
    struct state_tensors *s = alloc_zeroed(1, sizeof *s);
    const size_t max = (size_t)plan->graph->n_parameters * (2 + PLAN_STATES);
    s->tensors = alloc_zeroed(max, sizeof *s->tensors);
    s->of = alloc_zeroed(max, sizeof *s->of);
    s->names = alloc_zeroed(max, sizeof *s->names);
    add_kind(s, plan, STATE_WEIGHT, 0);
    for (int state = 0; plan->layout.optimizer && state < plan->layout.optimizer->n_states; state++)
        add_kind(s, plan, STATE_OPTIMIZER, state);
    if (plan->layout.ema)
        add_kind(s, plan, STATE_AVERAGE, 0);
    return s;
}

struct state_tensors *state_tensors_free(struct state_tensors *s) {
    if (s) {
        free(s->tensors);
        free(s->of);
        free(s->names);
    }
    free(s);
    return NULL;
}

int state_segments_max(const struct state_tensors *s, const struct plan *plan) {
    (void)s;
    return plan->n_shards * (2 + PLAN_STATES);
}

static float *memory_of(const struct execution *x, const struct plan *plan, const struct state_tensor *t,
                        const struct plan_shard *p) {
    return t->kind == STATE_WEIGHT      ? weights_master(x, plan, p)
           : t->kind == STATE_OPTIMIZER ? weights_state(x, p, t->state)
                                        : weights_average(x, p);
}

/* Reduces [first, first + count) to this data rank's share of it, in whole chunks. */
static void take_share(const struct plan *plan, int64_t *first, int64_t *count) {
    const int64_t chunk = CHECKPOINT_CHUNK_ELEMENTS, D = plan->layout.data, d = plan_data_rank(&plan->layout);
    int64_t chunks = (*count + chunk - 1) / chunk, begin = chunks * d / D * chunk, end = chunks * (d + 1) / D * chunk;
    begin = begin < *count ? begin : *count;
    end = end < *count ? end : *count;
    *first += begin;
    *count = end - begin;
}

int state_segments(const struct state_tensors *s, const struct execution *x, const struct plan *plan, bool shared,
                   struct checkpoint_segment *segments, float **memory) {
    const bool divide = shared && plan->layout.zero == 0 && plan->layout.data > 1;
    int n = 0;
    for (int t = 0; t < s->n; t++)
        for (int k = 0; k < plan->n_shards; k++) {
            const struct plan_shard *p = &plan->shards[k];
            const struct state_tensor *of = &s->of[t];
            if (p->parameter != of->parameter)
                continue;
            int64_t first = of->elementwise ? p->first : 0;
            int64_t count = of->elementwise ? p->count : checkpoint_tensor_elements(&s->tensors[t]), at = first;
            if (divide && of->elementwise)
                take_share(plan, &at, &count);
            else if (divide && of->parameter % plan->layout.data != plan_data_rank(&plan->layout))
                count = 0;
            if (count == 0)
                continue;
            if (x)
                memory[n] = memory_of(x, plan, of, p) + (at - first);
            segments[n++] = (struct checkpoint_segment){ .tensor = t, .first = at, .count = count };
        }
    return n;
}
