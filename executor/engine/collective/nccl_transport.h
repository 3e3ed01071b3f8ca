/* NCCL's transport, as its two sources share it: nccl.c queues work and connects, nccl_watch.c waits, watches what is
 * queued, and ends all of it on the first failure. Private to this folder's part of the CUDA plugin.
 *
 * Locks: `lock` is held for each call of NCCL, so that none runs beside an abort. `queue` is of what is queued, and
 * held for nothing else; neither is held for a call of CUDA but by an abort: while the device's queues are full, a call
 * of any thread may take as long as it stands still. What is of a channel is of the thread that calls on it. */
#ifndef EXECUTOR_ENGINE_COLLECTIVE_NCCL_TRANSPORT_H
#define EXECUTOR_ENGINE_COLLECTIVE_NCCL_TRANSPORT_H

#include "executor/engine/collective/nccl_library.h"
#include "kernels/cuda/cuda.h"

#include <pthread.h>
#include <stdbool.h>

#ifndef NCCL_SEGMENT_BYTES /* but in tests */
#define NCCL_SEGMENT_BYTES (16 << 20)
#endif

enum {
    SEGMENT_BYTES = NCCL_SEGMENT_BYTES, /* what is added while the next one arrives */
    SEGMENTS = 2,
};

/* A communicator with the stream of its operations. */
struct line {
    ncclComm_t comm;
    cudaStream_t stream;
    uint64_t seen; /* the newest turn of the clock that has found something of it that is not done */
};

/* One direction between two ranks on a pipeline's channel: sender is rank 0 of its communicator. A line of its own, so
 * that a receive posted early holds up nothing else. */
struct link {
    struct line line;
    ncclUniqueId id;
    enum collective_channel channel;
    int peer;
    bool is_send;
    int64_t turn; /* its place in an order of the gang's links that all ranks have */
};

/* Work that a line has been given: its caller's until that has asked for what comes after it, then the clock's until it
 * is done. No sooner are its events used again. */
struct operation {
    cudaEvent_t done;
    cudaEvent_t before; /* on the kernels' stream: from there on nothing but other ranks keeps it from being done */
    struct line *line;
    int channel, ticket;
    int peer;               /* whom it is for; -1 = all */
    int64_t since_ns;       /* that the clock has known it to wait for other ranks alone; 0: it does not yet */
    struct operation *next; /* of those that are queued, or free */
};

struct nccl_transport {
    struct transport transport;
    struct transport *host;
    const struct nccl_library *nccl;
    cudaStream_t compute; /* borrowed: the kernels' */
    int ordinal, priority, rank, world_size, data, piece, timeout_ms;

    struct line world;  /* swaps */
    ncclComm_t pieces;  /* the data group, its ranks in the order of their pieces; on the world's stream */
    bool native;        /* sums are NCCL's */
    char *staging;      /* SEGMENTS of SEGMENT_BYTES, on the device; then two bytes a rank for trials */
    cudaStream_t folds; /* adds what has arrived */
    cudaEvent_t arrived[SEGMENTS], folded[SEGMENTS], tried;

    struct link *links;
    int n_links;
    struct {
        struct operation **items, *free; /* by ticket */
        cudaEvent_t ready;
        int n;
    } channels[COLLECTIVE_CHANNELS];

    pthread_mutex_t lock;
    status_t status; /* the first failure, kept */
    struct err error;

    pthread_cond_t ends; /* with `lock`: closing, or a failure */
    bool closing;        /* under both locks */
    pthread_t watch, clock;
    bool watching, timing; /* these threads run */

    /* Under `queue`: what is queued, in the order of its `before`. */
    pthread_mutex_t queue;
    pthread_cond_t queued;
    struct operation *first, **last;
    uint64_t turn; /* the clock's own */
};

/* A thread's device is its own choice: one that has made none launches nothing here, and opens a context on device 0
 * with its first question about an event. */
void nccl_device_use(const struct nccl_transport *t);

/* --- failing --- */

/* The first failure wins. Ends every other rank, through the host's transport, and then this rank's communicators: what
 * they have on the device ends, done or not. */
MUST_CHECK status_t nccl_fail(struct nccl_transport *t, status_t st, const struct err *why, struct err *e);
/* A failure of the device's own is kept, and told to all, like any other. */
MUST_CHECK status_t nccl_or_fail(struct nccl_transport *t, status_t st, const struct err *why, struct err *e);
/* As nccl_fail, of what is most often a peer's failure: NCCL's, or the kernels' own, which fail of what they get no
 * more. The host's transport knows which, or will in a moment. */
MUST_CHECK status_t nccl_fail_after(struct transport *t, status_t st, const struct err *why, struct err *e);
/* The first failure so far. */
MUST_CHECK status_t nccl_check(struct transport *t, struct err *e);
/* Aborts all communicators. With the lock held, or where no other thread is left. */
void nccl_comms_end(struct nccl_transport *t);

/* OK: with the lock held, until nccl_leave; the calls that follow are not overtaken by an abort. */
MUST_CHECK status_t nccl_enter(struct nccl_transport *t, struct err *e);
MUST_CHECK status_t nccl_leave(struct nccl_transport *t, status_t st, const struct err *why, struct err *e);

/* --- waits of the host, all of which end: with what they wait for, a failure, or the deadline --- */

struct nccl_wait {
    int64_t begun_ns, deadline_ns;
    int peer; /* whom it is for; -1 = all */
};
struct nccl_wait nccl_wait_new(const struct nccl_transport *t, int peer);
/* Until a communicator has given the device what it was given, which takes no other rank where both ends are connected.
 */
MUST_CHECK status_t nccl_await_comm(struct nccl_transport *t, struct nccl_wait w, ncclComm_t const *comm,
                                    struct err *e);
/* Until the device has come to `event`, which it also does when what is before it is aborted: while connecting. */
MUST_CHECK status_t nccl_await_event(struct nccl_transport *t, struct nccl_wait w, ncclComm_t const *comm,
                                     cudaEvent_t event, struct err *e);

/* --- the watch --- */

/* Two threads look after what is queued, for nobody waits for it on the host. The watch: communicators' errors, and the
 * host's transport, without a call of CUDA, so that it knows of a death also when the device stands still because of
 * it. The clock: for each operation the deadline, from when nothing but other ranks keeps it from being done; it sleeps
 * while nothing is queued. */
MUST_CHECK status_t nccl_watch_open(struct nccl_transport *t, struct err *e);
void nccl_watch_close(struct nccl_transport *t); /* also where it was not opened */

/* The caller's, with events that nobody waits for. */
MUST_CHECK status_t nccl_operation_new(struct nccl_transport *t, int channel, struct line *line, int peer,
                                       struct operation **ret, struct err *e);
/* The caller lets go of it: to the clock, both of its events recorded, or to be used again. */
void nccl_operation_let(struct nccl_transport *t, struct operation *o, bool watched);
void nccl_operations_free(struct nccl_transport *t);

#endif
