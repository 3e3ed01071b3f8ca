/* Stands for a CUDA device in a process of many ranks, one thread each: memory is the host's, a stream is a thread that
 * does what it is given in order. What nccl.c calls of CUDA is here; NCCL is in threads.c, a library of its own. */
#ifndef TESTS_ENGINE_NCCL_DEVICE_H
#define TESTS_ENGINE_NCCL_DEVICE_H

#include "kernels/cuda/cuda.h"

/* Not the one that a thread has before it chooses: a call from such a thread ends the test. */
enum { DEVICE_ORDINAL = 3 };

/* A stream does this after all that it was given before. */
void device_queue(cudaStream_t stream, void (*work)(void *), void *arg);

/* From now on this thread's calls of NCCL by that name fail, and the communicator's state is that failure; NULL: none.
 * How many have failed so, on all threads. */
void device_fail(const char *call);
int device_failed(void);
bool device_fault(const char *call); /* for NCCL's stand-in: does this one? */

/* How many times a rank has had to be connected to another, or to all; and NCCL's stand-in: once more. */
int device_connected(void);
void device_connects(void);

/* A table whose memory functions and fill queue to a stream of its own. */
struct cuda *device_new(void);
void device_free(struct cuda *c);

#endif
