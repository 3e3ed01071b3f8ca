#include "api/rpc/call_state.h"

#include <grpc/grpc_security.h>
#include <grpc/grpc_security_constants.h>
#include <grpc/support/alloc.h>
#include <stdio.h>
#include <string.h>

bool rpc_metadata(const struct rpc_call *c, const char *key, char *ret, size_t n) {
    for (size_t i = 0; i < c->metadata.count; i++) {
        const grpc_metadata *m = &c->metadata.metadata[i];
        if (grpc_slice_str_cmp(m->key, key) == 0) {
            snprintf(ret, n, "%.*s", (int)GRPC_SLICE_LENGTH(m->value), (const char *)GRPC_SLICE_START_PTR(m->value));
            return true;
        }
    }
    return false;
}

void rpc_peer_address(const struct rpc_call *c, char *ret, size_t n) {
    char *peer = grpc_call_get_peer(c->owned.call);
    snprintf(ret, n, "%s", peer);
    gpr_free(peer);
}

/* The i-th property of that name in what the TLS handshake proved. */
static bool proved(const struct rpc_call *c, const char *name, size_t i, char *ret, size_t n) {
    grpc_auth_context *context = grpc_call_auth_context(c->owned.call);
    if (!context)
        return false;
    const grpc_auth_property *p = NULL;
    if (grpc_auth_context_peer_is_authenticated(context)) {
        grpc_auth_property_iterator it = grpc_auth_context_find_properties_by_name(context, name);
        do
            p = grpc_auth_property_iterator_next(&it);
        while (p && i--);
    }
    if (p)
        snprintf(ret, n, "%.*s", (int)p->value_length, p->value);
    grpc_auth_context_release(context);
    return p != NULL;
}

bool rpc_peer_common_name(const struct rpc_call *c, char *ret, size_t n) {
    return proved(c, GRPC_X509_CN_PROPERTY_NAME, 0, ret, n);
}

bool rpc_peer_alternative_name(const struct rpc_call *c, size_t i, char *ret, size_t n) {
    return proved(c, GRPC_X509_SAN_PROPERTY_NAME, i, ret, n);
}
