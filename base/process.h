/* Other programs: where they stand, and how one becomes a child of this process. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include "base/status.h"

#include <stddef.h>
#include <sys/types.h>

/* The path of `name` in the folder of this program: "trainyard-worker", "../lib/x.so". INVALID_ARGUMENT when ret is too
 * small. Whether something is there, it does not say. */
MUST_CHECK status_t process_beside(const char *name, char *ret, size_t bytes, struct err *e);

enum { PROCESS_NULL = -1, PROCESS_FDS = 5 }; /* PROCESS_NULL: /dev/null */

struct process {
    const char *program;        /* a path */
    const char *const *argv;    /* NULL-terminated, with argv[0] */
    const char *const *environ; /* NULL: this process's */
    struct {
        int from, to;   /* ours, and the child's */
    } fds[PROCESS_FDS]; /* in this order: a `to` that is a later one's `from` is lost */
    size_t n_fds;
    enum { PROCESS_SAME_GROUP, PROCESS_OWN_GROUP, PROCESS_OWN_SESSION } group;
};

/* Starts it with posix_spawn; it is the caller's to reap. It has descriptors 0 to 2 of ours unless fds say otherwise,
 * whatever fds name, and no other, close-on-exec or not; no signal is blocked or ignored there. That the program cannot
 * be executed is told here, and nothing was started: NOT_FOUND, PERMISSION_DENIED, ... */
MUST_CHECK status_t process_start(const struct process *p, pid_t *ret, struct err *e);

#endif
