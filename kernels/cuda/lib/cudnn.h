/* cuDNN, loaded at run time: a host without it trains with the kernels of kernels/cuda.
 *
 * struct cudnn is the library, a handle on one stream and the plans made with it. attention_cudnn.h and
 * convolution_cudnn.h use it; cudnn_graph.h wraps its API. It belongs to one thread, that of its table. */
#ifndef KERNELS_CUDA_CUDNN_H
#define KERNELS_CUDA_CUDNN_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct cudnn;

/* stream: a cudaStream_t. FAILED_PRECONDITION if the library is missing, too old, or was missing when this program
 * was built; INTERNAL if it refuses the device. */
MUST_CHECK status_t cudnn_open(void *stream, struct cudnn **ret, struct err *e);
/* Whether cudnn_open would find the library. FAILED_PRECONDITION as for cudnn_open. */
MUST_CHECK status_t cudnn_check(struct err *e);
/* Without a device, for tests: plans are made for the device that `properties` describes, in the JSON of
 * CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, and cannot run. */
MUST_CHECK status_t cudnn_open_deviceless(const char *properties, struct cudnn **ret, struct err *e);
struct cudnn *cudnn_close(struct cudnn *c);
CLEANUP_DEFINE(struct cudnn *, cudnn_close)

struct tuning_cache;
/* From now on the engine of each shape is recorded in the cache when the shape is first computed, and taken from the
 * cache if it is there. timed: the fastest of cuDNN's first engines, in any order of adding; otherwise the first
 * engine that adds in a fixed order. Call this before the first plan. The cache is borrowed until cudnn_close. */
void cudnn_use_tuning_cache(struct cudnn *c, struct tuning_cache *cache, bool timed);

/* 91900 is 9.19.0. Part of the numerics id. */
size_t cudnn_version(const struct cudnn *c);
/* The stream of cudnn_open; NULL without a device. */
void *cudnn_stream(const struct cudnn *c);

#endif
