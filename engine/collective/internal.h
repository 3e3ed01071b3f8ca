/* What the algorithms of this folder share: the state of a collective, and exchanges over the transport that carries a
 * stream. Private to this folder. */
#ifndef ENGINE_COLLECTIVE_INTERNAL_H
#define ENGINE_COLLECTIVE_INTERNAL_H

#include "engine/collective/transport.h"

#include <pthread.h>
#include <stdbool.h>

struct collective_plugin; /* plugin.h */

struct collective {
    int rank, world_size, timeout_ms;
    struct collective_transport *host;   /* NULL with world size 1 */
    struct collective_transport *device; /* of the streams that carry a device's memory; NULL: the host's transport */
    pthread_mutex_t lock;                /* of `device`, between collective_abort and attaching or detaching */
    char *staging[COLLECTIVE_STREAMS];   /* COLLECTIVE_STAGING_BYTES each; NULL with world size 1 */
};

/* A collective without a transport. */
status_t collective_new(int rank, int world_size, int timeout_ms, struct collective **ret, struct err *e);
status_t collective_check_world_size(int world_size, struct err *e);

static inline struct collective_transport *transport_of(const struct collective *c, enum collective_stream stream) {
    const bool device = stream == COLLECTIVE_DATA || stream == COLLECTIVE_FORWARD || stream == COLLECTIVE_BACKWARD;
    return device && c->device ? c->device : c->host;
}

static inline status_t collective_exchange(struct collective *c, enum collective_stream stream,
                                           const struct exchange *x, struct err *e) {
    struct collective_transport *t = transport_of(c, stream);
    return t->ops->exchange(t, (int)stream, x, c->staging[stream], e);
}

/* This rank's number in a group that it belongs to. */
int group_number(const struct collective *c, const struct collective_group *group);

/* Sets peers[r] for each rank r with which a call over this group may exchange. */
void group_peers(const struct collective *c, const struct collective_group *group, bool *peers);

/* collective_attach with a given plugin. */
status_t collective_attach_plugin(struct collective *c, const struct collective_plugin *plugin,
                                  const struct collective_device *device, struct err *e);

#endif
