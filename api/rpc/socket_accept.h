/* The unix sockets of a server. gRPC does not tell which user of the machine is at the other end of a connection.
 * Therefore a thread of the server accepts the connections and hands them to gRPC. gRPC then names the peer of a call
 * after the descriptor of its connection, and keeps the descriptor open as long as the call exists, so that peer.c can
 * ask the kernel for the user (SO_PEERCRED). Internal to the runtime. */
#ifndef API_RPC_SOCKET_ACCEPT_H
#define API_RPC_SOCKET_ACCEPT_H

#include "base/status.h"

#include <sys/types.h>

struct rpc_server;

/* Listens on a socket of this mode, 0600 or 0666, in place of the file that may be at the path. *ret_fd is closed by
 * the caller. */
MUST_CHECK status_t socket_listen(const char *path, mode_t mode, int *ret_fd, struct err *e);

/* Accepts connections on the server's unix sockets, if it has any. After grpc_server_start. */
MUST_CHECK status_t socket_accept_start(struct rpc_server *, struct err *e);
/* Accepts no more, and closes the sockets. Before grpc's shutdown of the server; may be called twice. */
void socket_accept_stop(struct rpc_server *);

#endif
