/* cuDNN, loaded at run time: a host without it trains with the kernels of this folder.
 *
 * struct cudnn is the library, a handle on one stream and the plans made with it; attention_cudnn.h and
 * convolution_cudnn.h say what it is used for, cudnn_graph.h how. It belongs to one thread, that of its table. */
#ifndef KERNELS_CUDA_CUDNN_H
#define KERNELS_CUDA_CUDNN_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stddef.h>

struct cudnn;

/* stream: a cudaStream_t. FAILED_PRECONDITION where the library is missing, too old, or was not there when this program
 * was built; INTERNAL where it refuses the device. */
MUST_CHECK status_t cudnn_open(void *stream, struct cudnn **ret, struct err *e);
/* Whether cudnn_open would find the library. FAILED_PRECONDITION as there. */
MUST_CHECK status_t cudnn_check(struct err *e);
/* Without a device: plans are looked for on the device that `properties` tells of, in the JSON of
 * CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, and cannot run. For tests. */
MUST_CHECK status_t cudnn_open_deviceless(const char *properties, struct cudnn **ret, struct err *e);
struct cudnn *cudnn_close(struct cudnn *c);
CLEANUP_DEFINE(struct cudnn *, cudnn_close)

struct choices;
/* Convolutions are computed by the fastest of cuDNN's engines, in whatever order it adds: timed when a shape is first
 * computed, entered in the choices, and taken from there where they have one. Before the first plan; they are borrowed
 * until cudnn_close. */
void cudnn_choose_by_time(struct cudnn *c, struct choices *choices);

/* 91900 is 9.19.0: a part of the numerics id. */
size_t cudnn_version(const struct cudnn *c);
/* cudnn_open's; NULL without a device. */
void *cudnn_stream(const struct cudnn *c);

#endif
