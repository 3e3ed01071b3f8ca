/* What ranks tell each other: point to point, gathered, and summed in an order that does not depend on timing.
 *
 *     struct collective_config config = { .rank = 1, .world_size = 4, .address = "10.0.0.7", .timeout_ms = 60000,
 *                                         .exchange = rendezvous_exchange, .exchange_ctx = link };
 *     TRY(collective_open_gloo(&config, &c, e));            // every rank at once: connects a full mesh
 *     TRY(collective_reduce_ordered(c, COLLECTIVE_GRADIENTS, bucket, n, e));
 *     c = collective_close(c);
 *
 * Every collective call is made by all ranks, with equal sizes, in the same order on a channel. A channel is one
 * ordered stream of calls: one thread at a time on each channel, different channels from different threads at once.
 * send and recv on a channel follow the same order rule between their two ranks.
 *
 * Failure: the first error closes this rank's connections, so that every other rank fails within a second too, and is
 * repeated by every later call. UNAVAILABLE = a peer went away, DEADLINE_EXCEEDED = a peer said nothing for timeout_ms,
 * CANCELLED = collective_abort on this rank; the sentence names the peer's rank. After an error a collective can only
 * be closed; ranks that go on meet again through a new one.
 *
 * With world size 1 (collective_open_alone) every call returns at once and changes nothing.
 *
 * Memory: buffers are borrowed during the call. Staging for reductions is allocated by open (COLLECTIVE_STAGING_BYTES a
 * channel), not by the calls. */
#ifndef EXECUTOR_ENGINE_COLLECTIVE_COLLECTIVE_H
#define EXECUTOR_ENGINE_COLLECTIVE_COLLECTIVE_H

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct collective;

/* Who talks on which channel. */
enum collective_channel {
    COLLECTIVE_CONTROL,    /* the compute thread: flags, norms, losses, barriers */
    COLLECTIVE_GRADIENTS,  /* the communication thread: buckets, while backward goes on */
    COLLECTIVE_CHECKPOINT, /* the checkpoint writer's thread: chunk digests */
    COLLECTIVE_SPARE,      /* free for a program's own use */
    COLLECTIVE_CHANNELS
};

/* One blob a rank to all ranks: all[r] receives rank r's (initialised by the caller with a limit, world_size of them).
 * This is how ranks find each other: Gloo's full mesh needs exactly one such exchange. It blocks until all have spoken
 * and has its own deadline. */
typedef status_t collective_exchange_fn(void *ctx, const void *mine, size_t n, struct bytes *all, struct err *e);

struct collective_config {
    int rank, world_size; /* world_size is a power of two, at most LIMIT_WORLD_SIZE */
    const char *address;  /* host name or IP of the interface that the peers reach this rank by; "127.0.0.1" */
    int timeout_ms;       /* a call fails when a peer does not get on for this long; > 0 */
    collective_exchange_fn *exchange;
    void *exchange_ctx;
};

/* INVALID_ARGUMENT: a world size that is no power of two, a rank outside it, an address that does not resolve.
 * Statuses of `exchange` pass through. DEADLINE_EXCEEDED or UNAVAILABLE: a peer could not be connected. */
MUST_CHECK status_t collective_open_gloo(const struct collective_config *config, struct collective **ret,
                                         struct err *e);
MUST_CHECK status_t collective_open_alone(struct collective **ret, struct err *e);

/* Closes the connections (peers that still wait fail). No other thread may be in a call: abort first, then join it. */
struct collective *collective_close(struct collective *c);
CLEANUP_DEFINE(struct collective *, collective_close)

int collective_rank(const struct collective *c);
int collective_world_size(const struct collective *c);

/* Ends every call of this rank, now and later, with CANCELLED and `reason` in the sentence, and closes its connections,
 * so that all peers fail at once. Any thread; a second call changes nothing. */
void collective_abort(struct collective *c, const char *reason);

/* n bytes to or from one peer (not itself). n = 0 is nothing. recv must be given exactly what is sent. */
MUST_CHECK status_t collective_send(struct collective *c, enum collective_channel channel, int peer, const void *data,
                                    size_t n, struct err *e);
MUST_CHECK status_t collective_recv(struct collective *c, enum collective_channel channel, int peer, void *data,
                                    size_t n, struct err *e);

/* x (n) = the sum over ranks of x, the same bits on every rank and for every n: element by element the binary tree
 * ((0+1)+(2+3))+((4+5)+(6+7)) in fp32, by recursive halving and then an all-gather (Thakur, Rabenseifner, Gropp 2005).
 * Sends 2 n (P-1)/P floats in 2 log2 P rounds. */
MUST_CHECK status_t collective_reduce_ordered(struct collective *c, enum collective_channel channel, float *x,
                                              int64_t n, struct err *e);

/* all (world_size * n bytes) = rank 0's n bytes, rank 1's, ... `mine` may be all + rank * n. */
MUST_CHECK status_t collective_all_gather(struct collective *c, enum collective_channel channel, const void *mine,
                                          size_t n, void *all, struct err *e);

/* As collective_exchange_fn, over this collective: every rank's blob, of any length, to every rank. A blob over the
 * limit of all[r] is RESOURCE_EXHAUSTED (an error as any other: the collective is closed). */
MUST_CHECK status_t collective_exchange(struct collective *c, enum collective_channel channel, const void *mine,
                                        size_t n, struct bytes *all, struct err *e);

/* data (n bytes) on every rank = data on root. */
MUST_CHECK status_t collective_broadcast(struct collective *c, enum collective_channel channel, int root, void *data,
                                         size_t n, struct err *e);

/* Returns when every rank has called it. */
MUST_CHECK status_t collective_barrier(struct collective *c, enum collective_channel channel, struct err *e);

/* values (n) = the sums over ranks, added in double in rank order 0, 1, 2, ...: the same bits on every rank.
 * n <= COLLECTIVE_SMALL. */
MUST_CHECK status_t collective_sum_ordered(struct collective *c, enum collective_channel channel, double *values, int n,
                                           struct err *e);

/* *flags = the OR of every rank's flags: what one rank asks for (skip a checkpoint, stop), all ranks see. */
MUST_CHECK status_t collective_or(struct collective *c, enum collective_channel channel, uint64_t *flags,
                                  struct err *e);

enum {
    COLLECTIVE_SMALL = 64,                /* values in one collective_sum_ordered */
    COLLECTIVE_SEGMENT_BYTES = 512 << 10, /* what a reduction adds while the next one arrives */
    COLLECTIVE_STAGING_BYTES = 4 * COLLECTIVE_SEGMENT_BYTES,
};

#endif
