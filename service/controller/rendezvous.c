#include "service/controller/rendezvous.h"

#include "base/alloc.h"
#include "base/array.h"
#include "base/limits.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

struct gang {
    int64_t job; /* first: the tree's key */
    int attempt, world_size, offered;
    ProtobufCBinaryData addresses[];
};

struct rendezvous {
    void *gangs;
};

static struct gang *find(const struct rendezvous *r, int64_t job) {
    void *const *node = tfind(&job, &r->gangs, array_by_int64);
    return node ? *node : NULL;
}

static void gang_free(void *p) {
    struct gang *g = p;
    for (int i = 0; i < g->world_size; i++)
        free(g->addresses[i].data);
    free(g);
}

struct rendezvous *rendezvous_new(void) {
    return alloc_zeroed(1, sizeof(struct rendezvous));
}

struct rendezvous *rendezvous_free(struct rendezvous *r) {
    if (!r)
        return NULL;
    tdestroy(r->gangs, gang_free);
    free(r);
    return NULL;
}

void rendezvous_expect(struct rendezvous *r, int64_t job, int attempt, int world_size) {
    rendezvous_forget(r, job);
    struct gang *g = alloc_zeroed(1, sizeof *g + (size_t)world_size * sizeof g->addresses[0]);
    g->job = job;
    g->attempt = attempt;
    g->world_size = world_size;
    alloc_tree_node(g, &r->gangs, array_by_int64);
}

bool rendezvous_offer(struct rendezvous *r, int64_t job, int attempt, int rank, const void *address, size_t n) {
    struct gang *g = find(r, job);
    if (!g || g->attempt != attempt || rank < 0 || rank >= g->world_size || n == 0 || n > LIMIT_RENDEZVOUS_BYTES)
        return false;
    ProtobufCBinaryData *slot = &g->addresses[rank];
    if (slot->data)
        return true; /* offered again at an attach: a rank's address does not change within an attempt */
    slot->data = malloc(n);
    if (!slot->data)
        return false;
    memcpy(slot->data, address, n);
    slot->len = n;
    g->offered++;
    return true;
}

ProtobufCBinaryData *rendezvous_addresses(struct rendezvous *r, int64_t job, int attempt, size_t *ret_n) {
    struct gang *g = find(r, job);
    if (!g || g->attempt != attempt || g->offered < g->world_size)
        return NULL;
    *ret_n = (size_t)g->world_size;
    return g->addresses;
}

void rendezvous_forget(struct rendezvous *r, int64_t job) {
    struct gang *g = find(r, job);
    if (!g)
        return;
    tdelete(&job, &r->gangs, array_by_int64);
    gang_free(g);
}
