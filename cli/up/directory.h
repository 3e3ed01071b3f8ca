/* The places of one service: its directory, the lock that makes it the only one there, its sockets' directory.
 *
 *   DIR/lock          held (fcntl) while `up` runs; the kernel gives it up when `up` dies, and tells others its pid
 *   DIR/address       the controller's address, while the service is ready
 *   DIR/postgres      PostgreSQL's cluster; owned by its user when we are root
 *   DIR/checkpoints, DIR/executors/N, DIR/logs
 *   RUNTIME/controller.sock     RUNTIME: 0700, in XDG_RUNTIME_DIR or /tmp, its name made from DIR's
 *   SOCKETS/.s.PGSQL.5432       SOCKETS: 0700, of PostgreSQL's user
 *
 * The runtime names are short because a unix socket's path has at most 107 bytes, and follow from DIR, so that what a
 * killed `up` left is found and cleaned by the next one. */
#ifndef CLI_UP_DIRECTORY_H
#define CLI_UP_DIRECTORY_H

#include "base/status.h"

#include <stdbool.h>
#include <sys/types.h>

enum { DIRECTORY_PATH_BYTES = 384, RUNTIME_PATH_BYTES = 80 };

struct directory {
    char path[DIRECTORY_PATH_BYTES]; /* absolute, without symbolic links */
    char runtime[RUNTIME_PATH_BYTES];
    char sockets[RUNTIME_PATH_BYTES + 8]; /* PostgreSQL's */
    bool owns_runtime, owns_sockets;      /* made or found to be ours: removed at the end */
    int lock_fd;                          /* -1: not held */
};

/* Finds the names; takes no lock. make: DIR is made when it is missing, else that is NOT_FOUND. */
MUST_CHECK status_t directory_find(const char *dir, bool make, struct directory *ret, struct err *e);

/* FAILED_PRECONDITION names the `up` that already runs here. */
MUST_CHECK status_t directory_lock(struct directory *d, struct err *e);
/* The pid of the `up` that holds the lock, 0 when none does. */
MUST_CHECK status_t directory_holder(const struct directory *d, pid_t *ret, struct err *e);

/* Makes the folders, the runtime directory (0700, ours) and the sockets' one (0700, of uid and gid). Refuses a runtime
 * directory that belongs to somebody else: names in /tmp can be guessed. With the lock held. */
MUST_CHECK status_t directory_prepare(struct directory *d, uid_t uid, gid_t gid, struct err *e);

MUST_CHECK status_t directory_write_address(const struct directory *d, const char *address, struct err *e);

/* Removes address, sockets, runtime directories and the lock. Safe after any part of the above. */
void directory_leave(struct directory *d);

/* DIR/name into ret. */
void directory_join(const struct directory *d, const char *name, char ret[DIRECTORY_PATH_BYTES + 64]);

#endif
