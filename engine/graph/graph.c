/* Builders of a graph, and its sums. Arrays grow as parts are added. */
#include "engine/graph/graph.h"

#include "base/alloc.h"
#include "engine/graph/op.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t shape_elements_from(const struct shape *s, int first) {
    int64_t n = 1;
    for (int i = first; i < s->n; i++)
        n *= s->dim[i];
    return n;
}

int64_t shape_elements(const struct shape *s) { return shape_elements_from(s, 0); }

size_t dtype_bytes(enum dtype dtype) { return dtype == DTYPE_BF16 || dtype == DTYPE_F16 ? 2 : 4; }

/* The array with capacity for one more after its n elements. */
static void *grow(void *p, int n, size_t size) {
    return n & (n - 1) ? p : alloc_resize(p, n ? 2 * (size_t)n : 1, size);
}
#define APPEND(g, of, n) ((g)->of = grow((g)->of, (g)->n, sizeof *(g)->of), (g)->n++)

struct graph *graph_new(enum dtype element) {
    struct graph *g = alloc_zeroed(1, sizeof *g);
    g->element = element;
    g->tokens = g->targets = g->logits = g->losses = -1;
    return g;
}

struct graph *graph_free(struct graph *g) {
    if (!g)
        return NULL;
    free(g->tensors);
    free(g->parameters);
    free(g->uses);
    free(g->ops);
    free(g->reverse);
    free(g->blocks);
    free(g);
    return NULL;
}

static void name_set(char dst[GRAPH_NAME], const char *a, const char *b) {
    int n = snprintf(dst, GRAPH_NAME, "%s%s", a, b);
    assert(n < GRAPH_NAME);
    (void)n;
}

static int add_tensor(struct graph *g, const char *prefix, const char *name, enum tensor_role role, enum dtype dtype,
                      struct shape shape) {
    int t = APPEND(g, tensors, n_tensors);
    struct tensor *p = &g->tensors[t];
    *p = (struct tensor){ .role = role, .dtype = dtype, .shape = shape, .block = g->n_blocks - 1, .alias_of = -1 };
    name_set(p->name, prefix, name);
    return t;
}

int graph_add_batch(struct graph *g, const char *name, enum batch_input input, enum dtype dtype, struct shape shape) {
    assert(g->n_batch < GRAPH_BATCH);
    int t = g->batch[g->n_batch++] = add_tensor(g, "", name, TENSOR_BATCH, dtype, shape);
    g->tensors[t].input = input;
    return t;
}

int graph_add_parameter(struct graph *g, const struct parameter *p) {
    int i = APPEND(g, parameters, n_parameters);
    g->parameters[i] = *p;
    g->parameters[i].first_use = -1;
    return i;
}

int graph_use(struct graph *g, int parameter, int number) {
    int last = -1;
    for (int s = g->parameters[parameter].first_use; s >= 0; last = s, s = g->uses[s].next_use)
        if (g->uses[s].number == number)
            return s;
    int s = APPEND(g, uses, n_uses);
    *(last < 0 ? &g->parameters[parameter].first_use : &g->uses[last].next_use) = s;
    g->uses[s] = (struct parameter_use){ .parameter = parameter, .number = number, .next_use = -1 };
    return s;
}

int graph_begin_block(struct graph *g, const char *name) {
    int input = g->n_blocks ? g->blocks[g->n_blocks - 1].output : -1;
    int b = APPEND(g, blocks, n_blocks);
    struct block *p = &g->blocks[b];
    *p = (struct block){ .first_op = g->n_ops, .input = input, .output = -1 };
    name_set(p->name, name, "");
    return b;
}

void graph_end_block(struct graph *g, int output) {
    struct block *b = &g->blocks[g->n_blocks - 1];
    b->n_ops = g->n_ops - b->first_op;
    b->output = output;
}

status_t graph_add_op(struct graph *g, const struct op_kind *kind, const struct op_arguments *args,
                      int ret_out[OP_OUTPUTS], struct err *e) {
    assert(args->n_in == (int)kind->n_in && args->n_uses >= (int)kind->n_uses_min);
    struct op op = { .kind = kind, .block = g->n_blocks - 1, .id = (uint32_t)g->n_ops, .attr = args->attr };
    name_set(op.name, args->name, "");
    for (int i = 0; i < OP_INPUTS; i++)
        op.in[i] = i < args->n_in ? args->in[i] : -1;
    for (int i = 0; i < OP_PARAMETERS; i++)
        op.use[i] = i < args->n_uses ? args->use[i] : -1;
    for (int i = 0; i < OP_OUTPUTS; i++)
        op.out[i] = -1;
    TRY(kind->shape(g, &op, e));
    const int at = APPEND(g, ops, n_ops); /* which may move them */
    g->ops[at] = op;
    memcpy(ret_out, op.out, sizeof op.out);
    return ST_OK;
}

void graph_add_output(struct graph *g, struct op *op, int i, const char *suffix, struct shape shape, int alias_of) {
    op->out[i] = add_tensor(g, op->name, suffix, TENSOR_ACTIVATION, g->element, shape);
    g->tensors[op->out[i]].alias_of = alias_of;
}

void graph_add_statistic(struct graph *g, struct op *op, int i, const char *suffix, struct shape shape) {
    op->out[i] = add_tensor(g, op->name, suffix, TENSOR_ACTIVATION, DTYPE_F32, shape);
}

int graph_add_gradient(struct graph *g, int t, int alias_of) {
    struct tensor of = g->tensors[t];
    int d = add_tensor(g, "d:", of.name, TENSOR_GRADIENT, of.dtype, of.shape);
    g->tensors[d].block = of.block;
    g->tensors[d].alias_of = alias_of;
    return d;
}

void graph_add_report(struct graph *g, const char *name, int tensor) {
    assert(g->n_reports < GRAPH_REPORTS && g->tensors[tensor].dtype == DTYPE_F32);
    struct graph_report *r = &g->report[g->n_reports++];
    r->tensor = tensor;
    snprintf(r->name, sizeof r->name, "%s", name);
}

int graph_storage(const struct graph *g, int t) {
    while (g->tensors[t].alias_of >= 0)
        t = g->tensors[t].alias_of;
    return t;
}

size_t graph_tensor_bytes(const struct graph *g, int t) {
    return (size_t)shape_elements(&g->tensors[t].shape) * dtype_bytes(g->tensors[t].dtype);
}

size_t graph_batch_bytes(const struct graph *g, int t) {
    const bool narrow = g->tensors[t].dtype == DTYPE_BF16 || g->tensors[t].dtype == DTYPE_F16;
    return narrow ? (size_t)shape_elements(&g->tensors[t].shape) * sizeof(float) : graph_tensor_bytes(g, t);
}

int64_t graph_parameter_elements(const struct graph *g) {
    int64_t n = 0;
    for (int i = 0; i < g->n_parameters; i++)
        n += shape_elements(&g->parameters[i].shape);
    return n;
}

double graph_flops(const struct graph *g) {
    double flops = 0;
    for (int i = 0; i < g->n_ops; i++)
        if (g->ops[i].kind->flops)
            flops += 3 * g->ops[i].kind->flops(g, &g->ops[i]);
    return flops;
}
