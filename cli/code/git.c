/* git_list searches for .git in the folder and above it, so that git runs only in a work tree. git runs with
 * descriptors of its own for names and for its message. The names come through a pipe while git runs: a list of any
 * length needs the memory of one name. The variables GIT_* of this process are not passed on, because they could name
 * another repository. If a name is refused, git is killed. */
#include "cli/code/git.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STATUS_NO_PROGRAM = 127 /* of env(1) */, READ_BYTES = 64 << 10, MESSAGE_BYTES = 200 };

static bool in_work_tree(const char *folder) {
    char path[PATH_MAX], git[PATH_MAX + 8];
    struct stat st;
    if (!realpath(folder, path))
        return false;
    for (;;) {
        snprintf(git, sizeof git, "%s/.git", path);
        if (lstat(git, &st) == 0)
            return true;
        char *slash = strrchr(path, '/');
        if (!slash || !*path)
            return false;
        *slash = '\0';
    }
}

/* Names end with a NUL. `used` bytes of the buffer are the beginning of one that has not arrived completely. */
static status_t names_read(int fd, git_name_fn *add, void *ctx, struct err *e) {
    static char buffer[READ_BYTES + PATH_MAX];
    size_t used = 0;
    for (;;) {
        const ssize_t n = read(fd, buffer + used, sizeof buffer - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(e, "read the list of git");
        if (n == 0)
            return ST_OK;
        used += (size_t)n;
        size_t at = 0;
        for (char *end; (end = memchr(buffer + at, '\0', used - at)); at = (size_t)(end - buffer) + 1)
            TRY(add(ctx, buffer + at, e));
        memmove(buffer, buffer + at, used - at);
        used -= at;
        if (used == sizeof buffer)
            return err_set(e, ST_INVALID_ARGUMENT, "git lists a path of more than %d bytes", READ_BYTES);
    }
}

static const char **environment_of(void) {
    size_t n = 0, kept = 0;
    while (environ[n])
        n++;
    const char **ret = alloc_zeroed(n + 1, sizeof *ret);
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], "GIT_", 4) != 0)
            ret[kept++] = environ[i];
    return ret;
}

static status_t start(const char *folder, int names, int message, pid_t *ret, struct err *e) {
    const char *const argv[] = { "env",
                                 "git",
                                 "-C",
                                 folder,
                                 "-c",
                                 "core.fsmonitor=false",
                                 "ls-files",
                                 "-z",
                                 "--cached",
                                 "--others",
                                 "--exclude-standard",
                                 NULL };
    CLEANUP(freep) const char **variables = environment_of();
    const struct process p = { .program = "/usr/bin/env",
                               .argv = argv,
                               .environ = variables,
                               .fds = { { PROCESS_NULL, 0 }, { names, 1 }, { message, 2 } },
                               .n_fds = 3 };
    return process_start(&p, ret, e);
}

static status_t explain(const char *folder, int message, int status, struct err *e) {
    char text[MESSAGE_BYTES] = "";
    const ssize_t n = pread(message, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return err_set(e, ST_FAILED_PRECONDITION, "git cannot list the files of '%.120s' (status %d): %s", folder,
                   WIFEXITED(status) ? WEXITSTATUS(status) : -1, text);
}

status_t git_list(const char *folder, git_name_fn *add, void *ctx, enum git_state *ret, struct err *e) {
    int ends[2], status = 0;
    pid_t pid;
    *ret = GIT_OUTSIDE;
    if (!in_work_tree(folder))
        return ST_OK;
    CLEANUP(closep) int message = memfd_create("git", MFD_CLOEXEC);
    if (message < 0 || pipe2(ends, O_CLOEXEC) < 0)
        return err_errno(e, "open a pipe to git");
    CLEANUP(closep) int readable = ends[0];
    status_t st = start(folder, ends[1], message, &pid, e);
    close(ends[1]);
    TRY(st);
    st = names_read(readable, add, ctx, e);
    if (st != ST_OK)
        kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    TRY(st);
    *ret = WIFEXITED(status) && WEXITSTATUS(status) == STATUS_NO_PROGRAM ? GIT_MISSING : GIT_LISTED;
    return *ret == GIT_MISSING || (WIFEXITED(status) && WEXITSTATUS(status) == 0) ? ST_OK
                                                                                  : explain(folder, message, status, e);
}
