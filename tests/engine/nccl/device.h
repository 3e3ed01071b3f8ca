/* Stands for a CUDA device in a process of many ranks, one thread each: memory is the host's, a stream is a thread that
 * does what it is given in order. What nccl.c calls of CUDA is here; NCCL is in threads.c, a library of its own. */
#ifndef TESTS_ENGINE_NCCL_DEVICE_H
#define TESTS_ENGINE_NCCL_DEVICE_H

#include "kernels/cuda/cuda.h"

/* A stream does this after all that it was given before. */
void device_queue(cudaStream_t stream, void (*work)(void *), void *arg);

/* A table whose memory functions and fill queue to a stream of its own. */
struct cuda *device_new(void);
void device_free(struct cuda *c);

#endif
