/* Ownership of a unix socket. gRPC removes any file at the path before it listens there, so a second server would
 * silently take the socket away from the first. Therefore a server first takes a lock on `<path>.lock`. The lock ends
 * with its process. */
#ifndef API_RPC_SOCKET_LOCK_H
#define API_RPC_SOCKET_LOCK_H

#include "base/status.h"

/* *ret_fd holds the lock. ALREADY_EXISTS if another process has it; FAILED_PRECONDITION if the path exists and is not a
 * socket. */
MUST_CHECK status_t socket_lock_take(const char *path, int *ret_fd, struct err *e);

/* Removes the socket and the lock's file, and closes fd. fd -1 is fine. */
void socket_lock_give(const char *path, int fd);

#endif
