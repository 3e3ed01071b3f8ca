#include "api/rpc/endpoints.h"

#include "base/alloc.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { PEER_BYTES = RPC_ADDRESS_BYTES + 64 };

struct endpoints {
    atomic_int refs, current;
    int n;
    grpc_channel *cores[RPC_MAX_ADDRESSES];
    char peers[RPC_MAX_ADDRESSES][PEER_BYTES];
};

status_t endpoints_open(const struct rpc_address_list *addresses, const char *peer, endpoints_core_new *core_new,
                        const void *ctx, struct endpoints **ret, struct err *e) {
    CLEANUP(endpoints_closep) struct endpoints *s = alloc_zeroed(1, sizeof *s);
    atomic_store(&s->refs, 1);
    for (int i = 0; i < addresses->n; i++) {
        snprintf(s->peers[i], sizeof s->peers[i], "%.60s at %s", peer, addresses->items[i].text);
        TRY(core_new(&addresses->items[i], ctx, &s->cores[i], e));
        s->n++;
    }
    *ret = take_ptr(&s);
    return ST_OK;
}

struct endpoints *endpoints_ref(struct endpoints *s) {
    atomic_fetch_add(&s->refs, 1);
    return s;
}

struct endpoints *endpoints_close(struct endpoints *s) {
    if (!s || atomic_fetch_sub(&s->refs, 1) > 1)
        return NULL;
    for (int i = 0; i < s->n; i++)
        grpc_channel_destroy(s->cores[i]);
    free(s);
    return NULL;
}

int endpoints_count(const struct endpoints *s) { return s->n; }
int endpoints_current(const struct endpoints *s) { return atomic_load(&s->current); }
grpc_channel *endpoints_core(const struct endpoints *s, int i) { return s->cores[i]; }
const char *endpoints_peer(const struct endpoints *s, int i) { return s->peers[i]; }

void endpoints_leave(struct endpoints *s, int i) { atomic_compare_exchange_strong(&s->current, &i, (i + 1) % s->n); }
