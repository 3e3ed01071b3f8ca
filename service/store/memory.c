#include "base/alloc.h"
#include "service/store/pool.h"

#include <stdlib.h>

/* A list of the results of libpq and the blocks that must be freed: a few dozen for a query. */
struct block {
    struct block *next;
    PGresult *result;
    max_align_t bytes[];
};
struct store_memory {
    struct block *blocks;
};

struct store_memory *store_memory_new(void) {
    return alloc_zeroed(1, sizeof(struct store_memory));
}

struct store_memory *store_memory_free(struct store_memory *m) {
    if (!m)
        return NULL;
    for (struct block *b = m->blocks, *next; b; b = next) {
        next = b->next;
        PQclear(b->result);
        free(b);
    }
    free(m);
    return NULL;
}

static struct block *add(struct store_memory *m, size_t bytes) {
    struct block *b = alloc_zeroed(1, sizeof *b + bytes);
    b->next = m->blocks;
    return m->blocks = b;
}

void store_memory_keep(struct store_memory *m, PGresult **take_result) { add(m, 0)->result = take_ptr(take_result); }

void *store_memory_get(struct store_memory *m, size_t n, size_t size) { return add(m, n * size)->bytes; }
