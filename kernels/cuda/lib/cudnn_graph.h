/* cuDNN's backend API in a few functions: build a graph of operations on tensors, and turn it into a plan that runs.
 *
 *     struct cudnn_graph g = cudnn_graph_begin(c);
 *     cudnn_matmul(&g, cudnn_tensor(&g, 1, type, dim, stride), b, y);
 *     TRY(cudnn_graph_plan(&g, &choice, &plan, e));
 *
 * A graph keeps its first failure: later calls do nothing, and cudnn_graph_plan returns the failure. Tensors have
 * four dimensions. The id of a tensor is the number under which a run receives its pointer. Virtual tensors have no
 * pointer and take no memory. */
#ifndef KERNELS_CUDA_CUDNN_GRAPH_H
#define KERNELS_CUDA_CUDNN_GRAPH_H

#include "kernels/cuda/lib/cudnn.h"
#include "kernels/kernels.h"

#include <cudnn.h>
#include <stdbool.h>
#include <stdint.h>

enum { CUDNN_GRAPH_OPS = 32, CUDNN_GRAPH_DESCRIPTORS = 128 };

typedef cudnnBackendDescriptor_t cudnn_descriptor;

struct cudnn_graph {
    struct cudnn *library;
    cudnn_descriptor made[CUDNN_GRAPH_DESCRIPTORS], ops[CUDNN_GRAPH_OPS];
    int n_made, n_ops;
    int64_t next_virtual;
    status_t status;
    struct err err;
};

struct cudnn_graph cudnn_graph_begin(struct cudnn *c);

cudnn_descriptor cudnn_tensor(struct cudnn_graph *g, int64_t id, cudnnDataType_t type, const int64_t dim[4],
                              const int64_t stride[4]);
cudnn_descriptor cudnn_virtual(struct cudnn_graph *g, cudnnDataType_t type, const int64_t dim[4],
                               const int64_t stride[4]);
/* One fp32 number. A run receives a host pointer to it. */
cudnn_descriptor cudnn_scalar(struct cudnn_graph *g, int64_t id);

void cudnn_matmul(struct cudnn_graph *g, cudnn_descriptor a, cudnn_descriptor b, cudnn_descriptor y);
/* y = mode(x, b), or a selection by t if t is given. Computed as `type`. b and t may be NULL. */
void cudnn_pointwise(struct cudnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t type, cudnn_descriptor x,
                     cudnn_descriptor b, cudnn_descriptor t, cudnn_descriptor y);
/* y = the index of each element of x along an axis. */
void cudnn_index(struct cudnn_graph *g, int64_t axis, cudnn_descriptor x, cudnn_descriptor y);
void cudnn_reduce(struct cudnn_graph *g, cudnnReduceTensorOp_t by, cudnn_descriptor x, cudnn_descriptor y);
void cudnn_reshape(struct cudnn_graph *g, cudnn_descriptor x, cudnn_descriptor y);
/* kind: CUDNN_BACKEND_OPERATION_CONVOLUTION_{FORWARD,BACKWARD_DATA,BACKWARD_FILTER}_DESCRIPTOR. */
void cudnn_convolution(struct cudnn_graph *g, cudnnBackendDescriptorType_t kind, const struct convolution_dims *d,
                       cudnn_descriptor x, cudnn_descriptor w, cudnn_descriptor y);

/* Which of cuDNN's engines are acceptable. */
struct cudnn_choice {
    bool deterministic;   /* no engine that declares itself nondeterministic */
    size_t max_workspace; /* bytes, including alignment */
    int candidates;       /* number of acceptable engines to keep for cudnn_plan_decide; up to 1: the first */
    const char *engine;   /* only the engine of this name; NULL: any */
};

struct cudnn_plan; /* owned by the library's cache */

/* Ends the graph. Returns the first engine, in the order of cuDNN's heuristics, that `choice` accepts and that
 * compiles. UNIMPLEMENTED: cuDNN has none for the graph's shapes. FAILED_PRECONDITION: an engine before the first
 * usable one lacks a part of cuDNN on this host, or the engine in choice->engine does not exist. INTERNAL: all
 * engines failed in another way. */
MUST_CHECK status_t cudnn_graph_plan(struct cudnn_graph *g, const struct cudnn_choice *choice, struct cudnn_plan **ret,
                                     struct err *e);
size_t cudnn_plan_workspace(const struct cudnn_plan *p);
/* pointers[i] is the pointer of the tensor ids[i]. */
MUST_CHECK status_t cudnn_plan_run(struct cudnn *c, const struct cudnn_plan *p, int n, const int64_t *ids,
                                   void *const *pointers, void *workspace, struct err *e);

/* The key of a plan. All numbers count. */
enum cudnn_pass {
    CUDNN_ATTENTION_FORWARD = 1,
    CUDNN_ATTENTION_BACKWARD,
    CUDNN_ATTENTION_BACKWARD_FAST,
    CUDNN_CONVOLUTION_FORWARD,
    CUDNN_CONVOLUTION_BACKWARD_INPUT,
    CUDNN_CONVOLUTION_BACKWARD_WEIGHT,
};
struct cudnn_key {
    enum cudnn_pass pass;
    enum kernels_precision precision;
    int64_t dims[8];
    int64_t workspace_bytes; /* maximum workspace of a plan */
};
typedef status_t cudnn_build_fn(struct cudnn *c, const struct cudnn_key *key, struct cudnn_plan **ret, struct err *e);
/* The plan of the key, built on its first use. The absence of an engine (UNIMPLEMENTED) is remembered too. */
MUST_CHECK status_t cudnn_plan_find(struct cudnn *c, const struct cudnn_key *key, cudnn_build_fn *build,
                                    const struct cudnn_plan **ret, struct err *e);

/* Selects the key's plan when it first runs: of several candidates the fastest with these pointers, to which each of
 * them writes. The result is stored in *plan and recorded in the tuning cache (cudnn_use_tuning_cache) if the cache
 * has no choice for the key. A single candidate is recorded too, because a resumed run may find others. */
MUST_CHECK status_t cudnn_plan_decide(struct cudnn *c, const struct cudnn_key *key, int n, const int64_t *ids,
                                      void *const *pointers, void *workspace, const struct cudnn_plan **plan,
                                      struct err *e);
/* Whether candidates are timed; and the name of the engine that was selected for the key before, which may be
 * ENGINE_NONE; NULL: no selection yet. */
bool cudnn_is_timed(const struct cudnn *c);
const char *cudnn_cached_engine(const struct cudnn *c, const struct cudnn_key *key);

static inline cudnnDataType_t cudnn_type(enum kernels_precision p) {
    return p == KERNELS_FP32 ? CUDNN_DATA_FLOAT : p == KERNELS_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
}

#endif
