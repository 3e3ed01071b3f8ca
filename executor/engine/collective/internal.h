/* What the sources of this folder share. Private to it. */
#ifndef EXECUTOR_ENGINE_COLLECTIVE_INTERNAL_H
#define EXECUTOR_ENGINE_COLLECTIVE_INTERNAL_H

#include "executor/engine/collective/transport.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

struct collective_plugin; /* device.h */

struct collective {
    int rank, world_size, timeout_ms;
    struct transport *host;             /* NULL when alone */
    struct transport *device;           /* of the channels that carry a device's memory; NULL: the host's */
    pthread_mutex_t lock;               /* of `device`, between an abort and what attaches or detaches it */
    pid_t *near;                        /* by rank: a process of this host (near.h), else 0; NULL: there is none */
    char *staging[COLLECTIVE_CHANNELS]; /* COLLECTIVE_STAGING_BYTES each; NULL when alone */
};

/* Without a transport yet. */
status_t collective_new(int rank, int world_size, int timeout_ms, struct collective **ret, struct err *e);
status_t collective_check_world_size(int world_size, struct err *e);

static inline struct transport *transport_of(const struct collective *c, enum collective_channel channel) {
    const bool device = channel == COLLECTIVE_DATA || channel == COLLECTIVE_FORWARD || channel == COLLECTIVE_BACKWARD;
    return device && c->device ? c->device : c->host;
}

/* What happens to what arrives: it replaces `in`, is added to it as floats, or or-ed to it as words; the last two by
 * way of the channel's staging. */
enum swap_kind { SWAP_STORE, SWAP_ADD, SWAP_OR };

/* Sends n_out bytes to rank `to` and receives n_in bytes from rank `from` at the same time, in segments. */
struct swap {
    int to, from;
    const void *out;
    size_t n_out;
    void *in;
    size_t n_in;
    enum swap_kind kind;
};
status_t collective_swap(struct collective *c, enum collective_channel channel, const struct swap *swap, struct err *e);

/* The same over a transport of the host, through its connections only. */
status_t swap_streams(struct collective *c, enum collective_channel channel, const struct swap *swap, struct err *e);

/* `n` bytes that have arrived in staging go to `in`; with SWAP_STORE they are there. */
void swap_fold(enum swap_kind kind, char *in, const char *staging, size_t n);

/* The number of this rank in a group, of which it is one. */
int group_number(const struct collective *c, const struct collective_group *group);

/* Marks, of all ranks, those with whom any call over this group may swap. */
void group_swaps(const struct collective *c, const struct collective_group *group, bool *swaps);

/* collective_attach with the plugin at hand. */
status_t collective_attach_plugin(struct collective *c, const struct collective_plugin *plugin,
                                  const struct collective_device *device, struct err *e);

#endif
