/* git_list searches for .git in the folder and above it, so that git runs only in a work tree. git runs with
 * descriptors of its own for names and for its message. The names come through a pipe while git runs: a list of any
 * length needs the memory of one name. Variables that name another repository are not passed on. If a name is refused,
 * git is killed.
 *
 * git_checkout makes an empty repository and fetches the commit alone. If that fails, it fetches all branches and tags,
 * which contain the commit unless the server has it on none of them. */
#include "cli/code/git.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STATUS_NO_PROGRAM = 127 /* of env(1) */, READ_BYTES = 64 << 10, MESSAGE_BYTES = 200, COMMIT_DIGITS = 40 };

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

/* Those of `git rev-parse --local-env-vars` that could name another repository. */
static bool names_repository(const char *variable) {
    static const char *const names[] = { "GIT_DIR",
                                         "GIT_WORK_TREE",
                                         "GIT_INDEX_FILE",
                                         "GIT_OBJECT_DIRECTORY",
                                         "GIT_COMMON_DIR",
                                         "GIT_NAMESPACE",
                                         "GIT_PREFIX",
                                         "GIT_SHALLOW_FILE",
                                         "GIT_ALTERNATE_OBJECT_DIRECTORIES" };
    const size_t n = strcspn(variable, "=");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == n && memcmp(names[i], variable, n) == 0)
            return true;
    return false;
}

static const char **environment_of(void) {
    size_t n = 0, kept = 0;
    while (environ[n])
        n++;
    const char **ret = alloc_zeroed(n + 1, sizeof *ret);
    for (size_t i = 0; i < n; i++)
        if (!names_repository(environ[i]))
            ret[kept++] = environ[i];
    return ret;
}

/* git -C folder words..., with these descriptors for its output and its message; -1: none. */
static status_t start(const char *folder, const char *const *words, int out, int message, pid_t *ret, struct err *e) {
    enum { WORDS = 32 };
    const char *argv[WORDS] = {
        "env", "git", "-C", folder, "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"
    };
    size_t n = 8;
    while (*words && n + 1 < WORDS)
        argv[n++] = *words++;
    CLEANUP(freep) const char **variables = environment_of();
    const struct process p = { .program = "/usr/bin/env",
                               .argv = argv,
                               .environ = variables,
                               .fds = { { PROCESS_NULL, 0 }, { out, 1 }, { message, 2 } },
                               .n_fds = 3 };
    return process_start(&p, ret, e);
}

static status_t explain(const char *what, int message, int status, struct err *e) {
    char text[MESSAGE_BYTES] = "";
    const ssize_t n = pread(message, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (WIFEXITED(status) && WEXITSTATUS(status) == STATUS_NO_PROGRAM)
        return err_set(e, ST_FAILED_PRECONDITION, "%.160s: there is no program git", what);
    return err_set(e, ST_FAILED_PRECONDITION, "%.160s: git ended with status %d: %s", what,
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
    static const char *const words[] = { "ls-files", "-z", "--cached", "--others", "--exclude-standard", NULL };
    status_t st = start(folder, words, ends[1], message, &pid, e);
    close(ends[1]);
    TRY(st);
    st = names_read(readable, add, ctx, e);
    if (st != ST_OK)
        kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    TRY(st);
    *ret = WIFEXITED(status) && WEXITSTATUS(status) == STATUS_NO_PROGRAM ? GIT_MISSING : GIT_LISTED;
    if (*ret == GIT_MISSING || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
        return ST_OK;
    char what[MESSAGE_BYTES];
    snprintf(what, sizeof what, "list the files of '%.120s'", folder);
    return explain(what, message, status, e);
}

/* ---- a commit ---- */

/* Runs git and waits for it until the deadline. */
static status_t run(const char *folder, const char *const *words, deadline_ms_t deadline, const char *what,
                    struct err *e) {
    int status = 0;
    pid_t pid;
    CLEANUP(closep) int message = memfd_create("git", MFD_CLOEXEC);
    if (message < 0)
        return err_errno(e, "open a file for the messages of git");
    TRY(start(folder, words, PROCESS_NULL, message, &pid, e));
    CLEANUP(closep) int ended = process_pidfd(pid);
    struct pollfd p = { .fd = ended, .events = POLLIN };
    const bool late = ended >= 0 && poll(&p, 1, deadline_poll_ms(deadline)) == 0;
    if (late)
        kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (late)
        return err_set(e, ST_FAILED_PRECONDITION, "%.160s: git took longer than %d minutes and was killed", what,
                       GIT_FETCH_MS / 60000);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? ST_OK : explain(what, message, status, e);
}

/* Not every server gives a commit that no branch or tag names. */
static status_t fetch(const char *folder, const char *url, const char *commit, deadline_ms_t deadline, struct err *e) {
    const char *const one[] = { "fetch", "-q", "--no-tags", "--depth", "1", "--", url, commit, NULL };
    const char *const all[] = { "fetch", "-q", "--tags", "--", url, "+refs/heads/*:refs/remotes/origin/*", NULL };
    char what[MESSAGE_BYTES];
    snprintf(what, sizeof what, "program.code.git: fetch '%.100s'", url);
    return run(folder, one, deadline, what, NULL) == ST_OK ? ST_OK : run(folder, all, deadline, what, e);
}

void git_checkout_done(struct git_checkout *c) {
    if (*c->path)
        status_ignore(dir_remove_readonly(c->path, NULL));
    *c->path = '\0';
}

status_t git_checkout(const char *url, const char *commit, struct git_checkout *ret, struct err *e) {
    const deadline_ms_t deadline = deadline_in(GIT_FETCH_MS);
    const char *const init[] = { "init", "-q", ".", NULL };
    const char *const checkout[] = { "-c", "core.autocrlf=false", "checkout", "-q", "--detach", commit, NULL };
    const char *temporary = getenv("TMPDIR");
    char what[MESSAGE_BYTES];
    *ret->path = '\0';
    if (strlen(commit) != COMMIT_DIGITS || strspn(commit, "0123456789abcdef") != COMMIT_DIGITS)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "program.code.git.commit: is not the full hash of a commit, which is %d hexadecimal digits",
                       COMMIT_DIGITS);
    if (snprintf(ret->path, sizeof ret->path, "%s/trainyard-git-XXXXXX",
                 temporary && *temporary ? temporary : "/tmp") >= (int)sizeof ret->path ||
        !mkdtemp(ret->path)) {
        *ret->path = '\0';
        return err_errno(e, "create a folder for the commit");
    }
    snprintf(what, sizeof what, "program.code.git: check out %.12s", commit);
    TRY(run(ret->path, init, deadline, what, e));
    TRY(fetch(ret->path, url, commit, deadline, e));
    return run(ret->path, checkout, deadline, what, e);
}
