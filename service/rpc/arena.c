#include "service/rpc/arena.h"

#include "base/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct piece {
    struct piece *next;
    Trainyard__V1__JobSpec *spec; /* or NULL */
    max_align_t data[];
};

struct arena {
    struct piece *pieces;
};

struct arena *arena_new(void) {
    return alloc_zeroed(1, sizeof(struct arena));
}

struct arena *arena_free(struct arena *a) {
    if (!a)
        return NULL;
    for (struct piece *p = a->pieces, *next; p; p = next) {
        next = p->next;
        if (p->spec)
            trainyard__v1__job_spec__free_unpacked(p->spec, NULL);
        free(p);
    }
    free(a);
    return NULL;
}

static struct piece *add(struct arena *a, size_t bytes) {
    struct piece *p = alloc_zeroed(1, sizeof *p + bytes);
    p->next = a->pieces;
    return a->pieces = p;
}

void *arena_alloc(struct arena *a, size_t n, size_t size) { return add(a, n * size)->data; }

void *arena_message(struct arena *a, const ProtobufCMessageDescriptor *kind) {
    ProtobufCMessage *m = arena_alloc(a, 1, kind->sizeof_message);
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
    vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    return text;
}

Trainyard__V1__JobSpec *arena_spec(struct arena *a, const void *packed, size_t n) {
    return add(a, 0)->spec = trainyard__v1__job_spec__unpack(NULL, n, packed);
}
