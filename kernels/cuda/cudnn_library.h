/* What cudnn.c loads and cudnn_graph.c calls. */
#ifndef KERNELS_CUDA_CUDNN_LIBRARY_H
#define KERNELS_CUDA_CUDNN_LIBRARY_H

#include "kernels/cuda/cudnn_graph.h"

/* ResNet-50 has 23 convolutions of three passes each; twice that for a second batch size. */
enum { CUDNN_PLANS_MOST = 160 };

struct cudnn_plan {
    cudnn_descriptor plan, engine_config;
    size_t workspace;
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
    uint64_t clock;
    struct cudnn_entry entries[CUDNN_PLANS_MOST];
#define CUDNN_MEMBER(f) __typeof__(f) *f;
    CUDNN_FUNCTIONS(CUDNN_MEMBER)
#undef CUDNN_MEMBER
};

struct cudnn_plan *cudnn_plan_free(struct cudnn *c, struct cudnn_plan *p);

#endif
