/* The functions of cuDNN that cudnn.c loads and cudnn_graph.c calls, and the state of both. */
#ifndef KERNELS_CUDA_CUDNN_LIBRARY_H
#define KERNELS_CUDA_CUDNN_LIBRARY_H

#include "kernels/cuda/lib/cudnn_graph.h"
#include "kernels/cuda/lib/tuning_cache.h"

/* ResNet-50 has 32 keys, because its convolutions of single pixels are products. Space for five batch sizes. */
enum { CUDNN_MAX_PLANS = 160 };

struct cudnn_plan {
    cudnn_descriptor plan, engine_config;
    size_t workspace;
    char engine[ENGINE_NAME_BYTES]; /* its name */
    struct cudnn_plan *next;        /* the next candidate, until one of them is selected */
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
    void *library;                     /* dlopen's */
    cudnnHandle_t handle;              /* NULL without a device */
    void *stream;                      /* the stream of the handle */
    cudnn_descriptor properties;       /* NULL with a device */
    struct tuning_cache *tuning_cache; /* borrowed; NULL: choices are not kept */
    bool timed;
    uint64_t clock;
    struct cudnn_entry entries[CUDNN_MAX_PLANS];
#define CUDNN_MEMBER(f) __typeof__(f) *f;
    CUDNN_FUNCTIONS(CUDNN_MEMBER)
#undef CUDNN_MEMBER
};

/* The name of a configuration's engine and knobs, in the form that tuning_cache.h writes: the same in each process
 * with the same library, device and graph. */
MUST_CHECK cudnnStatus_t cudnn_engine_name(struct cudnn *c, cudnn_descriptor config, char ret[ENGINE_NAME_BYTES]);

/* Frees the plan and all that follow it in the list. */
struct cudnn_plan *cudnn_plan_free(struct cudnn *c, struct cudnn_plan *p);

#endif
