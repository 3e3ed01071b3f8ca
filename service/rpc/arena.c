#include "service/rpc/arena.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

struct piece {
    struct piece *next;
    Trainyard__V1__JobSpec *spec; /* or NULL */
    max_align_t data[];
};

struct arena {
    struct piece *pieces;
    bool refused;
};

struct arena *arena_new(void) {
    return calloc(1, sizeof(struct arena));
}

static void *noted(struct arena *a, void *p) {
    a->refused |= !p;
    return p;
}

static void *spec_alloc(void *arena, size_t n) { return noted(arena, malloc(n)); }

static void spec_release(void *arena, void *p) {
    (void)arena;
    free(p);
}

/* A spec that is refused memory is told from bytes that are none. */
static ProtobufCAllocator spec_allocator(struct arena *a) {
    return (ProtobufCAllocator){ .alloc = spec_alloc, .free = spec_release, .allocator_data = a };
}

struct arena *arena_free(struct arena *a) {
    if (!a)
        return NULL;
    ProtobufCAllocator allocator = spec_allocator(a);
    for (struct piece *p = a->pieces, *next; p; p = next) {
        next = p->next;
        if (p->spec)
            trainyard__v1__job_spec__free_unpacked(p->spec, &allocator);
        free(p);
    }
    free(a);
    return NULL;
}

static struct piece *add(struct arena *a, size_t bytes) {
    struct piece *p = a ? noted(a, calloc(1, sizeof *p + bytes)) : NULL;
    if (p) {
        p->next = a->pieces;
        a->pieces = p;
    }
    return p;
}

void *arena_alloc(struct arena *a, size_t n, size_t size) {
    struct piece *p = add(a, n * size);
    return p ? p->data : NULL;
}

void *arena_message(struct arena *a, const ProtobufCMessageDescriptor *kind) {
    ProtobufCMessage *m = arena_alloc(a, 1, kind->sizeof_message);
    if (m)
        protobuf_c_message_init(kind, m);
    return m;
}

char *arena_printf(struct arena *a, const char *fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = arena_alloc(a, (size_t)n + 1, 1);
    if (text)
        vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    return text;
}

Trainyard__V1__JobSpec *arena_spec(struct arena *a, const void *packed, size_t n) {
    ProtobufCAllocator allocator = spec_allocator(a);
    struct piece *p = add(a, 0);
    if (p)
        p->spec = trainyard__v1__job_spec__unpack(&allocator, n, packed);
    return p ? p->spec : NULL;
}

status_t arena_status(const struct arena *a, struct err *e) {
    return a && !a->refused ? ST_OK : err_set(e, ST_RESOURCE_EXHAUSTED, "the controller has no memory for the reply");
}
