/* The state of NCCL's transport. nccl_connect.c connects and closes, nccl_transport.c queues work, nccl_watch.c waits
 * for queued work, detects failures and aborts. Private to this folder's part of the CUDA plugin.
 *
 * Locks: `lock` is held for each call of NCCL, so that none runs during an abort. `queue` protects the list of queued
 * operations and nothing else. Only an abort calls CUDA with a lock held: while the device's queues are full, a call of
 * CUDA may block for as long as the device does. The state of a stream belongs to the thread that uses the stream. */
#ifndef ENGINE_COLLECTIVE_NCCL_TRANSPORT_H
#define ENGINE_COLLECTIVE_NCCL_TRANSPORT_H

#include "engine/collective/nccl_library.h"
#include "kernels/cuda/cuda.h"

#include <pthread.h>
#include <stdbool.h>

#ifndef NCCL_SEGMENT_BYTES /* tests set it */
#define NCCL_SEGMENT_BYTES (16 << 20)
#endif

enum {
    SEGMENT_BYTES = NCCL_SEGMENT_BYTES, /* one segment is added while the next one arrives */
    SEGMENTS = 2,
};

/* An NCCL communicator and the CUDA stream of its operations. */
struct communicator {
    ncclComm_t comm;
    cudaStream_t cuda_stream;
    uint64_t busy_scan; /* the newest scan of the deadline thread that found an unfinished operation of it */
};

/* One direction between two ranks of a pipeline; the sender is rank 0 of its communicator. It has a communicator of its
 * own, so that a receive that is posted early delays nothing else. */
struct link {
    struct communicator communicator;
    ncclUniqueId id;
    enum collective_stream stream;
    int peer;
    bool is_send;
    int64_t order; /* its place in an order of the gang's links that is the same on all ranks */
};

/* Work queued on a communicator. It belongs to its caller until nccl_operation_release, then to the deadline thread
 * until the work is done. Its events are reused only after that. */
struct operation {
    cudaEvent_t done;
    cudaEvent_t before; /* on the kernels' CUDA stream: after it only other ranks can delay the operation */
    struct communicator *communicator;
    int stream, ticket;
    int peer;               /* the rank at the other end; -1: all */
    int64_t since_ns;       /* since when it is known to wait only for other ranks; 0: it does not yet */
    struct operation *next; /* in the list of queued or of free operations */
};

/* A wait of the host that has a deadline. */
struct nccl_wait {
    int64_t begun_ns, deadline_ns;
    int peer; /* named when the deadline passes; -1: all */
};

struct nccl_transport {
    struct collective_transport transport;
    struct collective_transport *host;
    const struct nccl_library *nccl;
    cudaStream_t compute; /* the kernels'; borrowed */
    int ordinal, priority, rank, world_size, data, shard, timeout_ms;

    struct communicator world; /* exchanges */
    ncclComm_t shards;         /* the data group, ranks in the order of their shards; uses the world's CUDA stream */
    bool native;               /* NCCL computes sums */
    char *staging;             /* on the device: SEGMENTS of SEGMENT_BYTES, then two bytes per rank for the warm-up */
    cudaStream_t accumulating; /* adds segments that have arrived */
    cudaEvent_t arrived[SEGMENTS], accumulated[SEGMENTS], warmed_up;

    struct link *links;
    int n_links;
    struct {
        struct operation **items, *free; /* by ticket */
        cudaEvent_t ready;
        int n;
    } streams[COLLECTIVE_STREAMS];

    pthread_mutex_t lock;
    status_t status; /* the first failure */
    struct err error;

    pthread_cond_t ends; /* with `lock`: signals closing and failures */
    bool closing;        /* changed under both locks */
    pthread_t watch_thread, deadline_thread;
    bool watch_runs, deadline_runs;

    /* Under `queue`: the queued operations, in the order of their `before`. */
    pthread_mutex_t queue;
    pthread_cond_t queued;
    struct operation *first, **last;
    uint64_t scan; /* of the deadline thread alone */
};

/* Selects the transport's device for the calling thread. Each thread has its own current device: a thread that has
 * selected none would open a context on device 0 with its first query of an event. */
void nccl_device_use(const struct nccl_transport *t);

static inline struct nccl_transport *nccl_of(struct collective_transport *t) { return (struct nccl_transport *)t; }

/* --- opening: nccl_connect.c uses these functions of nccl_transport.c --- */

extern const struct collective_transport_ops nccl_transport_ops;

/* Group calls of NCCL between them. `result`: of the last call in the group; the group is ended also if that call
 * failed, because later calls of this thread would otherwise wait for its end. */
MUST_CHECK status_t nccl_group_begin(struct nccl_transport *t, struct err *e);
MUST_CHECK status_t nccl_group_end(struct nccl_transport *t, ncclResult_t result, const char *what, struct err *e);
/* Records `event` at the current end of a CUDA stream. */
MUST_CHECK status_t nccl_event_record(cudaStream_t cuda_stream, cudaEvent_t event, struct err *e);
/* Sends or receives on a link, and records `done` after it. */
MUST_CHECK status_t nccl_link_transfer(struct nccl_transport *t, struct nccl_wait w, const struct link *link,
                                       void *data, size_t n, cudaEvent_t done, struct err *e);
/* Issues one operation over the data group to the world's CUDA stream. */
MUST_CHECK status_t nccl_run_now(struct nccl_transport *t, struct nccl_wait w, enum transport_collective what, void *x,
                                 size_t element_bytes, const int64_t *offsets, struct err *e);

/* --- connecting and closing: nccl_connect.c --- */

MUST_CHECK status_t nccl_connect(struct collective_transport *t, const struct collective_link *links, int n,
                                 struct err *e);
void nccl_close(struct collective_transport *t);

/* --- failing --- */

/* Keeps and returns the first failure. Aborts the host's transport, which fails every other rank, and then this rank's
 * communicators, which end their work on the device whether it is complete or not. */
MUST_CHECK status_t nccl_fail(struct nccl_transport *t, status_t st, const struct err *why, struct err *e);
/* nccl_fail unless st is OK. */
MUST_CHECK status_t nccl_or_fail(struct nccl_transport *t, status_t st, const struct err *why, struct err *e);
/* nccl_fail for an error of NCCL or of a kernel, which most often follows from a peer's failure: waits up to half a
 * second for the host's transport to report that failure, and uses it instead. */
MUST_CHECK status_t nccl_fail_after(struct collective_transport *t, status_t st, const struct err *why, struct err *e);
/* The first failure so far. */
MUST_CHECK status_t nccl_check(struct collective_transport *t, struct err *e);
/* Aborts all communicators. The caller holds the lock or is the last thread. */
void nccl_comms_end(struct nccl_transport *t);

/* OK: returns with the lock held until nccl_leave, so that no abort runs during the calls between them. */
MUST_CHECK status_t nccl_enter(struct nccl_transport *t, struct err *e);
MUST_CHECK status_t nccl_leave(struct nccl_transport *t, status_t st, const struct err *why, struct err *e);

/* --- waits of the host; each ends with the awaited work, a failure or the deadline --- */

struct nccl_wait nccl_wait_new(const struct nccl_transport *t, int peer);
/* Waits until a communicator has issued its work to the device. That needs no other rank if both ends are connected. */
MUST_CHECK status_t nccl_await_comm(struct nccl_transport *t, struct nccl_wait w, ncclComm_t const *comm,
                                    struct err *e);
/* Waits until the device has reached `event`, which also happens when the work before it is aborted. Used while
 * connecting. */
MUST_CHECK status_t nccl_await_event(struct nccl_transport *t, struct nccl_wait w, ncclComm_t const *comm,
                                     cudaEvent_t event, struct err *e);

/* --- the two threads that supervise queued work, because no call of the host waits for it --- */

/* The watch thread polls the communicators for errors and checks the host's transport. It calls no function of CUDA, so
 * that it notices a death also if the device is blocked by it. The deadline thread checks the deadline of each
 * operation, counted from when only other ranks delay it; it sleeps while nothing is queued. */
MUST_CHECK status_t nccl_watch_open(struct nccl_transport *t, struct err *e);
void nccl_watch_close(struct nccl_transport *t); /* also if it was not opened */

/* Returns an operation that belongs to the caller; its events are unused. */
MUST_CHECK status_t nccl_operation_new(struct nccl_transport *t, int stream, struct communicator *communicator,
                                       int peer, struct operation **ret, struct err *e);
/* Hands the operation to the deadline thread (`watched`; both of its events are recorded), or frees it for reuse. */
void nccl_operation_release(struct nccl_transport *t, struct operation *o, bool watched);
void nccl_operations_free(struct nccl_transport *t);

#endif
