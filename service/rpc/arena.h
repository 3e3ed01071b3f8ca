/* Memory of one reply: everything that a message points to, freed together. Not thread-safe.
 *
 *     CLEANUP(arena_freep) struct arena *a = arena_new();
 *     out.events = arena_alloc(a, n, sizeof *out.events);
 *     out.n_events = out.events ? n : 0;
 *     for (size_t i = 0; i < out.n_events; i++)
 *         out.events[i] = convert_event(a, &rows[i]);
 *     TRY(arena_status(a, e));      // before it is sent
 *
 * Memory that the system refuses is NULL, here and in all that is made of it, and arena_status tells it once: a message
 * with holes is never sent. An arena that is NULL itself has refused everything. */
#ifndef SERVICE_RPC_ARENA_H
#define SERVICE_RPC_ARENA_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stddef.h>
#include <trainyard/v1/spec.pb-c.h>

struct arena;
struct arena *arena_new(void);
struct arena *arena_free(struct arena *a);
CLEANUP_DEFINE(struct arena *, arena_free)

void *arena_alloc(struct arena *a, size_t n, size_t size); /* zeroed */
/* A message of that kind, as its init makes it. */
void *arena_message(struct arena *a, const ProtobufCMessageDescriptor *kind);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Freed with the arena; NULL also for bytes that are no spec. */
Trainyard__V1__JobSpec *arena_spec(struct arena *a, const void *packed, size_t n);

/* RESOURCE_EXHAUSTED when something was refused. */
MUST_CHECK status_t arena_status(const struct arena *a, struct err *e);

#endif
