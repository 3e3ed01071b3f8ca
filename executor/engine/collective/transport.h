/* What a collective needs of a transport: transfers between two ranks that are begun and then finished, several at
 * once, as many as are asked for. gloo.cc implements it on TCP, virtual.c between threads; the algorithms know nothing
 * else.
 *
 * On a channel one thread at a time begins and finishes transfers; messages between two ranks on a channel match in the
 * order in which they were begun. The first failure is kept: every later call returns it. Private to this folder. */
#ifndef EXECUTOR_ENGINE_COLLECTIVE_TRANSPORT_H
#define EXECUTOR_ENGINE_COLLECTIVE_TRANSPORT_H

#include "executor/engine/collective/collective.h"

#ifdef __cplusplus
extern "C" {
#endif

struct transport;

struct transport_ops {
    /* Both return at once with a handle for finish, and borrow the memory until then. n > 0. */
    status_t (*begin_send)(struct transport *t, int channel, int peer, const void *data, size_t n, int *ret,
                           struct err *e);
    status_t (*begin_recv)(struct transport *t, int channel, int peer, void *data, size_t n, int *ret, struct err *e);
    /* Waits until the transfer is done; its memory is the caller's again even on failure. */
    status_t (*finish)(struct transport *t, int channel, int handle, struct err *e);
    void (*abort)(struct transport *t, const char *reason);
    void (*close)(struct transport *t);
};

struct transport {
    const struct transport_ops *ops;
};

/* Connects every rank with every other one. */
status_t transport_open_gloo(const struct collective_config *config, struct transport **ret, struct err *e);
/* The transports of all ranks, ret[world_size]; each is closed on its own. */
status_t transport_open_virtual(int world_size, int timeout_ms, struct transport **ret, struct err *e);

#ifdef __cplusplus
}
#endif

#endif
