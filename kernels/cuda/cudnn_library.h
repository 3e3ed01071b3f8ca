/* What cudnn.c loads and cudnn_graph.c calls. */
#ifndef KERNELS_CUDA_CUDNN_LIBRARY_H
#define KERNELS_CUDA_CUDNN_LIBRARY_H

#include "kernels/cuda/choices.h"
#include "kernels/cuda/cudnn_graph.h"

/* ResNet-50 has 32, since its convolutions of single pixels are products: five batch sizes of them. */
enum { CUDNN_PLANS_MOST = 160 };

struct cudnn_plan {
    cudnn_descriptor plan, engine_config;
    size_t workspace;
    char engine[ENGINE_NAME_BYTES]; /* its name, where it is one of several or was asked for by it */
    struct cudnn_plan *next;        /* another one that will do, until one of them is chosen */
};

struct cudnn_entry {
    struct cudnn_key key;
    uint64_t used;           /* the clock of the last use; 0 = free */
    struct cudnn_plan *plan; /* NULL: cuDNN has no engine */
};

#define CUDNN_FUNCTIONS(F)                                                                                             \
    F(cudnnGetVersion)                                                                                                 \
    F(cudnnCreate)                                                                                                     \
    F(cudnnDestroy)                                                                                                    \
    F(cudnnSetStream)                                                                                                  \
    F(cudnnGetLastErrorString)                                                                                         \
    F(cudnnBackendCreateDescriptor)                                                                                    \
    F(cudnnBackendDestroyDescriptor)                                                                                   \
    F(cudnnBackendSetAttribute)                                                                                        \
    F(cudnnBackendGetAttribute)                                                                                        \
    F(cudnnBackendFinalize)                                                                                            \
    F(cudnnBackendExecute)

struct cudnn {
    void *library;               /* dlopen's */
    cudnnHandle_t handle;        /* NULL without a device */
    void *stream;                /* the handle's */
    cudnn_descriptor properties; /* NULL with one */
    struct choices *choices;     /* borrowed; NULL: nothing is timed */
    uint64_t clock;
    struct cudnn_entry entries[CUDNN_PLANS_MOST];
#define CUDNN_MEMBER(f) __typeof__(f) *f;
    CUDNN_FUNCTIONS(CUDNN_MEMBER)
#undef CUDNN_MEMBER
};

/* The engine of a configuration and its knobs, as choices.h writes them: the same in each process of the same
 * library, device and graph. */
MUST_CHECK cudnnStatus_t cudnn_engine_name(struct cudnn *c, cudnn_descriptor config, char ret[ENGINE_NAME_BYTES]);

/* And all behind it. */
struct cudnn_plan *cudnn_plan_free(struct cudnn *c, struct cudnn_plan *p);

#endif
