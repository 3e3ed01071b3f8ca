/* Runs a graph without a plan, for tests of models and ops. Every tensor except an alias has its own memory. Ops run in
 * the graph's order, and reverse ops in theirs. Master weights are fp32; weights have the type `element`.
 *
 * The variable TRAINYARD_TEST_DEVICE selects a device other than cpu. Host and device use all memory at the same
 * address. With WALK_ON_SHIM the graph runs on CUDA's kernels as tests/kernels/cuda compiles them for the CPU: link
 * pair_shim.c. */
#ifndef TESTS_ENGINE_WALK_H
#define TESTS_ENGINE_WALK_H

#include "engine/graph/op.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef WALK_ON_SHIM
#include "tests/kernels/cuda/pair.h"
#endif

struct walk {
    struct graph *graph;
    const struct kernels *kernels;
    void **tensor;                        /* by tensor; aliases point to their storage */
    float **master, **moment1, **moment2; /* by parameter */
    element_t **weight;                   /* by parameter */
    float **gradient;                     /* by use */
    void *workspace;
    struct walk_now {
        int64_t step;
        float loss_scale;
    } * now; /* as kernels read them */
    bool training;
    float loss_scale;
    int64_t step;
#ifdef WALK_ON_SHIM
    struct pair tables;
#endif
};

static inline enum kernels_precision walk_precision(enum dtype element) {
    return element == DTYPE_BF16 ? KERNELS_BF16 : element == DTYPE_F16 ? KERNELS_FP16 : KERNELS_FP32;
}

static inline int64_t walk_elements(const struct walk *w, int parameter) {
    return shape_elements(&w->graph->parameters[parameter].shape);
}

#ifdef WALK_ON_SHIM
static inline void walk_kernels_open(struct walk *w, int threads) {
    (void)threads;
    w->tables.precision = walk_precision(w->graph->element);
    pair_tables_open(&w->tables);
    w->kernels = w->tables.k[MANY];
}

static inline void walk_kernels_close(struct walk *w) { pair_tables_close(&w->tables); }

static inline void *walk_memory(const struct walk *w, size_t bytes) {
    (void)w;
    return memset(pair_memory(bytes), 0, bytes);
}

static inline void walk_memory_free(const struct walk *w, void *p) {
    (void)w;
    pair_memory_free(p);
}
#else
static inline void walk_kernels_open(struct walk *w, int threads) {
    struct err e;
    struct kernels *k;
    const char *device = getenv("TRAINYARD_TEST_DEVICE");
    const struct kernels_config config = { .device = device ? device : "cpu",
                                           .threads = threads,
                                           .precision = walk_precision(w->graph->element) };
    if (kernels_open(&config, &k, &e) != ST_OK)
        fail_msg("%s", e.msg);
    w->kernels = k;
}

static inline void walk_kernels_close(struct walk *w) { kernels_close((struct kernels *)w->kernels); }

/* Zeroed memory that both the host and the device see. */
static inline void *walk_memory(const struct walk *w, size_t bytes) {
    struct err e;
    void *p = NULL;
    if (w->kernels->host_memory_new(w->kernels, bytes > 0 ? bytes : 1, &p, &e) != ST_OK)
        fail_msg("%s", e.msg);
    memset(p, 0, bytes);
    return p;
}

static inline void walk_memory_free(const struct walk *w, void *p) { w->kernels->host_memory_free(w->kernels, p); }
#endif

/* Waits until the queued calls have run, so that the host may read their results. */
static inline void walk_finish(const struct walk *w) {
    struct err e;
    if (w->kernels->finish(w->kernels, &e) != ST_OK)
        fail_msg("%s", e.msg);
}

/* Takes ownership of the graph. */
static inline void walk_open(struct walk *w, struct graph *g, int threads) {
    *w = (struct walk){ .graph = g, .training = true };
    walk_kernels_open(w, threads);
    w->tensor = calloc((size_t)g->n_tensors, sizeof *w->tensor);
    for (int t = 0; t < g->n_tensors; t++) {
        int s = graph_storage(g, t);
        if (!w->tensor[s])
            w->tensor[s] = walk_memory(w, graph_tensor_bytes(g, s));
        w->tensor[t] = w->tensor[s];
    }
    w->master = calloc((size_t)g->n_parameters, sizeof *w->master);
    w->moment1 = calloc((size_t)g->n_parameters, sizeof *w->moment1);
    w->moment2 = calloc((size_t)g->n_parameters, sizeof *w->moment2);
    w->weight = calloc((size_t)g->n_parameters, sizeof *w->weight);
    for (int p = 0; p < g->n_parameters; p++) {
        w->master[p] = walk_memory(w, (size_t)walk_elements(w, p) * sizeof(float));
        w->moment1[p] = walk_memory(w, (size_t)walk_elements(w, p) * sizeof(float));
        w->moment2[p] = walk_memory(w, (size_t)walk_elements(w, p) * sizeof(float));
        w->weight[p] = walk_memory(w, (size_t)walk_elements(w, p) * sizeof(float));
    }
    w->gradient = calloc((size_t)g->n_uses, sizeof *w->gradient);
    for (int s = 0; s < g->n_uses; s++)
        w->gradient[s] = walk_memory(w, (size_t)walk_elements(w, g->uses[s].parameter) * sizeof(float));
    size_t most = 1;
    for (int i = 0; i < g->n_ops; i++) {
        size_t bytes = g->ops[i].kind->workspace ? g->ops[i].kind->workspace(w->kernels, g, &g->ops[i]) : 0;
        most = bytes > most ? bytes : most;
    }
    w->workspace = walk_memory(w, most);
    w->now = walk_memory(w, sizeof *w->now);
}

static inline void walk_close(struct walk *w) {
    struct graph *g = w->graph;
    for (int t = 0; t < g->n_tensors; t++)
        if (graph_storage(g, t) == t)
            walk_memory_free(w, w->tensor[t]);
    for (int p = 0; p < g->n_parameters; p++) {
        void *const all[] = { w->master[p], w->moment1[p], w->moment2[p], w->weight[p] };
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            walk_memory_free(w, all[i]);
    }
    for (int s = 0; s < g->n_uses; s++)
        walk_memory_free(w, w->gradient[s]);
    walk_memory_free(w, w->workspace);
    walk_memory_free(w, w->now);
    free(w->tensor), free(w->master), free(w->moment1), free(w->moment2), free(w->weight), free(w->gradient);
    graph_free(g);
    walk_kernels_close(w);
}

static inline void walk_call(const struct walk *w, const struct op *op, struct op_call *c) {
    *w->now = (struct walk_now){ .step = w->step, .loss_scale = w->loss_scale };
    *c = (struct op_call){ .kernels = w->kernels,
                           .graph = w->graph,
                           .op = op,
                           .workspace = w->workspace,
                           .training = w->training,
                           .seed = 1,
                           .step = &w->now->step,
                           .loss_scale = &w->now->loss_scale };
    for (int i = 0; i < OP_INPUTS; i++)
        c->in[i] = op->in[i] >= 0 ? w->tensor[op->in[i]] : NULL;
    for (int i = 0; i < OP_OUTPUTS; i++)
        c->out[i] = op->out[i] >= 0 ? w->tensor[op->out[i]] : NULL;
    for (int i = 0; i < OP_PARAMETERS; i++)
        c->param[i] = op->use[i] >= 0 ? w->weight[w->graph->uses[op->use[i]].parameter] : NULL;
}

static inline void walk_weights(struct walk *w) {
    struct err e;
    for (int p = 0; p < w->graph->n_parameters; p++)
        assert_int_equal(w->kernels->convert(w->kernels, w->weight[p], w->master[p], walk_elements(w, p), &e), ST_OK);
}

/* Returns the mean of the losses. The caller has put the batch's inputs into their tensors. */
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
    walk_finish(w);
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)((const float *)w->tensor[g->losses])[i];
    return sum / (double)n;
}

/* Returns whether a reverse op before r has written to the same uses, as in a group that shares weights. */
static inline bool walk_wrote_uses(const struct graph *g, int r) {
    const struct op *op = &g->ops[g->reverse[r].op];
    for (int i = 0; i < r; i++)
        for (int k = 0; k < OP_PARAMETERS; k++)
            if (op->use[k] >= 0 && g->ops[g->reverse[i].op].use[k] == op->use[k])
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
            c.d_param[i] = op->use[i] >= 0 ? w->gradient[op->use[i]] : NULL;
        c.accumulate_param = walk_wrote_uses(g, r);
        if (op->kind->backward_input && !op->kind->reverse_is_view && op->kind->backward_input(&c, &e) != ST_OK)
            fail_msg("%s: %s", op->name, e.msg);
        if (op->kind->backward_weight && op->kind->backward_weight(&c, &e) != ST_OK)
            fail_msg("%s: %s", op->name, e.msg);
    }
    walk_finish(w);
}

/* The gradient of a parameter: adds the gradients of its uses to that of the first. */
static inline float *walk_gradient(struct walk *w, int parameter) {
    const int first = w->graph->parameters[parameter].first_use;
    for (int *s = &w->graph->uses[first].next_use; *s >= 0; s = &w->graph->uses[*s].next_use) {
        for (int64_t i = 0; i < walk_elements(w, parameter); i++) {
            w->gradient[first][i] += w->gradient[*s][i];
            w->gradient[*s][i] = 0;
        }
    }
    return w->gradient[first];
}

#endif
