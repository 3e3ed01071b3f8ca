#include "executor/agent/job_sandboxes.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "executor/agent/cgroups.h"
#include "executor/agent/job_user.h"
#include "executor/sandbox/host_support.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the host, a separate user, hidden files in shared memory. */
enum { LACKS_MAX = HOST_LACKS_MAX + 2 };

static bool is_shared_memory(const char *path) {
    char real[PATH_MAX];
    return path && realpath(path, real) && (strcmp(real, "/dev/shm") == 0 || strncmp(real, "/dev/shm/", 9) == 0);
}

/* Programs read and write all files of /dev/shm. */
static bool hides_in_shared_memory(const struct agent_options *o) {
    const char *temporary = getenv("TMPDIR");
    bool hides = is_shared_memory(o->directory) || is_shared_memory(o->token_file) || is_shared_memory(o->tls.key) ||
                 is_shared_memory(temporary);
    for (size_t i = 0; i < o->n_checkpoint_roots; i++)
        hides |= is_shared_memory(o->checkpoint_roots[i]);
    for (size_t i = 0; i < o->n_data_except; i++)
        hides |= is_shared_memory(o->data_except[i]);
    return hides;
}

static size_t lacks_find(const struct agent_options *o, const char *ret[LACKS_MAX]) {
    size_t n = host_lacks(landlock_abi(), host_has_seccomp(), ret);
    if (!o->worker_user && !job_user_is_own(o))
        ret[n++] =
            "no --worker-user or --job-users: jobs run as this program's user, and may connect to the unix "
            "sockets of that "
            "user, use its terminals, and change the modes of its files and the priorities and limits of its processes";
    if (hides_in_shared_memory(o))
        ret[n++] = "the directory, TMPDIR or another hidden path is in /dev/shm, all of which programs may use";
    return n;
}

/* A sentence that is too long for the error ends in the middle; the log has all of them. */
static void list_add(char *list, size_t n, const char *what) {
    const size_t length = strlen(list);
    snprintf(list + length, n - length, "%s%s", length ? "; " : "", what);
}

/* Whether the path is below the folder, or, if `itself`, the folder. */
static bool contains(const char *folder, const char *path, bool itself) {
    char a[PATH_MAX], b[PATH_MAX];
    if (!path || !realpath(folder, a) || !realpath(path, b))
        return false;
    const size_t n = strcmp(a, "/") == 0 ? 0 : strlen(a);
    return (itself && strcmp(a, b) == 0) || (strncmp(a, b, n) == 0 && b[n] == '/' && b[n + 1]);
}

/* What is hidden below the folder; NULL: nothing. In TMPDIR the folders of ranks are hidden. */
static const char *hidden_below(const struct agent_options *o, const char *folder) {
    const char *given = getenv("TMPDIR"), *temporary = given && *given == '/' ? given : "/tmp";
    const char *own[] = { o->directory, o->token_file, o->tls.key };
    if (contains(folder, temporary, true))
        return temporary;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (contains(folder, own[i], false))
            return own[i];
    for (size_t i = 0; i < o->n_checkpoint_roots; i++)
        if (contains(folder, o->checkpoint_roots[i], false))
            return o->checkpoint_roots[i];
    for (size_t i = 0; i < o->n_data_except; i++)
        if (contains(folder, o->data_except[i], false))
            return o->data_except[i];
    return NULL;
}

static void writable_roots_report(const struct agent_options *o) {
    for (size_t i = 0; i < o->n_writable_roots; i++) {
        const char *hidden = hidden_below(o, o->writable_roots[i]);
        CLEANUP(freep)
        char *message = alloc_format(
            "--writable-root '%s' has '%s', or files in it, which are hidden from jobs: programs can write to what is "
            "in the folder when they start, but make, rename and remove nothing at its top; name a folder "
            "that has nothing hidden",
            o->writable_roots[i], hidden ? hidden : "");
        if (hidden)
            log_event(LOG_WARN, "writable_root", "message", LOG_STR(message), NULL);
    }
}

status_t job_sandboxes_begin(const struct host *host, struct err *e) {
    const struct agent_options *o = host->options;
    const char *lacks[LACKS_MAX], *sentence;
    char list[sizeof e->msg] = "";
    if (o->sandbox == SANDBOX_OFF)
        return ST_OK;
    const size_t n = lacks_find(o, lacks);
    for (size_t i = 0; i < n; i++) {
        list_add(list, sizeof list, lacks[i]);
        log_event(LOG_WARN, "not_enforced", "message", LOG_STR(lacks[i]), NULL);
    }
    writable_roots_report(o);
    for (size_t i = 0; (sentence = cgroups_missing(host->cgroups, i)); i++)
        list_add(list, sizeof list, sentence);
    return *list && o->sandbox == SANDBOX_REQUIRE
               ? err_set(e, ST_FAILED_PRECONDITION, "--sandbox require: not enforced: %s", list)
               : ST_OK;
}

Trainyard__V1__SandboxOrder *job_sandbox_order(const struct agent_options *o, Trainyard__V1__SandboxOrder *space) {
    if (o->sandbox == SANDBOX_OFF)
        return NULL;
    trainyard__v1__sandbox_order__init(space);
    space->required = o->sandbox == SANDBOX_REQUIRE;
    space->n_writable_roots = o->n_writable_roots;
    space->writable_roots = (char **)(uintptr_t)o->writable_roots;
    return space;
}
