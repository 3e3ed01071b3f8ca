#include "executor/engine/graph/graph.h"

#include "base/array.h"
#include "executor/engine/graph/op.h"

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

/* The number of a new last element of *pp, an array that has room for one from the start. Without memory the last
 * element stands in: whoever adds always has one to write. */
static int append(struct graph *g, void *pp, int *n, size_t size) {
    g->refused |= array_grow_of(pp, *n, size, NULL) != ST_OK;
    if (!*n || !g->refused)
        ++*n;
    return *n - 1;
}
#define APPEND(g, of, n) append((g), &(g)->of, &(g)->n, sizeof *(g)->of)

struct graph *graph_new(enum dtype element) {
    CLEANUP(graph_freep) struct graph *g = calloc(1, sizeof *g);
    if (!g || !(g->tensors = calloc(1, sizeof *g->tensors)) || !(g->parameters = calloc(1, sizeof *g->parameters)) ||
        !(g->slots = calloc(1, sizeof *g->slots)) || !(g->ops = calloc(1, sizeof *g->ops)) ||
        !(g->blocks = calloc(1, sizeof *g->blocks)))
        return NULL;
    g->element = element;
    g->tokens = g->targets = g->logits = g->losses = -1;
    return take_ptr(&g);
}

struct graph *graph_free(struct graph *g) {
    if (!g)
        return NULL;
    free(g->tensors);
    free(g->parameters);
    free(g->slots);
    free(g->ops);
    free(g->reverse);
    free(g->blocks);
    free(g);
    return NULL;
}

status_t graph_check_memory(const struct graph *g, struct err *e) {
    return g->refused ? err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a graph of more than %d ops", g->n_ops)
                      : ST_OK;
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
    g->parameters[i].first_slot = -1;
    return i;
}

int graph_slot(struct graph *g, int parameter, int group) {
    int last = -1;
    for (int s = g->parameters[parameter].first_slot; s >= 0; last = s, s = g->slots[s].next_slot)
        if (g->slots[s].group == group)
            return s;
    int s = APPEND(g, slots, n_slots);
    *(last < 0 ? &g->parameters[parameter].first_slot : &g->slots[last].next_slot) = s;
    g->slots[s] = (struct slot){ .parameter = parameter, .group = group, .next_slot = -1 };
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
    TRY(graph_check_memory(g, e));
    assert(args->n_in == (int)kind->n_in && args->n_slots >= (int)kind->n_slots_least);
    struct op op = { .kind = kind, .block = g->n_blocks - 1, .id = (uint32_t)g->n_ops, .attr = args->attr };
    name_set(op.name, args->name, "");
    for (int i = 0; i < OP_INPUTS; i++)
        op.in[i] = i < args->n_in ? args->in[i] : -1;
    for (int i = 0; i < OP_PARAMETERS; i++)
        op.slot[i] = i < args->n_slots ? args->slot[i] : -1;
    for (int i = 0; i < OP_OUTPUTS; i++)
        op.out[i] = -1;
    TRY(kind->shape(g, &op, e));
    const int at = APPEND(g, ops, n_ops); /* which may move them */
    g->ops[at] = op;
    memcpy(ret_out, op.out, sizeof op.out);
    return graph_check_memory(g, e);
}

void graph_add_output(struct graph *g, struct op *op, int i, const char *suffix, struct shape shape, int alias_of) {
    op->out[i] = add_tensor(g, op->name, suffix, TENSOR_ACTIVATION, g->element, shape);
    g->tensors[op->out[i]].alias_of = g->refused ? -1 : alias_of;
}

void graph_add_statistic(struct graph *g, struct op *op, int i, const char *suffix, struct shape shape) {
    op->out[i] = add_tensor(g, op->name, suffix, TENSOR_ACTIVATION, DTYPE_F32, shape);
}

int graph_add_gradient(struct graph *g, int t, int alias_of) {
    struct tensor of = g->tensors[t];
    int d = add_tensor(g, "d:", of.name, TENSOR_GRADIENT, of.dtype, of.shape);
    g->tensors[d].block = of.block;
    g->tensors[d].alias_of = g->refused ? -1 : alias_of;
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
