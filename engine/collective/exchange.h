/* Exchanges over any transport of host memory. Private to this folder. */
#ifndef ENGINE_COLLECTIVE_EXCHANGE_H
#define ENGINE_COLLECTIVE_EXCHANGE_H

#include "engine/collective/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `exchange` of transport.h by begin_send, begin_recv and finish: up to four segments in flight in each direction. */
status_t exchange_segments(struct collective_transport *t, int stream, const struct exchange *x, char *staging,
                           struct err *e);

/* Accumulates n bytes that arrived in `staging` into `in`. EXCHANGE_STORE does nothing: the bytes arrived in place. */
void exchange_accumulate(enum exchange_kind kind, char *in, const char *staging, size_t n);

/* all (world_size * n bytes) = n bytes of every rank, in the order of ranks. `mine` may be all + rank * n. */
status_t exchange_all_gather(struct collective_transport *t, int stream, int rank, int world_size, const void *mine,
                             size_t n, void *all, char *staging, struct err *e);

#ifdef __cplusplus
}
#endif

#endif
