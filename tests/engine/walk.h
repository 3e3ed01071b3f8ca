/* Walks a graph without a plan, for tests of models and ops: every tensor has memory of its own (but for aliases), ops
 * run in the graph's order, reverse ops in theirs. Masters are fp32, weights are what `element` says. */
#ifndef TESTS_ENGINE_WALK_H
#define TESTS_ENGINE_WALK_H

#include "executor/engine/graph/op.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct walk {
    struct graph *graph;
    struct kernels *kernels;
    void **tensor;                        /* by tensor; aliases point to their storage */
    float **master, **moment1, **moment2; /* by parameter */
    element_t **weight;                   /* by parameter */
    float **gradient;                     /* by slot */
    void *workspace;
    bool training;
    float loss_scale;
    int64_t step;
};

static inline enum kernels_precision walk_precision(enum dtype element) {
    return element == DTYPE_BF16 ? KERNELS_BF16 : element == DTYPE_F16 ? KERNELS_FP16 : KERNELS_FP32;
}

static inline int64_t walk_elements(const struct walk *w, int parameter) {
    return shape_elements(&w->graph->parameters[parameter].shape);
}

/* Takes the graph. */
static inline void walk_open(struct walk *w, struct graph *g, int threads) {
    struct err e;
    *w = (struct walk){ .graph = g, .training = true };
    const struct kernels_config config = { .device = "cpu",
                                           .threads = threads,
                                           .precision = walk_precision(g->element) };
    if (kernels_open(&config, &w->kernels, &e) != ST_OK)
        fail_msg("%s", e.msg);
    w->tensor = calloc((size_t)g->n_tensors, sizeof *w->tensor);
    for (int t = 0; t < g->n_tensors; t++) {
        int s = graph_storage(g, t);
        if (!w->tensor[s])
            w->tensor[s] = calloc(1, graph_tensor_bytes(g, s));
        w->tensor[t] = w->tensor[s];
    }
    w->master = calloc((size_t)g->n_parameters, sizeof *w->master);
    w->moment1 = calloc((size_t)g->n_parameters, sizeof *w->moment1);
    w->moment2 = calloc((size_t)g->n_parameters, sizeof *w->moment2);
    w->weight = calloc((size_t)g->n_parameters, sizeof *w->weight);
    for (int p = 0; p < g->n_parameters; p++) {
        w->master[p] = calloc((size_t)walk_elements(w, p), sizeof(float));
        w->moment1[p] = calloc((size_t)walk_elements(w, p), sizeof(float));
        w->moment2[p] = calloc((size_t)walk_elements(w, p), sizeof(float));
        w->weight[p] = calloc((size_t)walk_elements(w, p), sizeof(float));
    }
    w->gradient = calloc((size_t)g->n_slots, sizeof *w->gradient);
    for (int s = 0; s < g->n_slots; s++)
        w->gradient[s] = calloc((size_t)walk_elements(w, g->slots[s].parameter), sizeof(float));
    size_t most = 1;
    for (int i = 0; i < g->n_ops; i++) {
        size_t bytes = g->ops[i].kind->workspace ? g->ops[i].kind->workspace(w->kernels, g, &g->ops[i]) : 0;
        most = bytes > most ? bytes : most;
    }
    w->workspace = aligned_alloc(64, (most + 63) / 64 * 64);
}

static inline void walk_close(struct walk *w) {
    struct graph *g = w->graph;
    for (int t = 0; t < g->n_tensors; t++)
        if (graph_storage(g, t) == t)
            free(w->tensor[t]);
    for (int p = 0; p < g->n_parameters; p++)
        free(w->master[p]), free(w->moment1[p]), free(w->moment2[p]), free(w->weight[p]);
    for (int s = 0; s < g->n_slots; s++)
        free(w->gradient[s]);
    free(w->tensor), free(w->master), free(w->moment1), free(w->moment2), free(w->weight), free(w->gradient);
    free(w->workspace);
    graph_free(g);
    kernels_close(w->kernels);
}

static inline void walk_call(const struct walk *w, const struct op *op, struct op_call *c) {
    *c = (struct op_call){ .kernels = w->kernels,
                           .graph = w->graph,
                           .op = op,
                           .workspace = w->workspace,
                           .training = w->training,
                           .seed = 1,
                           .step = &w->step,
                           .loss_scale = &w->loss_scale };
    for (int i = 0; i < OP_INPUTS; i++)
        c->in[i] = op->in[i] >= 0 ? w->tensor[op->in[i]] : NULL;
    for (int i = 0; i < OP_OUTPUTS; i++)
        c->out[i] = op->out[i] >= 0 ? w->tensor[op->out[i]] : NULL;
    for (int i = 0; i < OP_PARAMETERS; i++)
        c->param[i] = op->slot[i] >= 0 ? w->weight[w->graph->slots[op->slot[i]].parameter] : NULL;
}

static inline void walk_weights(struct walk *w) {
    struct err e;
    for (int p = 0; p < w->graph->n_parameters; p++)
        assert_int_equal(w->kernels->convert(w->kernels, w->weight[p], w->master[p], walk_elements(w, p), &e), ST_OK);
}

/* The mean of the losses. Batch inputs stand in their tensors. */
static inline double walk_forward(struct walk *w) {
    const struct graph *g = w->graph;
    struct err e;
    for (int i = 0; i < g->n_ops; i++) {
        struct op_call c;
        walk_call(w, &g->ops[i], &c);
        if (g->ops[i].kind->forward(&c, &e) != ST_OK)
            fail_msg("%s: %s", g->ops[i].name, e.msg);
    }
    const int64_t n = shape_elements(&g->tensors[g->losses].shape);
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)((const float *)w->tensor[g->losses])[i];
    return sum / (double)n;
}

/* A reverse op before r has written to the same slots: weights that a group shares. */
static inline bool walk_wrote_slots(const struct graph *g, int r) {
    const struct op *op = &g->ops[g->reverse[r].op];
    for (int i = 0; i < r; i++)
        for (int k = 0; k < OP_PARAMETERS; k++)
            if (op->slot[k] >= 0 && g->ops[g->reverse[i].op].slot[k] == op->slot[k])
                return true;
    return false;
}

static inline void walk_backward(struct walk *w) {
    const struct graph *g = w->graph;
    struct err e;
    for (int r = 0; r < g->n_reverse; r++) {
        const struct reverse_op *reverse = &g->reverse[r];
        const struct op *op = &g->ops[reverse->op];
        struct op_call c;
        walk_call(w, op, &c);
        for (int i = 0; i < OP_INPUTS; i++) {
            c.d_in[i] = reverse->d_in[i] >= 0 ? w->tensor[reverse->d_in[i]] : NULL;
            c.accumulate[i] = reverse->accumulate[i];
        }
        for (int i = 0; i < OP_OUTPUTS; i++)
            c.d_out[i] = reverse->d_out[i] >= 0 ? w->tensor[reverse->d_out[i]] : NULL;
        for (int i = 0; i < OP_PARAMETERS; i++)
            c.d_param[i] = op->slot[i] >= 0 ? w->gradient[op->slot[i]] : NULL;
        c.accumulate_param = walk_wrote_slots(g, r);
        if (op->kind->backward_input && !op->kind->reverse_is_view && op->kind->backward_input(&c, &e) != ST_OK)
            fail_msg("%s: %s", op->name, e.msg);
        if (op->kind->backward_weight && op->kind->backward_weight(&c, &e) != ST_OK)
            fail_msg("%s: %s", op->name, e.msg);
    }
}

/* The gradient of a parameter: its slots added into the first. */
static inline float *walk_gradient(struct walk *w, int parameter) {
    const int first = w->graph->parameters[parameter].first_slot;
    for (int *s = &w->graph->slots[first].next_slot; *s >= 0; s = &w->graph->slots[*s].next_slot) {
        for (int64_t i = 0; i < walk_elements(w, parameter); i++) {
            w->gradient[first][i] += w->gradient[*s][i];
            w->gradient[*s][i] = 0;
        }
    }
    return w->gradient[first];
}

#endif
