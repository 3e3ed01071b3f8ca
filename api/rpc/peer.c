#include "api/rpc/peer.h"

#include "api/rpc/core.h"

#include <grpc/grpc_security_constants.h>
#include <grpc/support/alloc.h>
#include <stdio.h>
#include <string.h>

/* gRPC's name for the transport of a connection without TLS. Each connection has this property from its listener. */
static const char PLAIN[] = "insecure";

bool peer_is_plain(grpc_call *call) {
    grpc_auth_context *context = grpc_call_auth_context(call);
    if (!context)
        return RPC_CORE_PLAIN_HAS_NO_CONTEXT;
    grpc_auth_property_iterator all = grpc_auth_context_find_properties_by_name(
        context, GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
    const grpc_auth_property *type = grpc_auth_property_iterator_next(&all);
    bool plain = type && type->value_length == strlen(PLAIN) && !memcmp(type->value, PLAIN, strlen(PLAIN));
    grpc_auth_context_release(context);
    return plain;
}

/* A name that contains a NUL is ignored: C would read only the part before the NUL. */
static void add_names(grpc_auth_context *context, const char *property, struct rpc_peer *ret) {
    grpc_auth_property_iterator all = grpc_auth_context_find_properties_by_name(context, property);
    for (const grpc_auth_property *p; (p = grpc_auth_property_iterator_next(&all));) {
        if (ret->n_names == RPC_PEER_NAMES)
            return;
        if (p->value_length == 0 || p->value_length >= RPC_PEER_NAME_BYTES || memchr(p->value, 0, p->value_length))
            continue;
        char *name = ret->names[ret->n_names++];
        memcpy(name, p->value, p->value_length);
        name[p->value_length] = '\0';
    }
}

void peer_read(grpc_call *call, struct rpc_peer *ret) {
    ret->tls = !peer_is_plain(call);
    ret->n_names = 0;
    grpc_auth_context *context = ret->tls ? grpc_call_auth_context(call) : NULL;
    if (!context)
        return;
    add_names(context, GRPC_X509_CN_PROPERTY_NAME, ret);
    add_names(context, GRPC_X509_SAN_PROPERTY_NAME, ret);
    grpc_auth_context_release(context);
}

void peer_certificate(grpc_call *call, char ret[RPC_PEER_NAME_BYTES]) {
    struct rpc_peer peer;
    peer_read(call, &peer);
    snprintf(ret, RPC_PEER_NAME_BYTES, "%s", peer.n_names ? peer.names[0] : "");
}

void peer_address(grpc_call *call, char ret[PEER_ADDRESS_BYTES]) {
    char *peer = grpc_call_get_peer(call);
    snprintf(ret, PEER_ADDRESS_BYTES, "%s", peer ? peer : "");
    gpr_free(peer);
}
