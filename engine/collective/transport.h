/* The interface that every transport implements. The algorithms of this folder (collective.c, reduce.c, exchange.c)
 * know nothing else of a transport. The transports are peers:
 *
 *     gloo_transport.cc     TCP between processes, by Gloo
 *     shm_transport.c       shared memory: processes of one host read each other's memory; all else goes over Gloo
 *     nccl_transport.c      CUDA devices, by NCCL
 *     thread_transport.c    threads of one process, for tests
 *
 * Streams and order: one thread at a time uses a stream. Messages from one rank to another on one stream match in the
 * order in which they were begun.
 *
 * Errors: a transport keeps its first failure, and every later call returns it. Private to this folder. */
#ifndef ENGINE_COLLECTIVE_TRANSPORT_H
#define ENGINE_COLLECTIVE_TRANSPORT_H

#include "engine/collective/collective.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct collective_transport;

/* What happens to the bytes that arrive: they replace `in`, are added to it as floats, or are or-ed to it as 64-bit
 * words. */
enum exchange_kind { EXCHANGE_STORE, EXCHANGE_ADD, EXCHANGE_OR };

/* Sends n_out bytes to rank `to` and receives n_in bytes from rank `from` at the same time. */
struct exchange {
    int to, from;
    const void *out;
    size_t n_out;
    void *in;
    size_t n_in;
    enum exchange_kind kind;
};

/* Collective operations over the group of data ranks that a transport may implement as one call. Their `offsets` are
 * those of collective.h. */
enum transport_collective {
    TRANSPORT_ALL_REDUCE,     /* x = the sum, on every rank */
    TRANSPORT_REDUCE_SCATTER, /* this rank's shard of x = its shard of the sum */
    TRANSPORT_ALL_GATHER      /* x = every rank's shard, on every rank */
};

struct collective_transport_ops {
    /* Start a transfer of n > 0 bytes and return at once with a handle for finish. The memory is borrowed until then.
     * Any number of transfers may be in flight. */
    status_t (*begin_send)(struct collective_transport *t, int stream, int peer, const void *data, size_t n, int *ret,
                           struct err *e);
    status_t (*begin_recv)(struct collective_transport *t, int stream, int peer, void *data, size_t n, int *ret,
                           struct err *e);
    /* Waits until the transfer is done. Its memory is the caller's again, also after a failure. A transport that has
     * `mark` makes the device wait instead of the host. */
    status_t (*finish)(struct collective_transport *t, int stream, int handle, struct err *e);
    /* Sends and receives in segments, and stores or accumulates what arrives. `staging`: COLLECTIVE_STAGING_BYTES of
     * host memory that belong to the stream; a transport with staging of its own ignores it. */
    status_t (*exchange)(struct collective_transport *t, int stream, const struct exchange *x, char *staging,
                         struct err *e);
    /* The first failure so far. Any thread; never blocks. */
    status_t (*check)(struct collective_transport *t, struct err *e);
    /* Fails every call of this rank and closes its connections. Any thread. */
    void (*abort)(struct collective_transport *t, const char *reason);
    void (*close)(struct collective_transport *t);

    /* --- device transports only; NULL in the others. Their calls only queue work. --- */

    /* Aborts with a failure of the device and returns it; returns a peer's failure instead if one is known within
     * half a second. */
    status_t (*fail)(struct collective_transport *t, status_t st, const struct err *why, struct err *e);
    /* A handle, on COLLECTIVE_DATA, for all that calls on that stream have queued so far. */
    status_t (*mark)(struct collective_transport *t, int *ret, struct err *e);
    status_t (*connect)(struct collective_transport *t, const struct collective_link *links, int n, struct err *e);
    /* Whether `run` implements this operation over this group. */
    bool (*supports)(const struct collective_transport *t, enum transport_collective what,
                     const struct collective_group *group);
    status_t (*run)(struct collective_transport *t, enum transport_collective what, void *x, size_t element_bytes,
                    const int64_t *offsets, struct err *e);
};

struct collective_transport {
    const struct collective_transport_ops *ops;
};

/* Connects every rank with every other rank. */
status_t gloo_transport_open(const struct collective_config *config, struct collective_transport **ret, struct err *e);

/* The transports of world_size threads, ret[world_size]; each is closed on its own. */
void thread_transports_open(int world_size, int timeout_ms, struct collective_transport **ret);

#ifdef __cplusplus
}
#endif

#endif
