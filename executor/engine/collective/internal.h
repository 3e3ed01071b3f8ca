/* What collective.c and reduce.c share. Private to this folder. */
#ifndef EXECUTOR_ENGINE_COLLECTIVE_INTERNAL_H
#define EXECUTOR_ENGINE_COLLECTIVE_INTERNAL_H

#include "executor/engine/collective/transport.h"

#include <stdbool.h>

struct collective {
    int rank, world_size;
    struct transport *transport;        /* NULL when alone */
    char *staging[COLLECTIVE_CHANNELS]; /* COLLECTIVE_STAGING_BYTES each; NULL when alone */
};

/* Sends n_out bytes to the peer and receives n_in bytes from it at the same time, in segments. With `add`, `in` is an
 * array of floats that what arrives is added to, by way of the channel's staging; without, it is overwritten. */
status_t collective_swap(struct collective *c, enum collective_channel channel, int peer, const void *out, size_t n_out,
                         void *in, size_t n_in, bool add, struct err *e);

#endif
