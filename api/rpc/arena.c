#include "api/rpc/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>

enum { CHUNK_BYTES = 4096 };

struct arena_chunk {
    struct arena_chunk *next;
    size_t used, size;
    alignas(16) unsigned char bytes[];
};

void arena_init(struct arena *a, size_t limit) { *a = (struct arena){ .limit = limit }; }

void arena_done(struct arena *a) {
    for (struct arena_chunk *c = a->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    arena_init(a, a->limit);
}

static struct arena_chunk *chunk_new(struct arena *a, size_t n) {
    size_t size = n > CHUNK_BYTES ? n : CHUNK_BYTES;
    if (size > a->limit - a->taken)
        return NULL;
    struct arena_chunk *c = malloc(sizeof *c + size);
    if (!c)
        return NULL;
    *c = (struct arena_chunk){ .next = a->chunks, .size = size };
    a->chunks = c;
    a->taken += size;
    return c;
}

static void *arena_alloc(void *ctx, size_t n) {
    struct arena *a = ctx;
    if (n <= SIZE_MAX - 15) {
        n = (n + 15) & ~(size_t)15; /* allocations are multiples of 16 bytes, so that all are aligned */
        struct arena_chunk *c = a->chunks;
        if (!c || c->size - c->used < n)
            c = chunk_new(a, n);
        if (c) {
            c->used += n;
            return c->bytes + c->used - n;
        }
    }
    a->exhausted = true;
    return NULL;
}

/* The `free` of the allocator does nothing: arena_done frees everything. */
static void arena_keep(void *ctx, void *p) {
    (void)ctx;
    (void)p;
}

ProtobufCAllocator arena_allocator(struct arena *a) { return (ProtobufCAllocator){ arena_alloc, arena_keep, a }; }

static void *budget_alloc(void *ctx, size_t n) {
    struct budget *b = ctx;
    void *p = n <= b->left ? malloc(n ? n : 1) : NULL;
    if (!p) {
        b->exhausted = true;
        return NULL;
    }
    b->left -= n;
    return p;
}

static void budget_free(void *ctx, void *p) {
    (void)ctx;
    free(p);
}

ProtobufCAllocator budget_allocator(struct budget *b) { return (ProtobufCAllocator){ budget_alloc, budget_free, b }; }
