#include "api/rpc/request_id.h"

#include "api/rpc/server_state.h"
#include "base/clock.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

bool request_id_valid(const void *id, size_t n) {
    const unsigned char *p = id;
    for (size_t i = 0; i < n; i++)
        if (!(p[i] < 0x80 && isalnum(p[i])) && p[i] != '.' && p[i] != '_' && p[i] != '-')
            return false;
    return n > 0 && n < RPC_REQUEST_ID_BYTES;
}

void request_id_prefix(struct rpc_server *s) {
    uint32_t random;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
        random = (uint32_t)clock_wall_us();
    snprintf(s->id_prefix, sizeof s->id_prefix, "%08x", random);
}

bool request_id_find(const grpc_metadata_array *metadata, char ret[RPC_REQUEST_ID_BYTES]) {
    ret[0] = '\0';
    for (size_t i = 0; i < metadata->count; i++) {
        const grpc_metadata *m = &metadata->metadata[i];
        const size_t n = GRPC_SLICE_LENGTH(m->value);
        if (grpc_slice_str_cmp(m->key, REQUEST_ID_KEY) != 0 || !request_id_valid(GRPC_SLICE_START_PTR(m->value), n))
            continue;
        memcpy(ret, GRPC_SLICE_START_PTR(m->value), n);
        ret[n] = '\0';
        return true;
    }
    return false;
}

void request_id_take(struct rpc_server *s, struct rpc_call *c) {
    if (!request_id_find(&c->metadata, c->request_id))
        snprintf(c->request_id, sizeof c->request_id, "%s-%x", s->id_prefix, atomic_fetch_add(&s->next_id, 1));
}
