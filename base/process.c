#include "base/process.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

status_t process_beside(const char *name, char *ret, size_t bytes, struct err *e) {
    ssize_t n = readlink("/proc/self/exe", ret, bytes);
    if (n < 0)
        return err_errno(e, "find this program's folder");
    char *slash = memrchr(ret, '/', (size_t)n);
    size_t space = slash ? bytes - (size_t)(slash + 1 - ret) : 0;
    if ((size_t)n == bytes || !slash || (size_t)snprintf(slash + 1, space, "%s", name) >= space)
        return err_set(e, ST_INVALID_ARGUMENT, "the path of %s is longer than %zu bytes", name, bytes - 1);
    return ST_OK;
}

void process_library(const char *name, char *ret, size_t bytes) {
    char below[64];
    snprintf(below, sizeof below, "../lib/%s", name);
    if (process_beside(below, ret, bytes, NULL) != ST_OK || access(ret, F_OK) != 0)
        snprintf(ret, bytes, "%s", name);
}

static int actions_fill(posix_spawn_file_actions_t *actions, const struct process *p) {
    int rc = 0, above = 3;
    for (size_t i = 0; rc == 0 && i < p->n_fds; i++) {
        int from = p->fds[i].from, to = p->fds[i].to;
        rc = from == PROCESS_NULL ? posix_spawn_file_actions_addopen(actions, to, "/dev/null", O_RDWR, 0)
                                  : posix_spawn_file_actions_adddup2(actions, from, to);
        above = to >= above ? to + 1 : above;
    }
    return rc ? rc : posix_spawn_file_actions_addclosefrom_np(actions, above);
}

static int attributes_fill(posix_spawnattr_t *attr, const struct process *p) {
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
    flags |= p->group == PROCESS_OWN_GROUP ? POSIX_SPAWN_SETPGROUP : 0;
    flags |= p->group == PROCESS_OWN_SESSION ? POSIX_SPAWN_SETSID : 0;
    int rc = posix_spawnattr_setflags(attr, (short)flags);
    if (rc == 0)
        rc = posix_spawnattr_setpgroup(attr, 0);
    if (rc == 0)
        rc = posix_spawnattr_setsigmask(attr, &none);
    return rc ? rc : posix_spawnattr_setsigdefault(attr, &all);
}

/* glibc's posix_spawn waits for the exec in a shared address space and returns its errno, so that no pipe for errno is
 * needed. */
status_t process_start(const struct process *p, pid_t *ret, struct err *e) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    int rc = actions_fill(&actions, p);
    if (rc == 0)
        rc = attributes_fill(&attr, p);
    if (rc == 0)
        rc = posix_spawn(ret, p->program, &actions, &attr, (char *const *)(uintptr_t)p->argv,
                         p->environ ? (char *const *)(uintptr_t)p->environ : environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    errno = rc;
    return rc ? err_errno(e, "start '%s'", p->program) : ST_OK;
}

int process_pidfd(pid_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

int process_pidfd_signal(int pidfd, int signal) { return (int)syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0); }

int process_kill_children(bool (*spared)(const void *ctx, pid_t pid), const void *ctx) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    CLEANUP(fclosep) FILE *f = fopen(path, "re");
    int n = 0;
    for (int pid; f && fscanf(f, "%d", &pid) == 1;)
        if (!spared || !spared(ctx, pid)) {
            kill(pid, SIGKILL);
            waitpid(pid, NULL, WNOHANG);
            n++;
        }
    return n;
}
