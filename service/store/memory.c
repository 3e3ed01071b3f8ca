#include "service/store/pool.h"

#include <stdlib.h>
#include <string.h>

/* A list of what to free: results of libpq and blocks. Queries add some dozen at most. */
struct piece {
    struct piece *next;
    PGresult *result;
    max_align_t room[];
};
struct store_memory {
    struct piece *pieces;
};

struct store_memory *store_memory_new(void) {
    return calloc(1, sizeof(struct store_memory));
}

struct store_memory *store_memory_free(struct store_memory *m) {
    if (!m)
        return NULL;
    for (struct piece *p = m->pieces, *next; p; p = next) {
        next = p->next;
        PQclear(p->result);
        free(p);
    }
    free(m);
    return NULL;
}

static status_t add(struct store_memory *m, size_t bytes, struct piece **ret, struct err *e) {
    struct piece *p = m ? calloc(1, sizeof *p + bytes) : NULL;
    if (!p)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for rows of %zu bytes", bytes);
    p->next = m->pieces;
    m->pieces = p;
    *ret = p;
    return ST_OK;
}

status_t store_memory_keep(struct store_memory *m, PGresult **take_result, struct err *e) {
    struct piece *p = NULL;
    TRY(add(m, 0, &p, e));
    p->result = *take_result;
    *take_result = NULL;
    return ST_OK;
}

status_t store_memory_get(struct store_memory *m, size_t n, size_t size, void *ret_pointer, struct err *e) {
    struct piece *p = NULL;
    TRY(add(m, n * size, &p, e));
    *(void **)ret_pointer = p->room;
    return ST_OK;
}
