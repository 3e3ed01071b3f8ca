/* Stands for a CUDA device in a process of many ranks, one thread each: memory is the host's, a stream is a thread that
 * does what it is given in order. What nccl_transport.c calls of CUDA is here; NCCL is in threads.c, a library of its
 * own. */
#ifndef TESTS_ENGINE_NCCL_DEVICE_H
#define TESTS_ENGINE_NCCL_DEVICE_H

#include "kernels/cuda/cuda.h"

#include <pthread.h>

/* Not the one that a thread has before it chooses: a call from such a thread ends the test. */
enum { DEVICE_ORDINAL = 3 };

/* A stream does this after all that it was given before. */
void device_queue(cudaStream_t stream, void (*work)(void *), void *arg);
/* Has somebody else give the stream, by device_queue, what is due before anything else that it is given. */
void device_feed(cudaStream_t stream, void (*feed)(cudaStream_t stream, void *arg), void *arg);

/* From now on devices are such that nothing runs before its rank's thread waits for what was queued after it, or asks
 * for it. How many times this thread has done so. */
void device_lazy(bool is);
int device_waits(void);

/* A kernel for device_queue that stays on the device until the gate, its argument, is opened. */
struct device_gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
};
#define DEVICE_GATE_SHUT                                                                                               \
    { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER }
void device_gate_pass(void *gate);
void device_gate_open(struct device_gate *gate);

/* From now on all clocks of this process can be put forward: by so much at once. Returns when `clocks` threads that are
 * no rank's have looked at the new time and at something else after that: what keeps deadlines does so all the time. */
void device_clocks_take(void);
void device_clocks_forward(int64_t ms, int clocks);

/* From now on whoever asks about an event gets no answer until this is over, as where a device's queues are full. */
void device_mute(bool is);
void device_await_unanswered(int threads); /* returns when so many ask */

/* For NCCL's stand-in: this thread's device; and what waits for all that a device has been given. */
struct device;
struct device *device_mine(void);
void device_settle(struct device *d);

/* From now on this thread's calls of NCCL by that name, or on communicators of that name, fail, or all threads', and a
 * communicator's state is that failure; NULL: none. "event_wait": the waits of its table. How many have failed so, on
 * all threads; and: returns when so many have. */
void device_fail(const char *call);
void device_fail_everywhere(const char *call);
int device_failed(void);
void device_await_failure(int failed);
bool device_fault(const char *call); /* for NCCL's stand-in: does this one? */

/* How many times a rank has had to be connected to another, or to all; and NCCL's stand-in: once more. */
int device_connected(void);
void device_connects(void);

/* How many communicators there are that nobody has destroyed or aborted; returns when there are none; and NCCL's
 * stand-in: so many more. */
int device_communicators(void);
void device_await_silence(void);
void device_communicates(int more);

/* A table whose memory functions and fill queue to a stream of its own; device_open makes the stream, another for what
 * is uploaded ahead, and the functions for memory, events and such uploads alone. By the rank's thread. */
struct cuda *device_new(void);
void device_free(struct cuda *c);
void device_open(struct cuda *c);
void device_close(struct cuda *c);

#endif
