/* Other programs: their paths, and starting one as a child of this process. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The path of `name` in the folder of this program: "trainyard-worker", "../lib/x.so". INVALID_ARGUMENT: ret is too
 * small. Does not check whether the file exists. */
MUST_CHECK status_t process_beside(const char *name, char *ret, size_t bytes, struct err *e);

/* Where a library of this project is: in ../lib beside this program, where both the build and the installation have it;
 * else its name alone, for the loader's search. */
void process_library(const char *name, char *ret, size_t bytes);

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

/* Starts the program with posix_spawn; the caller reaps it. The child has this process's descriptors 0 to 2 unless fds
 * replaces them, the descriptors in fds, and no others. No signal is blocked or ignored there. If the program cannot be
 * executed, nothing is started: NOT_FOUND, PERMISSION_DENIED, ... */
MUST_CHECK status_t process_start(const struct process *p, pid_t *ret, struct err *e);

/* Kills every child of this process, except those for which `spared` is true (NULL: none is spared), and reaps the
 * killed ones that have ended. Returns how many children it has found. Call it again after a pause until it returns 0:
 * if this process is a subreaper, the children of a killed child become its own. For the main thread. */
int process_kill_children(bool (*spared)(const void *ctx, pid_t pid), const void *ctx);

/* As pidfd_open and pidfd_send_signal, which glibc has since 2.36: Ubuntu 22.04 has 2.35. -1 with errno. The
 * handle is close-on-exec; the caller closes it. */
int process_pidfd(pid_t pid);
int process_pidfd_signal(int pidfd, int signal);

#endif
