/* Communication between the ranks of a gang: point to point, gathers, and reductions in an order that does not depend
 * on timing.
 *
 *     struct collective_config config = { .rank = 1, .world_size = 4, .address = "10.0.0.7", .timeout_ms = 60000,
 *                                         .rendezvous = ask_controller, .rendezvous_ctx = link };
 *     TRY(collective_open_gloo(&config, &c, e));            // all ranks at once: connects a full mesh
 *     struct collective_group data = { .first = stage * D, .stride = 1, .count = D };
 *     TRY(collective_reduce_ordered(c, COLLECTIVE_DATA, &data, bucket, offsets, e));
 *     c = collective_close(c);
 *
 * Calls: every rank of a group makes each collective call, with equal sizes, in the same order on a stream. A stream is
 * one ordered sequence of calls. One thread at a time may use a stream; different threads may use different streams at
 * the same time. Messages from one rank to another on one stream match in the order in which they were posted.
 *
 * Failure: the first error closes this rank's connections, so that every other rank fails within a second too, and
 * every later call returns it. UNAVAILABLE: a peer was lost. DEADLINE_EXCEEDED: a peer made no progress for timeout_ms.
 * CANCELLED: collective_abort on this rank. The sentence names the rank that was lost first, and is the same on all
 * ranks: a rank that fails sends the reason to its peers before it closes. After an error a collective can only be
 * closed; ranks that continue open a new one.
 *
 * With world size 1 (collective_open_alone) every call returns at once and changes nothing.
 *
 * With a device attached (collective_deferred) calls on its streams only queue work. The work begins after all work
 * that its kernels have so far; later work of the kernels waits for it only after collective_finish of a transfer's
 * ticket or of a mark. Threads of the collective detect failures and abort queued work. Aborted work looks finished to
 * later work, so a result is valid only once collective_confirm has returned OK. A call returns the failure after the
 * queued work has ended.
 *
 * Memory: buffers are borrowed during the call, or until the queued work is done. Opening allocates the staging for
 * reductions (COLLECTIVE_STAGING_BYTES per stream); calls allocate nothing of that size. */
#ifndef ENGINE_COLLECTIVE_COLLECTIVE_H
#define ENGINE_COLLECTIVE_COLLECTIVE_H

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct collective;
struct kernels; /* kernels/kernels.h */

/* Each stream has one user. */
enum collective_stream {
    COLLECTIVE_CONTROL,    /* the compute thread between steps: rendezvous, barriers, confirmations */
    COLLECTIVE_DATA,       /* reductions, gathers, norms, a step's statistics; the device's memory */
    COLLECTIVE_FORWARD,    /* a pipeline's activations, posted by the compute thread; the device's memory */
    COLLECTIVE_BACKWARD,   /* their gradients; the device's memory */
    COLLECTIVE_CHECKPOINT, /* the checkpoint writer's thread: chunk digests */
    COLLECTIVE_STREAMS
};

/* `count` ranks: first, first + stride, ... A rank's number in the group is its index in this list. */
struct collective_group {
    int first, stride, count;
};

/* Sends this rank's n bytes to all ranks: all[r] receives the bytes of rank r (world_size of them, initialised by the
 * caller with a limit). Ranks find each other by this function: connecting Gloo's full mesh calls it once. It blocks
 * until every rank has called it, and has its own deadline. */
typedef status_t collective_rendezvous_fn(void *ctx, const void *mine, size_t n, struct bytes *all, struct err *e);

struct collective_config {
    int rank, world_size; /* at most LIMIT_WORLD_SIZE */
    const char *address;  /* host name or IP at which the peers reach this rank: "127.0.0.1" */
    int timeout_ms;       /* a call fails if a peer makes no progress for this long; > 0 */
    collective_rendezvous_fn *rendezvous;
    void *rendezvous_ctx;
    bool sockets_only; /* no shared memory between ranks of one host; the same on all ranks */
};

/* Ranks of one host use shared memory for long messages of reductions and gathers if the system permits it: opening
 * asks for the permission.
 *
 * INVALID_ARGUMENT: a world size or a rank out of range. NOT_FOUND: an address that does not resolve.
 * FAILED_PRECONDITION: this host cannot listen there.
 * Statuses of `rendezvous` pass through. DEADLINE_EXCEEDED or UNAVAILABLE: a peer could not be connected. */
MUST_CHECK status_t collective_open_gloo(const struct collective_config *config, struct collective **ret,
                                         struct err *e);
MUST_CHECK status_t collective_open_alone(struct collective **ret, struct err *e);
/* Ranks that are threads of one process, for tests: ret[world_size] has a collective for each thread, which uses and
 * closes it. No sockets; otherwise as strict as Gloo. A receive whose length differs from its send is INTERNAL.
 * INVALID_ARGUMENT: a world size out of range. */
MUST_CHECK status_t collective_open_threads(int world_size, int timeout_ms, struct collective **ret, struct err *e);

/* Attaches CUDA, with one process and one device per rank: from now on DATA, FORWARD and BACKWARD carry the memory of
 * `kernels`, over NCCL. The other streams stay on Gloo, whose sockets also detect deaths for NCCL: an error or a
 * deadline on either fails both, on every rank. All ranks call it at once, at most once. With world size 1 it does
 * nothing. FAILED_PRECONDITION: no plugin, no NCCL, or one of another version. */
struct collective_tuning {
    int64_t buffer_bytes;             /* NCCL_BUFFSIZE; 0: NCCL's choice */
    const char *algorithm, *protocol; /* NCCL_ALGO, NCCL_PROTO, for native sums only; NULL or empty: NCCL's choice */
};
struct collective_device {
    const struct kernels *kernels; /* "cuda": calls run after the work of this table; borrowed */
    int data;    /* data ranks of a stage, which are adjacent: a power of two that divides world_size */
    bool native; /* NCCL computes sums over data ranks: faster, in an order of its choice */
    struct collective_tuning tuning; /* set in this process's environment, which NCCL reads once */
};
/* Returns when all connections of DATA are made, within timeout_ms. Any thread may call on the device's streams. */
MUST_CHECK status_t collective_attach(struct collective *c, const struct collective_device *device, struct err *e);
/* Checks, without a device, whether this host has what collective_attach needs: else FAILED_PRECONDITION and a sentence
 * that names NCCL. */
MUST_CHECK status_t collective_device_check(struct err *e);
/* Call it before closing `kernels`; collective_close calls it too. c may be NULL. */
void collective_detach(struct collective *c);

/* Sets CUDA's environment variables for several ranks on CUDA, before this process's first call of CUDA, which reads
 * them once. Every CUDA stream gets a hardware queue of its own, so that none waits for work of another. In a pipeline,
 * kernels are also loaded at the start instead of at their first launch: loading may wait for an idle device, and a
 * receive that was posted early occupies the device until its sender comes. Variables that are set already stay. */
MUST_CHECK status_t collective_device_environment(bool pipeline, struct err *e);

/* Declares the transfers of FORWARD and BACKWARD: each rank names its ends of its links before its first transfer, at
 * most once, and both ends of a link call it. With a device attached this makes and uses a communicator for each link,
 * within timeout_ms; without one it does nothing. */
struct collective_link {
    enum collective_stream stream;
    int peer;
    bool is_send;
};
/* The limit leaves one of the 32 hardware queues of a process for each CUDA stream of a rank (links, kernels, DATA): a
 * receive that waits for its sender also delays all work behind it in its hardware queue. FAILED_PRECONDITION: this
 * process's environment allows fewer queues (CUDA_DEVICE_MAX_CONNECTIONS) than it has streams. */
enum { COLLECTIVE_MAX_LINKS = 28 };
MUST_CHECK status_t collective_connect(struct collective *c, const struct collective_link *links, int n, struct err *e);

/* Closes the connections; peers that still wait fail. No other thread may be in a call: abort first, then join it. */
struct collective *collective_close(struct collective *c);
CLEANUP_DEFINE(struct collective *, collective_close)

int collective_rank(const struct collective *c);
int collective_world_size(const struct collective *c);
struct collective_group collective_world(const struct collective *c); /* all ranks */

/* Fails every call of this rank, now and later, with CANCELLED and `reason` in the sentence, and closes its
 * connections, so that all peers fail at once. Returns when each peer has sent its own reason or is lost: at once, or
 * after 2 s if a peer is stopped. Any thread; a second call changes nothing. */
void collective_abort(struct collective *c, const char *reason);

/* collective_abort with a failure `st` of this rank, which it returns. If a device is attached and st is INTERNAL (its
 * kernels failed) and a peer was lost within the last 500 ms, that peer's failure is returned instead: kernels often
 * fail because the peer's data stopped. */
MUST_CHECK status_t collective_fail(struct collective *c, status_t st, const struct err *why, struct err *e);

/* Post a transfer of n > 0 bytes to or from another rank and return at once. The memory is borrowed until
 * collective_finish. Any number of transfers may be in flight; they complete in any order and need no thread. A receive
 * has the length of its send. */
MUST_CHECK status_t collective_post_send(struct collective *c, enum collective_stream stream, int peer,
                                         const void *data, size_t n, int *ret_ticket, struct err *e);
MUST_CHECK status_t collective_post_recv(struct collective *c, enum collective_stream stream, int peer, void *data,
                                         size_t n, int *ret_ticket, struct err *e);
/* Waits for a posted transfer; each ticket once, in any order. On a deferred stream later work of the kernels waits
 * instead of the caller. */
MUST_CHECK status_t collective_finish(struct collective *c, enum collective_stream stream, int ticket, struct err *e);

/* Whether a device is attached, so that DATA, FORWARD and BACKWARD only queue work. */
bool collective_deferred(const struct collective *c);
/* Only then: a ticket for all work that calls on DATA have queued so far. */
MUST_CHECK status_t collective_mark(struct collective *c, int *ret_ticket, struct err *e);
/* Called by every rank, on CONTROL, after it has waited for its kernels. OK: no rank's work that was queued until then
 * was aborted, and none of it used aborted data. Results are valid from here on. (Aborted work lets later work
 * continue, and another rank may receive its data before the failure is known.) Without a device it does nothing. */
MUST_CHECK status_t collective_confirm(struct collective *c, struct err *e);

/* Post and finish in one call. n = 0 does nothing. */
MUST_CHECK status_t collective_send(struct collective *c, enum collective_stream stream, int peer, const void *data,
                                    size_t n, struct err *e);
MUST_CHECK status_t collective_recv(struct collective *c, enum collective_stream stream, int peer, void *data, size_t n,
                                    struct err *e);

/* The ordered sum over a group whose count is a power of two: each element is the binary tree
 * ((0+1)+(2+3))+((4+5)+(6+7)) in fp32. It has the same bits however an array is divided into calls and shards.
 *
 * offsets[count + 1], ascending from 0, divides x into shards. Shard j belongs to rank collective_shard(j, count) of
 * the group, because recursive halving (Thakur, Rabenseifner, Gropp 2005; nearest ranks first) ends with it there: rank
 * r keeps the lower or the higher half of the shards by the bits of r, lowest bit first.
 *
 * reduce_scatter: this rank's shard of x becomes the sum; the rest of x is undefined. Sends n (count - 1) / count
 * floats. all_gather_shards: copies every rank's own shard of x to all ranks; elements of element_bytes. */
MUST_CHECK status_t collective_reduce_scatter_ordered(struct collective *c, enum collective_stream stream,
                                                      const struct collective_group *group, float *x,
                                                      const int64_t *offsets, struct err *e);
MUST_CHECK status_t collective_all_gather_shards(struct collective *c, enum collective_stream stream,
                                                 const struct collective_group *group, void *x, size_t element_bytes,
                                                 const int64_t *offsets, struct err *e);
/* Both in one: x = the sum, on every rank. */
MUST_CHECK status_t collective_reduce_ordered(struct collective *c, enum collective_stream stream,
                                              const struct collective_group *group, float *x, const int64_t *offsets,
                                              struct err *e);
/* The log2(count) bits of j in reverse order: the rank of shard j, and the shard of rank j. */
int collective_shard(int j, int count);

/* x (n words) = the bitwise OR of x over the group's ranks, of any count. For flags that any rank may set, and for
 * arrays in which each rank fills its own words and zeroes the others. By doubling if x is small and the count is a
 * power of two, else by a ring: 2 n words each way. */
MUST_CHECK status_t collective_or(struct collective *c, enum collective_stream stream,
                                  const struct collective_group *group, uint64_t *x, int64_t n, struct err *e);

/* all (world_size * n bytes) = rank 0's n bytes, rank 1's, ... `mine` may be all + rank * n. */
MUST_CHECK status_t collective_all_gather(struct collective *c, enum collective_stream stream, const void *mine,
                                          size_t n, void *all, struct err *e);

/* collective_rendezvous_fn over this collective: sends every rank's blob, of any length, to every rank. A blob above
 * the limit of all[r] is RESOURCE_EXHAUSTED, an error like any other: the collective is closed. */
MUST_CHECK status_t collective_all_gather_blobs(struct collective *c, enum collective_stream stream, const void *mine,
                                                size_t n, struct bytes *all, struct err *e);

/* Returns when every rank has called it. */
MUST_CHECK status_t collective_barrier(struct collective *c, enum collective_stream stream, struct err *e);

enum {
    COLLECTIVE_SEGMENT_BYTES = 512 << 10, /* a reduction adds one segment while the next one arrives */
    COLLECTIVE_STAGING_BYTES = 4 * COLLECTIVE_SEGMENT_BYTES,
};

#endif
