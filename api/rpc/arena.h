/* Where a decoded message lives: memory that is only handed out, with a ceiling, and dropped at once.
 *
 * A peer's message of 4 MiB may decode into 50 times as much, so that unpacking takes a budget; and a message dies as a
 * whole, so that freeing it field by field is wasted. Not thread-safe. */
#ifndef API_RPC_ARENA_H
#define API_RPC_ARENA_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

struct arena_chunk;

struct arena {
    struct arena_chunk *chunks;
    size_t taken, limit; /* bytes from malloc, and how many there may be */
    bool exhausted;      /* a request went over the limit, or malloc failed */
};

void arena_init(struct arena *, size_t limit);
void arena_done(struct arena *); /* drops everything; the arena may be used again with the same limit */

/* For protobuf_c_message_unpack. Never call free_unpacked on what it made. */
ProtobufCAllocator arena_allocator(struct arena *);

/* The same ceiling over plain malloc, for a message whose owner frees it with
 * protobuf_c_message_free_unpacked(m, NULL). */
struct budget {
    size_t left;
    bool exhausted;
};
ProtobufCAllocator budget_allocator(struct budget *);

#endif
