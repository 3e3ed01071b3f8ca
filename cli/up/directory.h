/* The paths of one service: its directory, the lock that excludes a second service, the folders of its sockets.
 *
 *   DIR/lock          locked (fcntl) while `up` runs; the kernel releases it when `up` dies
 *   DIR/address       the controller's address, while the service is ready
 *   DIR/postgres      PostgreSQL's cluster; owned by PostgreSQL's user if root runs `up`
 *   DIR/checkpoints, DIR/executors/N, DIR/logs
 *   RUNTIME/controller.sock     RUNTIME: 0700, in XDG_RUNTIME_DIR or /tmp, its name is derived from DIR
 *   SOCKETS/.s.PGSQL.5432       SOCKETS: 0700, owned by PostgreSQL's user
 *
 * The runtime names are short because the path of a unix socket has at most 107 bytes. They are derived from DIR, so
 * that the next `up` finds and removes the files of a killed one. */
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
    bool owns_runtime, owns_sockets;      /* created by us or verified to be ours: removed at the end */
    int lock_fd;                          /* -1: not locked */
};

/* Computes the names without locking. make: create DIR if it is missing; without it a missing DIR is NOT_FOUND. */
MUST_CHECK status_t directory_find(const char *dir, bool make, struct directory *ret, struct err *e);

/* FAILED_PRECONDITION names the `up` that already runs in DIR. */
MUST_CHECK status_t directory_lock(struct directory *d, struct err *e);
/* The pid of the `up` that holds the lock, or 0. */
MUST_CHECK status_t directory_holder(const struct directory *d, pid_t *ret, struct err *e);

/* Creates the folders, the runtime folder (0700, ours) and the folder of the sockets (0700, owned by uid and gid).
 * Refuses a runtime folder of another owner, because names in /tmp can be guessed. The caller holds the lock. */
MUST_CHECK status_t directory_prepare(struct directory *d, uid_t uid, gid_t gid, struct err *e);

MUST_CHECK status_t directory_write_address(const struct directory *d, const char *address, struct err *e);

/* Removes the address, sockets, runtime folders and the lock. Safe after any of the calls above. */
void directory_leave(struct directory *d);

/* DIR/name into ret. */
void directory_join(const struct directory *d, const char *name, char ret[DIRECTORY_PATH_BYTES + 64]);

#endif
