/* Memory of one reply: everything that a message points to, freed together. Not thread-safe.
 *
 *     CLEANUP(arena_freep) struct arena *a = arena_new();
 *     out.events = arena_alloc(a, n, sizeof *out.events);
 *     out.n_events = n;
 *     for (size_t i = 0; i < n; i++)
 *         out.events[i] = convert_event(a, &rows[i]);
 *
 * A reply has the size of a page, so that its memory is small (base/alloc.h). */
#ifndef SERVICE_RPC_ARENA_H
#define SERVICE_RPC_ARENA_H

#include "base/cleanup.h"

#include <stddef.h>
#include <trainyard/v1/spec.pb-c.h>

struct arena;
struct arena *arena_new(void);
struct arena *arena_free(struct arena *a);
CLEANUP_DEFINE(struct arena *, arena_free)

void *arena_alloc(struct arena *a, size_t n, size_t size); /* zeroed */
/* An empty message of that kind, initialised as protobuf-c's init function does. */
void *arena_message(struct arena *a, const ProtobufCMessageDescriptor *kind);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Unpacks a spec, which is freed with the arena. NULL for bytes that are not a spec. */
Trainyard__V1__JobSpec *arena_spec(struct arena *a, const void *packed, size_t n);

#endif
