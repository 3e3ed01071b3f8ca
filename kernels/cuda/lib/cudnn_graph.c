/* Graphs and plans of cuDNN's backend API.
 *
 * Every object of the API is a descriptor: create it, set its attributes, finalise it. make, set and finish do this
 * and keep the first failure in the graph, so that a graph is written without a check after each call. The graph
 * owns its descriptors.
 *
 * cudnn_graph_plan asks cuDNN's heuristics for engine configurations and tries them in their order: a configuration
 * is accepted if its notes, its name and its workspace satisfy the choice and if it compiles. Accepted plans form a
 * list, of one or, for timing, of several. Refusals differ in their reason: an unsupported shape lets another kernel
 * compute, but a missing part of cuDNN is an error, because the user can repair it. */
#include "kernels/cuda/lib/cudnn_library.h"

#include "base/alloc.h"

#include <string.h>

enum { MAX_ENGINES = 16, MAX_NOTES = 32, ALIGNMENT = 16, WORKSPACE_ALIGNMENT = 256 };
/* Callers use the ids below. */
enum { FIRST_VIRTUAL = 1000 };

struct cudnn_graph cudnn_graph_begin(struct cudnn *c) {
    return (struct cudnn_graph){ .library = c, .next_virtual = FIRST_VIRTUAL };
}

/* UNIMPLEMENTED lets other kernels compute. All other failures are reported: the host lacks something, or a call
 * failed. */
static status_t status_of(cudnnStatus_t st) {
    switch (st) {
    case CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER:
    case CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDART:
    case CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING:
    case CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE: return ST_FAILED_PRECONDITION;
    default: return CUDNN_STATUS_CATEGORY((int)st) == CUDNN_STATUS_NOT_SUPPORTED ? ST_UNIMPLEMENTED : ST_INTERNAL;
    }
}

static status_t refusal(struct cudnn *c, cudnnStatus_t st, const char *what, struct err *e) {
    char reason[256] = "";
    c->cudnnGetLastErrorString(reason, sizeof reason);
    return err_set(e, status_of(st), "cuDNN refuses %s: status %d: %s", what, (int)st, reason);
}

/* Keeps the failure of a call in the graph. Callers stop after the first one. */
static bool fine(struct cudnn_graph *g, cudnnStatus_t st, const char *what) {
    if (st != CUDNN_STATUS_SUCCESS)
        g->status = refusal(g->library, st, what, &g->err);
    return st == CUDNN_STATUS_SUCCESS;
}

static cudnn_descriptor make(struct cudnn_graph *g, cudnnBackendDescriptorType_t type) {
    cudnn_descriptor d = NULL;
    if (g->status != ST_OK)
        return NULL;
    if (g->n_made == CUDNN_GRAPH_DESCRIPTORS) {
        g->status = err_set(&g->err, ST_INTERNAL, "a graph for cuDNN has more than %d parts", CUDNN_GRAPH_DESCRIPTORS);
        return NULL;
    }
    if (!fine(g, g->library->cudnnBackendCreateDescriptor(type, &d), "a descriptor"))
        return NULL;
    g->made[g->n_made++] = d;
    return d;
}

static void set(struct cudnn_graph *g, cudnn_descriptor d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t n, const void *value) {
    if (g->status == ST_OK)
        fine(g, g->library->cudnnBackendSetAttribute(d, name, type, n, value), "an attribute");
}

static void set_part(struct cudnn_graph *g, cudnn_descriptor d, cudnnBackendAttributeName_t name,
                     cudnn_descriptor part) {
    set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part);
}

static void finish(struct cudnn_graph *g, cudnn_descriptor d, const char *what) {
    if (g->status == ST_OK)
        fine(g, g->library->cudnnBackendFinalize(d), what);
}

static void add(struct cudnn_graph *g, cudnn_descriptor op, const char *what) {
    finish(g, op, what);
    if (g->status == ST_OK && g->n_ops == CUDNN_GRAPH_OPS)
        g->status = err_set(&g->err, ST_INTERNAL, "a graph for cuDNN has more than %d operations", CUDNN_GRAPH_OPS);
    if (g->status == ST_OK)
        g->ops[g->n_ops++] = op;
}

/* --- tensors ---*/

static cudnn_descriptor tensor(struct cudnn_graph *g, int64_t id, cudnnDataType_t type, const int64_t dim[4],
                               const int64_t stride[4], bool is_virtual, bool by_value) {
    const int64_t alignment = ALIGNMENT;
    cudnn_descriptor t = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(g, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
    set(g, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    set(g, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(g, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(g, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    set(g, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    finish(g, t, "a tensor");
    return t;
}

cudnn_descriptor cudnn_tensor(struct cudnn_graph *g, int64_t id, cudnnDataType_t type, const int64_t dim[4],
                              const int64_t stride[4]) {
    return tensor(g, id, type, dim, stride, false, false);
}

cudnn_descriptor cudnn_virtual(struct cudnn_graph *g, cudnnDataType_t type, const int64_t dim[4],
                               const int64_t stride[4]) {
    return tensor(g, g->next_virtual++, type, dim, stride, true, false);
}

cudnn_descriptor cudnn_scalar(struct cudnn_graph *g, int64_t id) {
    static const int64_t one[4] = { 1, 1, 1, 1 };
    return tensor(g, id, CUDNN_DATA_FLOAT, one, one, false, true);
}

/* --- operations ---*/

void cudnn_matmul(struct cudnn_graph *g, cudnn_descriptor a, cudnn_descriptor b, cudnn_descriptor y) {
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnn_descriptor m = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(g, m, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    finish(g, m, "a product");
    cudnn_descriptor op = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, y);
    set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, m);
    add(g, op, "a product");
}

/* axis: for GEN_INDEX; < 0: none. */
static void pointwise(struct cudnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t type, int64_t axis,
                      cudnn_descriptor x, cudnn_descriptor b, cudnn_descriptor t, cudnn_descriptor y) {
    cudnn_descriptor p = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, p, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(g, p, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
    if (axis >= 0)
        set(g, p, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finish(g, p, "an operation by elements");
    cudnn_descriptor op = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p);
    set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    if (b)
        set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    if (t)
        set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    add(g, op, "an operation by elements");
}

void cudnn_pointwise(struct cudnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t type, cudnn_descriptor x,
                     cudnn_descriptor b, cudnn_descriptor t, cudnn_descriptor y) {
    pointwise(g, mode, type, -1, x, b, t, y);
}

void cudnn_index(struct cudnn_graph *g, int64_t axis, cudnn_descriptor x, cudnn_descriptor y) {
    pointwise(g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, axis, x, NULL, NULL, y);
}

void cudnn_reduce(struct cudnn_graph *g, cudnnReduceTensorOp_t by, cudnn_descriptor x, cudnn_descriptor y) {
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnn_descriptor r = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(g, r, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g, r, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &by);
    finish(g, r, "a reduction");
    cudnn_descriptor op = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_part(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, r);
    set_part(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_part(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    add(g, op, "a reduction");
}

void cudnn_reshape(struct cudnn_graph *g, cudnn_descriptor x, cudnn_descriptor y) {
    cudnn_descriptor op = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_part(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_part(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add(g, op, "a reshape");
}

static cudnn_descriptor window(struct cudnn_graph *g, const struct convolution_dims *d) {
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t sides = 2, stride[2] = { d->stride, d->stride }, padding[2] = { d->padding, d->padding },
                  dilation[2] = { 1, 1 };
    cudnn_descriptor c = make(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set(g, c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g, c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(g, c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &sides);
    set(g, c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride);
    set(g, c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, padding);
    set(g, c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, padding);
    set(g, c, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation);
    finish(g, c, "a convolution");
    return c;
}

void cudnn_convolution(struct cudnn_graph *g, cudnnBackendDescriptorType_t kind, const struct convolution_dims *d,
                       cudnn_descriptor x, cudnn_descriptor w, cudnn_descriptor y) {
    static const struct names {
        cudnnBackendDescriptorType_t kind;
        cudnnBackendAttributeName_t window, x, w, y, alpha, beta;
    } all[] = {
        { CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA },
        { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA },
        { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA },
    };
    const float one = 1, none = 0;
    const struct names *n = all;
    while (n->kind != kind)
        n++;
    cudnn_descriptor c = window(g, d), op = make(g, kind);
    set_part(g, op, n->window, c);
    set_part(g, op, n->x, x);
    set_part(g, op, n->w, w);
    set_part(g, op, n->y, y);
    set(g, op, n->alpha, CUDNN_TYPE_FLOAT, 1, &one);
    set(g, op, n->beta, CUDNN_TYPE_FLOAT, 1, &none);
    add(g, op, "a convolution");
}

/* --- plans ---*/

struct cudnn_plan *cudnn_plan_free(struct cudnn *c, struct cudnn_plan *p) {
    for (struct cudnn_plan *next; p; p = next) {
        next = p->next;
        if (p->plan)
            c->cudnnBackendDestroyDescriptor(p->plan);
        if (p->engine_config)
            c->cudnnBackendDestroyDescriptor(p->engine_config);
        free(p);
    }
    return NULL;
}

static cudnnStatus_t notes_of(struct cudnn *c, cudnn_descriptor config, cudnn_descriptor engine,
                              cudnnBackendNumericalNote_t notes[MAX_NOTES], int64_t *ret_n) {
    int64_t n = 0;
    cudnnStatus_t st = c->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                   1, &n, &engine);
    *ret_n = 0;
    if (st == CUDNN_STATUS_SUCCESS)
        st = c->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, MAX_NOTES,
                                         ret_n, notes);
    return st;
}

/* NOT_SUPPORTED if the choice does not accept the engine. */
static cudnnStatus_t allow(struct cudnn *c, cudnn_descriptor config, const struct cudnn_choice *choice) {
    cudnnBackendNumericalNote_t notes[MAX_NOTES];
    cudnn_descriptor engine = NULL;
    int64_t n = 0;
    cudnnStatus_t st = c->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine);
    if (st != CUDNN_STATUS_SUCCESS)
        return st;
    st = notes_of(c, config, engine, notes, &n);
    for (int64_t i = 0; i < n && i < MAX_NOTES; i++)
        if (choice->deterministic && notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
            st = CUDNN_STATUS_NOT_SUPPORTED;
    c->cudnnBackendDestroyDescriptor(engine);
    return st;
}

/* Turns an engine into a plan. */
static cudnnStatus_t compile(struct cudnn *c, struct cudnn_plan *p) {
    int64_t n, bytes = 0;
    cudnnStatus_t st = c->cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &p->plan);
    if (st == CUDNN_STATUS_SUCCESS)
        st = c->handle ? c->cudnnBackendSetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                                     &c->handle)
                       : c->cudnnBackendSetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &c->properties);
    if (st == CUDNN_STATUS_SUCCESS)
        st = c->cudnnBackendSetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &p->engine_config);
    if (st == CUDNN_STATUS_SUCCESS)
        st = c->cudnnBackendFinalize(p->plan);
    if (st == CUDNN_STATUS_SUCCESS)
        st = c->cudnnBackendGetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n,
                                         &bytes);
    p->workspace = (size_t)bytes;
    return st;
}

/* NOT_SUPPORTED if the choice does not accept the engine or its plan needs too much workspace. */
static cudnnStatus_t finalise(struct cudnn *c, struct cudnn_plan *p, const struct cudnn_choice *choice) {
    cudnnStatus_t st = allow(c, p->engine_config, choice);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnn_engine_name(c, p->engine_config, p->engine);
    if (st == CUDNN_STATUS_SUCCESS && choice->engine && strcmp(p->engine, choice->engine) != 0)
        st = CUDNN_STATUS_NOT_SUPPORTED;
    if (st == CUDNN_STATUS_SUCCESS)
        st = compile(c, p);
    if (st == CUDNN_STATUS_SUCCESS && cudnn_plan_workspace(p) > choice->max_workspace)
        st = CUDNN_STATUS_NOT_SUPPORTED;
    if (st != CUDNN_STATUS_SUCCESS && p->plan) {
        c->cudnnBackendDestroyDescriptor(p->plan);
        p->plan = NULL;
    }
    return st;
}

/* The engine configurations of the graph, in the order of cuDNN's heuristics. The graph owns the descriptors. */
static int64_t engines(struct cudnn_graph *g, cudnn_descriptor ret[MAX_ENGINES]) {
    struct cudnn *c = g->library;
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t n = 0;
    cudnn_descriptor graph = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_ops, g->ops);
    if (c->handle)
        set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &c->handle);
    finish(g, graph, "a graph");
    cudnn_descriptor heuristic = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_part(g, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (c->properties)
        set_part(g, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, c->properties);
    finish(g, heuristic, "a graph");
    for (int i = 0; i < MAX_ENGINES; i++)
        ret[i] = make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (g->status == ST_OK)
        fine(g,
             c->cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                         MAX_ENGINES, &n, ret),
             "a graph");
    return g->status != ST_OK ? 0 : n < MAX_ENGINES ? n : MAX_ENGINES; /* cuDNN reports the full count */
}

/* Removes a descriptor from the graph's, so that it outlives the graph. */
static cudnn_descriptor take(struct cudnn_graph *g, cudnn_descriptor d) {
    for (int i = 0; i < g->n_made; i++)
        if (g->made[i] == d)
            g->made[i] = NULL;
    return d;
}

/* UNIMPLEMENTED: the engine is not acceptable. */
static status_t plan_of(struct cudnn_graph *g, const struct cudnn_choice *choice, cudnn_descriptor config,
                        struct cudnn_plan **ret, struct err *e) {
    struct cudnn_plan *p = alloc_zeroed(1, sizeof *p);
    p->engine_config = config;
    const cudnnStatus_t st = finalise(g->library, p, choice);
    if (st == CUDNN_STATUS_SUCCESS) {
        take(g, config);
        *ret = p;
        return ST_OK;
    }
    p->engine_config = NULL;
    cudnn_plan_free(g->library, p);
    return refusal(g->library, st, "an engine", e);
}

/* If an engine does not compile, the next one is tried. The run's record names the engine that computed, so that a
 * resume on another host uses the same one or reports that it is missing. An engine that lacks a part of cuDNN on
 * this host is a fault of the host, which a user can repair, so it is an error unless another engine was found
 * before. */
static status_t plans_of(struct cudnn_graph *g, const struct cudnn_choice *choice, struct cudnn_plan **ret,
                         struct err *e) {
    cudnn_descriptor config[MAX_ENGINES];
    struct cudnn_plan **end = ret;
    const int64_t n = engines(g, config), limit = choice->candidates > 1 ? choice->candidates : 1;
    struct err why, failure;
    status_t failed = ST_OK;
    if (g->status != ST_OK)
        return err_set(e, g->status, "%s", g->err.msg);
    for (int64_t i = 0, made = 0; i < n && made < limit; i++) {
        const status_t st = plan_of(g, choice, config[i], end, &why);
        if (st == ST_FAILED_PRECONDITION && made == 0)
            return err_set(e, st, "%s", why.msg);
        if (st != ST_OK && st != ST_UNIMPLEMENTED) {
            failed = st;
            failure = why;
        }
        if (st != ST_OK)
            continue;
        end = &(*end)->next;
        made++;
    }
    if (*ret)
        return ST_OK;
    if (failed != ST_OK)
        return err_set(e, failed, "%s", failure.msg);
    return choice->engine
               ? err_set(e, ST_FAILED_PRECONDITION, "the run's record chose an engine of cuDNN's that is not here")
               : err_set(e, ST_UNIMPLEMENTED, "cuDNN has no engine for this shape");
}

status_t cudnn_graph_plan(struct cudnn_graph *g, const struct cudnn_choice *choice, struct cudnn_plan **ret,
                          struct err *e) {
    struct cudnn *c = g->library;
    struct cudnn_plan *plans = NULL;
    const status_t st = plans_of(g, choice, &plans, e);
    for (int i = g->n_made - 1; i >= 0; i--)
        if (g->made[i])
            c->cudnnBackendDestroyDescriptor(g->made[i]);
    g->n_made = 0;
    if (st == ST_OK)
        *ret = plans;
    return st;
}

/* Includes space to align the beginning to WORKSPACE_ALIGNMENT. */
size_t cudnn_plan_workspace(const struct cudnn_plan *p) {
    return p->workspace ? p->workspace + WORKSPACE_ALIGNMENT : 0;
}

static void *aligned(void *workspace) {
    return (void *)(((uintptr_t)workspace + WORKSPACE_ALIGNMENT - 1) & ~(uintptr_t)(WORKSPACE_ALIGNMENT - 1));
}

status_t cudnn_plan_run(struct cudnn *c, const struct cudnn_plan *p, int n, const int64_t *ids, void *const *pointers,
                        void *workspace, struct err *e) {
    char reason[256] = "";
    void *const start = p->workspace ? aligned(workspace) : NULL;
    cudnn_descriptor pack = NULL;
    cudnnStatus_t st = c->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (st == CUDNN_STATUS_SUCCESS)
        st = c->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids);
    if (st == CUDNN_STATUS_SUCCESS)
        st = c->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, pointers);
    if (st == CUDNN_STATUS_SUCCESS)
        st = c->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &start);
    if (st == CUDNN_STATUS_SUCCESS)
        st = c->cudnnBackendFinalize(pack);
    if (st == CUDNN_STATUS_SUCCESS)
        st = c->cudnnBackendExecute(c->handle, p->plan, pack);
    if (st != CUDNN_STATUS_SUCCESS)
        c->cudnnGetLastErrorString(reason, sizeof reason);
    if (pack)
        c->cudnnBackendDestroyDescriptor(pack);
    return st == CUDNN_STATUS_SUCCESS
               ? ST_OK
               : err_set(e, ST_INTERNAL, "cuDNN does not run its plan: status %d: %s", (int)st, reason);
}
