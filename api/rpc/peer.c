#include "api/rpc/peer.h"

#include "api/rpc/core.h"

#include <grpc/grpc_security_constants.h>
#include <grpc/support/alloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* gRPC's name for the transport of a connection without TLS. Each connection has this property from its listener. */
static const char PLAIN[] = "insecure";

/* gRPC's name of the peer of a connection that was handed to it: "fd:17". */
static const char DESCRIPTOR[] = "fd:";

static bool is_plain(grpc_call *call) {
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

bool peer_user(grpc_call *call, uid_t *ret) {
    struct ucred user;
    socklen_t n = sizeof user;
    char *peer = grpc_call_get_peer(call), *end = NULL;
    const bool is_socket = peer && strncmp(peer, DESCRIPTOR, strlen(DESCRIPTOR)) == 0;
    const long fd = is_socket ? strtol(peer + strlen(DESCRIPTOR), &end, 10) : -1;
    const bool found = is_socket && fd >= 0 && *end == '\0' &&
                       getsockopt((int)fd, SOL_SOCKET, SO_PEERCRED, &user, &n) == 0 && n == sizeof user;
    gpr_free(peer);
    if (found)
        *ret = user.uid;
    return found;
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
    uid_t uid;
    ret->tls = !peer_user(call, &uid) && !is_plain(call);
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
    uid_t uid;
    if (peer_user(call, &uid)) {
        snprintf(ret, PEER_ADDRESS_BYTES, "unix:uid=%u", (unsigned)uid);
        return;
    }
    char *peer = grpc_call_get_peer(call);
    snprintf(ret, PEER_ADDRESS_BYTES, "%s", peer ? peer : "");
    gpr_free(peer);
}
