/* gRPC's C core, with functions for versions before 1.44 (Ubuntu 22.04 has 1.30). In these versions, a channel and a
 * server's port without TLS use separate functions without credentials, and a call on such a port has no auth context.
 *
 * The build defines RPC_CORE_OLD if grpc_channel_create is missing. */
#ifndef API_RPC_CORE_H
#define API_RPC_CORE_H

#include <grpc/grpc.h>
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>

#include <stdbool.h>

#ifdef RPC_CORE_OLD

enum { RPC_CORE_PLAIN_HAS_NO_CONTEXT = true };

/* NULL means "without TLS"; releasing it is allowed. */
static inline grpc_channel_credentials *grpc_insecure_credentials_create(void) { return NULL; }
static inline grpc_server_credentials *grpc_insecure_server_credentials_create(void) { return NULL; }

static inline grpc_channel *grpc_channel_create(const char *target, grpc_channel_credentials *credentials,
                                                const grpc_channel_args *args) {
    return credentials ? grpc_secure_channel_create(credentials, target, args, NULL)
                       : grpc_insecure_channel_create(target, args, NULL);
}

static inline int grpc_server_add_http2_port(grpc_server *server, const char *address,
                                             grpc_server_credentials *credentials) {
    return credentials ? grpc_server_add_secure_http2_port(server, address, credentials)
                       : grpc_server_add_insecure_http2_port(server, address);
}

/* Serves the peer of a connected socket, which gRPC closes. */
static inline void rpc_core_add_connection(grpc_server *server, int fd) {
    grpc_server_add_insecure_channel_from_fd(server, NULL, fd);
}

#else
static inline void rpc_core_add_connection(grpc_server *server, int fd) {
    grpc_server_credentials *credentials = grpc_insecure_server_credentials_create();
    grpc_server_add_channel_from_fd(server, fd, credentials);
    grpc_server_credentials_release(credentials);
}

enum { RPC_CORE_PLAIN_HAS_NO_CONTEXT = false };
#endif

#endif
