/* What a collective needs of a transport: transfers between two ranks that are begun and then finished, several at
 * once, as many as are asked for. gloo.cc implements it on TCP, virtual.c between threads, nccl.c between CUDA devices;
 * the algorithms know nothing else.
 *
 * On a channel one thread at a time begins and finishes transfers; messages between two ranks on a channel match in the
 * order in which they were begun. The first failure is kept: every later call returns it. Private to this folder. */
#ifndef EXECUTOR_ENGINE_COLLECTIVE_TRANSPORT_H
#define EXECUTOR_ENGINE_COLLECTIVE_TRANSPORT_H

#include "executor/engine/collective/collective.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct transport;
struct swap; /* internal.h */

/* What a transport may do in one, over the group of data ranks: x = the sum on every rank, the own piece of the sum, or
 * every rank's piece on all. Cuts as in collective.h. */
enum transport_whole { TRANSPORT_SUM, TRANSPORT_SUM_PIECES, TRANSPORT_GATHER };

struct transport_ops {
    /* Both return at once with a handle for finish, and borrow the memory until then. n > 0. */
    status_t (*begin_send)(struct transport *t, int channel, int peer, const void *data, size_t n, int *ret,
                           struct err *e);
    status_t (*begin_recv)(struct transport *t, int channel, int peer, void *data, size_t n, int *ret, struct err *e);
    /* Waits until the transfer is done; its memory is the caller's again even on failure. Where there is a `mark` the
     * device waits. */
    status_t (*finish)(struct transport *t, int channel, int handle, struct err *e);
    /* The first failure so far; any thread, waits for nothing. */
    status_t (*check)(struct transport *t, struct err *e);
    void (*abort)(struct transport *t, const char *reason);
    /* A failure of the device's own: ends all as an abort, and is returned; but if a peer's is known within a moment,
     * that one. NULL where there is no device. */
    status_t (*fail)(struct transport *t, status_t st, const struct err *why, struct err *e);
    void (*close)(struct transport *t);

    /* NULL where the calls above do: those of a device, whose memory only it adds. They only queue work; `mark`: a
     * handle, of COLLECTIVE_DATA, for what its calls have queued so far. */
    status_t (*mark)(struct transport *t, int *ret, struct err *e);
    status_t (*swap)(struct transport *t, enum collective_channel channel, const struct swap *swap, struct err *e);
    status_t (*connect)(struct transport *t, const struct collective_link *links, int n, struct err *e);
    bool (*does)(const struct transport *t, enum transport_whole what, const struct collective_group *group);
    status_t (*whole)(struct transport *t, enum transport_whole what, void *x, size_t element_bytes, const int64_t *cut,
                      struct err *e);
};

struct transport {
    const struct transport_ops *ops;
};

/* Connects every rank with every other one. */
status_t transport_open_gloo(const struct collective_config *config, struct transport **ret, struct err *e);

#ifdef __cplusplus
}
#endif

#endif
