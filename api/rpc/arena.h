/* The memory of a decoded message: allocations with a total limit, freed all at once.
 *
 * A message of 4 MiB may need 50 times as much memory when it is decoded, so decoding has a limit. All parts of a
 * message are freed together, so freeing each field would waste time. Not thread-safe. */
#ifndef API_RPC_ARENA_H
#define API_RPC_ARENA_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

struct arena_chunk;

struct arena {
    struct arena_chunk *chunks;
    size_t taken, limit; /* bytes from malloc, and their limit */
    bool exhausted;      /* an allocation would exceed the limit, or malloc failed */
};

void arena_init(struct arena *, size_t limit);
void arena_done(struct arena *); /* frees everything; the arena can be used again with the same limit */

/* For protobuf_c_message_unpack. Never call free_unpacked on the result: arena_done frees it. */
ProtobufCAllocator arena_allocator(struct arena *);

/* The same limit for plain malloc: the owner frees the message with protobuf_c_message_free_unpacked(m, NULL). */
struct budget {
    size_t left;
    bool exhausted;
};
ProtobufCAllocator budget_allocator(struct budget *);

#endif
