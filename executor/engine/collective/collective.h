/* What ranks tell each other: point to point, gathered, united, and summed in an order that does not depend on timing.
 *
 *     struct collective_config config = { .rank = 1, .world_size = 4, .address = "10.0.0.7", .timeout_ms = 60000,
 *                                         .exchange = rendezvous_exchange, .exchange_ctx = link };
 *     TRY(collective_open_gloo(&config, &c, e));            // every rank at once: connects a full mesh
 *     struct collective_group data = { .first = stage * D, .stride = 1, .count = D };
 *     TRY(collective_reduce_ordered(c, COLLECTIVE_DATA, &data, bucket, cut, e));
 *     c = collective_close(c);
 *
 * Every collective call is made by all ranks of its group, with equal sizes, in the same order on a channel. A channel
 * is one ordered stream of calls: one thread at a time on each channel, different channels from different threads at
 * once. Between two ranks messages of one direction match in the order in which they were posted.
 *
 * Failure: the first error closes this rank's connections, so that every other rank fails within a second too, and is
 * repeated by every later call. UNAVAILABLE = a peer went away, DEADLINE_EXCEEDED = a peer said nothing for timeout_ms,
 * CANCELLED = collective_abort on this rank; the sentence names the peer's rank, and of a gang whose ranks leave one
 * because of the other the first, on all of them: who fails says why before it closes. After an error a collective can
 * only be closed; ranks that go on meet again through a new one.
 *
 * With world size 1 (collective_open_alone) every call returns at once and changes nothing.
 *
 * With a device attached (collective_deferred) calls on its channels only queue work, which comes after all that its
 * kernels have been given so far. What the kernels are given next comes after it where collective_finish says so, of a
 * transfer's ticket or of a mark's. Failures are found by threads that watch what is queued. They abort what is
 * queued. Aborted work looks finished, so a result counts only once collective_confirm has returned OK. Calls return
 * the failure when what had been queued has run off.
 *
 * Memory: buffers are borrowed during the call, or until what is queued is done. Staging for reductions is allocated by
 * open (COLLECTIVE_STAGING_BYTES a channel), not by the calls. */
#ifndef EXECUTOR_ENGINE_COLLECTIVE_COLLECTIVE_H
#define EXECUTOR_ENGINE_COLLECTIVE_COLLECTIVE_H

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct collective;
struct kernels; /* kernels/kernels.h */

/* Who talks on which channel. */
enum collective_channel {
    COLLECTIVE_CONTROL,    /* the compute thread, outside of steps: meetings, barriers, what a step has come to */
    COLLECTIVE_DATA,       /* reductions, gathers, norms, what a step tells of itself; the device's memory */
    COLLECTIVE_FORWARD,    /* a pipeline's activations, posted by the compute thread; the device's memory */
    COLLECTIVE_BACKWARD,   /* their gradients; the device's memory */
    COLLECTIVE_CHECKPOINT, /* the checkpoint writer's thread: chunk digests */
    COLLECTIVE_CHANNELS
};

/* Ranks first, first + stride, ...: count of them. The number of a rank in its group is its place in this row. */
struct collective_group {
    int first, stride, count;
};

/* One blob a rank to all ranks: all[r] receives rank r's (initialised by the caller with a limit, world_size of them).
 * This is how ranks find each other: Gloo's full mesh needs exactly one such exchange. It blocks until all have spoken
 * and has its own deadline. */
typedef status_t collective_exchange_fn(void *ctx, const void *mine, size_t n, struct bytes *all, struct err *e);

struct collective_config {
    int rank, world_size; /* at most LIMIT_WORLD_SIZE */
    const char *address;  /* host name or IP of the interface that the peers reach this rank by; "127.0.0.1" */
    int timeout_ms;       /* a call fails when a peer does not get on for this long; > 0 */
    collective_exchange_fn *exchange;
    void *exchange_ctx;
    bool sockets_only; /* ranks of one host do not read each other's memory either; on all ranks alike */
};

/* Ranks of one host whose kernel lets them read each other's memory, which opening asks it to, pass long messages of
 * reductions and gathers that way instead of through a socket.
 *
 * INVALID_ARGUMENT: a world size out of range, a rank outside it, an address that does not resolve.
 * Statuses of `exchange` pass through. DEADLINE_EXCEEDED or UNAVAILABLE: a peer could not be connected. */
MUST_CHECK status_t collective_open_gloo(const struct collective_config *config, struct collective **ret,
                                         struct err *e);
MUST_CHECK status_t collective_open_alone(struct collective **ret, struct err *e);
/* Ranks that are threads of one process, ret[world_size]: one collective for each, which its thread uses and closes. No
 * sockets, and otherwise as strict as Gloo; a receive that is not given exactly what is sent is INTERNAL. For tests of
 * what ranks do together. INVALID_ARGUMENT: a world size out of range. */
MUST_CHECK status_t collective_open_virtual(int world_size, int timeout_ms, struct collective **ret, struct err *e);

/* Ranks on CUDA, one process and one device each: from now on DATA, FORWARD and BACKWARD carry the memory of `kernels`,
 * over NCCL. What is opened over Gloo stays for the other channels, and its sockets tell NCCL of deaths: an error or a
 * deadline on either ends both, on every rank. All ranks at once; at most once. Alone: nothing.
 * FAILED_PRECONDITION: no plugin, no NCCL, or one of another version. */
struct collective_tuning {
    int64_t buffer_bytes;             /* NCCL_BUFFSIZE; 0: NCCL's choice */
    const char *algorithm, *protocol; /* NCCL_ALGO, NCCL_PROTO, of native sums alone; NULL or empty: NCCL's choice */
};
struct collective_device {
    const struct kernels *kernels; /* "cuda": a call comes after the work that was given to this table; borrowed */
    int data;                      /* data ranks of a stage, which are neighbours: a power of two, divides world_size */
    bool native;                   /* sums over data ranks are NCCL's own: faster, in an order of its choice */
    struct collective_tuning tuning; /* goes to this process's environment, which NCCL reads once */
};
/* Returns when all that DATA will use is connected, within timeout_ms. Calls on the device's channels may come from any
 * thread. */
MUST_CHECK status_t collective_attach(struct collective *c, const struct collective_device *device, struct err *e);
/* Whether this host has what collective_attach needs, without a device: FAILED_PRECONDITION and a sentence that names
 * NCCL. */
MUST_CHECK status_t collective_device_check(struct err *e);
/* Before `kernels` is closed; collective_close does it too. c NULL is fine. */
void collective_detach(struct collective *c);

/* Before this process's first call of CUDA, which reads it once, where several ranks run on CUDA: streams get a queue
 * of the device's each, as many as there are, so that none waits for what another has queued. In a pipeline a receive
 * that is posted early even keeps a kernel on the device until its sender comes, and nothing else may wait for that
 * kernel: all kernels are loaded at the start, not at their first launch, which may wait for an idle device. What the
 * environment has already stays. */
MUST_CHECK status_t collective_device_environment(bool pipeline, struct err *e);

/* Who will post to whom on FORWARD and BACKWARD: each rank names its own ends, before its first transfer and at most
 * once; both ends of a link call it. With a device attached it makes a communicator for each link and tries it, within
 * timeout_ms; else it is nothing. */
struct collective_link {
    enum collective_channel channel;
    int peer;
    bool is_send;
};
/* So few that each of a rank's streams, of these and of its kernels and DATA, has one of the 32 queues that a device
 * gives a process: a receive that waits for its sender would keep waiting whatever stands behind it in its queue.
 * FAILED_PRECONDITION: this process's environment gives it fewer (CUDA_DEVICE_MAX_CONNECTIONS) than its streams are. */
enum { COLLECTIVE_LINKS_MOST = 28 };
MUST_CHECK status_t collective_connect(struct collective *c, const struct collective_link *links, int n, struct err *e);

/* Closes the connections (peers that still wait fail). No other thread may be in a call: abort first, then join it. */
struct collective *collective_close(struct collective *c);
CLEANUP_DEFINE(struct collective *, collective_close)

int collective_rank(const struct collective *c);
int collective_world_size(const struct collective *c);
struct collective_group collective_world(const struct collective *c); /* all ranks */

/* Ends every call of this rank, now and later, with CANCELLED and `reason` in the sentence, and closes its connections,
 * so that all peers fail at once. It returns when each peer has sent its own last word or is no more: at once, or after
 * 2 s where one stands still. Any thread; a second call changes nothing. */
void collective_abort(struct collective *c, const char *reason);

/* The same for a failure `st` of this rank, which is returned; but when a device is attached and its kernels fail
 * (INTERNAL), who went away before that, if it is known within half a second: they fail of what they get no more. */
MUST_CHECK status_t collective_fail(struct collective *c, status_t st, const struct err *why, struct err *e);

/* n > 0 bytes to or from one peer (not itself), under way when the call returns; the memory is borrowed until
 * collective_finish. Any number may be under way; they complete in any order and need no thread. A receive must be
 * given exactly what is sent. */
MUST_CHECK status_t collective_post_send(struct collective *c, enum collective_channel channel, int peer,
                                         const void *data, size_t n, int *ret_ticket, struct err *e);
MUST_CHECK status_t collective_post_recv(struct collective *c, enum collective_channel channel, int peer, void *data,
                                         size_t n, int *ret_ticket, struct err *e);
/* Waits for a posted transfer; each ticket once, in any order. Of a deferred channel it is the kernels that wait: what
 * they are given from now on comes after it. */
MUST_CHECK status_t collective_finish(struct collective *c, enum collective_channel channel, int ticket, struct err *e);

/* Whether DATA, FORWARD and BACKWARD only queue work: with a device attached. */
bool collective_deferred(const struct collective *c);
/* Then: a ticket of all that DATA's calls have queued so far. */
MUST_CHECK status_t collective_mark(struct collective *c, int *ret_ticket, struct err *e);
/* By every rank, on CONTROL, when it has waited for its kernels: OK means that nothing of what any of them had queued
 * until then was cut short, nor made from what was: aborted work lets what comes after it go on, and what that sends
 * may be taken for the real thing until a failure is known. Results count from here on. Without a device it is
 * nothing. */
MUST_CHECK status_t collective_confirm(struct collective *c, struct err *e);

/* Post and finish in one. n = 0 is nothing. */
MUST_CHECK status_t collective_send(struct collective *c, enum collective_channel channel, int peer, const void *data,
                                    size_t n, struct err *e);
MUST_CHECK status_t collective_recv(struct collective *c, enum collective_channel channel, int peer, void *data,
                                    size_t n, struct err *e);

/* The ordered sum over a group whose count is a power of two: element by element the binary tree
 * ((0+1)+(2+3))+((4+5)+(6+7)) in fp32, whatever the cuts: the same bits however an array is cut in calls and pieces.
 *
 * cut[count + 1] ascending from 0 says where x is cut into pieces; piece j belongs to the group's rank
 * collective_piece(j, count), because recursive halving (Thakur, Rabenseifner, Gropp 2005; nearest ranks first) ends
 * with it there: rank r keeps the lower or higher half of the pieces by the bits of r, lowest first.
 *
 * reduce_scatter: the own piece of x becomes the sum; the rest of x is lost. Sends n (count - 1) / count floats.
 * all_gather_pieces: every rank's own piece of x to all; elements of element_bytes. */
MUST_CHECK status_t collective_reduce_scatter_ordered(struct collective *c, enum collective_channel channel,
                                                      const struct collective_group *group, float *x,
                                                      const int64_t *cut, struct err *e);
MUST_CHECK status_t collective_all_gather_pieces(struct collective *c, enum collective_channel channel,
                                                 const struct collective_group *group, void *x, size_t element_bytes,
                                                 const int64_t *cut, struct err *e);
/* Both: x = the sum, on every rank. */
MUST_CHECK status_t collective_reduce_ordered(struct collective *c, enum collective_channel channel,
                                              const struct collective_group *group, float *x, const int64_t *cut,
                                              struct err *e);
/* The bits of j reversed in log2(count) bits: the rank of piece j, and the piece of rank j. */
int collective_piece(int j, int count);

/* x (n words) = the bitwise OR over the group's ranks, of any count: what one rank asks for, all see; and an array of
 * which each rank has filled in its own words and zeroed the rest becomes whole on all. By doubling when x is
 * small and the count a power of two, else by a ring: 2 n words each way. */
MUST_CHECK status_t collective_or(struct collective *c, enum collective_channel channel,
                                  const struct collective_group *group, uint64_t *x, int64_t n, struct err *e);

/* all (world_size * n bytes) = rank 0's n bytes, rank 1's, ... `mine` may be all + rank * n. */
MUST_CHECK status_t collective_all_gather(struct collective *c, enum collective_channel channel, const void *mine,
                                          size_t n, void *all, struct err *e);

/* As collective_exchange_fn, over this collective: every rank's blob, of any length, to every rank. A blob over the
 * limit of all[r] is RESOURCE_EXHAUSTED (an error as any other: the collective is closed). */
MUST_CHECK status_t collective_exchange(struct collective *c, enum collective_channel channel, const void *mine,
                                        size_t n, struct bytes *all, struct err *e);

/* Returns when every rank has called it. */
MUST_CHECK status_t collective_barrier(struct collective *c, enum collective_channel channel, struct err *e);

enum {
    COLLECTIVE_SEGMENT_BYTES = 512 << 10, /* what a reduction adds while the next one arrives */
    COLLECTIVE_STAGING_BYTES = 4 * COLLECTIVE_SEGMENT_BYTES,
};

#endif
