/* Who owns a unix socket: gRPC removes whatever stands at the path and listens there, so that a second server would
 * steal it silently. A lock on `<path>.lock`, which dies with its process, is taken first. */
#ifndef API_RPC_SOCKET_LOCK_H
#define API_RPC_SOCKET_LOCK_H

#include "base/status.h"

/* *ret_fd holds the lock. ALREADY_EXISTS when another process has it; FAILED_PRECONDITION when something that is no
 * socket stands at the path. */
MUST_CHECK status_t socket_lock_take(const char *path, int *ret_fd, struct err *e);

/* Removes the socket and the lock's file, and closes fd. -1 is fine. */
void socket_lock_give(const char *path, int fd);

#endif
