#include "executor/worker/job_sandbox.h"

#include "base/cluster_mark.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every list of an agent's options has at most 64 paths (AGENT_PATHS_MAX). */
enum { ORDER_PATHS = 64, OWN_PATHS = 32 };
static_assert(3 * ORDER_PATHS + OWN_PATHS <= SANDBOX_GRANTS && 2 * ORDER_PATHS + OWN_PATHS <= SANDBOX_HIDDEN,
              "a policy has space for all paths of an order");

static bool is_within(const char *path, const char *folder) {
    char a[PATH_MAX], b[PATH_MAX];
    if (!realpath(path, a) || !realpath(folder, b))
        return false;
    const size_t n = strcmp(b, "/") == 0 ? 0 : strlen(b);
    return strncmp(a, b, n) == 0 && (a[n] == '/' || !a[n]);
}

static bool is_closed(const struct job_roots_given *given, const char *data_root) {
    bool closed = false;
    for (size_t i = 0; i < given->n_except; i++)
        closed |= is_within(data_root, given->except[i]->path);
    return closed;
}

/* A data root within a checkpoint root is meant to be read, although the checkpoint root is hidden. */
static bool is_opened(const struct job_roots_given *given, const char *data_root) {
    bool opened = false;
    for (size_t i = 0; i < given->n_checkpoints; i++)
        opened |= is_within(data_root, given->checkpoints[i]);
    return opened && !is_closed(given, data_root);
}

static void hide_temporary(struct job_sandbox *s) {
    const char *path = getenv("TMPDIR");
    const char *temporary = path && *path == '/' ? path : "/tmp";
    snprintf(s->folders, sizeof s->folders, "%s/trainyard-program-*", temporary);
    snprintf(s->fresh_folders, sizeof s->fresh_folders, "%s/.trainyard-program-*", temporary);
    snprintf(s->code_copies, sizeof s->code_copies, "%s/trainyard-code-*", temporary);
    sandbox_hide(&s->policy, s->folders);
    sandbox_hide(&s->policy, s->fresh_folders);
    sandbox_hide(&s->policy, s->code_copies);
}

void job_sandbox_init(struct job_sandbox *s, const struct job_roots_given *given,
                      const Trainyard__V1__SandboxOrder *order) {
    memset(s, 0, sizeof *s);
    struct sandbox_policy *p = &s->policy;
    const char *gpus = getenv("CUDA_VISIBLE_DEVICES");
    p->gpus = gpus && *gpus;
    hide_temporary(s);
    for (size_t i = 0; i < given->n_except; i++)
        sandbox_hide(p, given->except[i]->path);
    for (size_t i = 0; i < given->n_checkpoints; i++)
        sandbox_hide(p, given->checkpoints[i]);
    for (size_t i = 0; i < given->n_data; i++) {
        sandbox_list(p, given->data[i]);
        if (is_opened(given, given->data[i]))
            sandbox_grant(p, given->data[i], SANDBOX_READ);
    }
    for (size_t i = 0; i < order->n_writable_roots; i++)
        sandbox_grant(p, order->writable_roots[i], SANDBOX_WRITE);
}

void job_sandbox_grant_data(struct job_sandbox *s, const struct job_roots_given *given) {
    for (size_t i = 0; i < given->n_data; i++)
        if (!is_closed(given, given->data[i]))
            sandbox_grant(&s->policy, given->data[i], SANDBOX_READ);
}

/* NULL: there is no such folder. */
static char *folder_above(struct job_sandbox *s, const char *path, int levels) {
    char *folder = s->owned[s->n_owned];
    if (!path || !*path || s->n_owned == sizeof s->owned / sizeof *s->owned ||
        cluster_mark_folder(path, levels, folder, sizeof s->owned[0], NULL) != ST_OK)
        return NULL;
    s->n_owned++;
    return folder;
}

void job_sandbox_grant_above(struct job_sandbox *s, const char *path, int levels, enum sandbox_right right) {
    sandbox_grant(&s->policy, folder_above(s, path, levels), right);
}

void job_sandbox_grant_entry(struct job_sandbox *s, const char *path, int levels, const char *name) {
    char *folder = folder_above(s, path, levels);
    const size_t n = folder ? strlen(folder) : 0;
    if (folder && snprintf(folder + n, sizeof s->owned[0] - n, "/%s", name) < (int)(sizeof s->owned[0] - n))
        sandbox_grant(&s->policy, folder, SANDBOX_READ);
}
