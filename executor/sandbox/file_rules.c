/* A rule names an open file (O_PATH) and the rights that it grants there and below.
 *
 *   walk(path, rights)     nothing hidden lies below: one rule for the path, and done
 *                          otherwise: walk(entry, rights) for each entry that is not hidden itself
 *
 * The walk begins at "/" with the right to read, and at each path that the policy grants. Symbolic links are no entries
 * of a walk: Landlock looks at the file that a link leads to. Hidden paths are compared by the names that the kernel
 * knows them by (realpath), so that a link in an option hides what it leads to. */
#include "executor/sandbox/file_rules.h"

#include "base/alloc.h"
#include "executor/sandbox/landlock_rights.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <linux/landlock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DEPTH_MAX = 128 };

/* As in <linux/landlock.h> of Linux 6.12. An older kernel takes it if the members that it does not know are 0. */
struct ruleset_attr {
    uint64_t handled_access_fs, handled_access_net, scoped;
};

struct hidden_path {
    char *path;
    bool prefix;
};

struct walk {
    struct hidden_path *hidden;
    size_t n_hidden;
    char **listed;
    size_t n_listed;
    struct landlock_rights rights;
    int ruleset;
    int n_rules;
};

/* Devices that every program may use. */
static const char *const DEVICES[] = {
    "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"
};
static const char *const GPU_DEVICES[] = { "/dev/nvidia*", "/dev/nvidia-caps/*", "/dev/nvidia-caps-imex-channels/*",
                                           "/dev/infiniband/*", "/dev/gdrdrv" };
static const char TERMINAL_MAKER[] = "/dev/ptmx", TERMINALS[] = "/dev/pts";
/* Shared memory and POSIX semaphores. All of it: a file in it gets its name from the program. */
static const char SHARED_MEMORY[] = "/dev/shm";

/* ---- paths ---- */

/* The path without links, of a file that need not exist. */
static char *path_real(const char *path) {
    char parent[PATH_MAX], real[PATH_MAX];
    if (realpath(path, real))
        return alloc_copy_text(real);
    if (snprintf(parent, sizeof parent, "%s", path) >= (int)sizeof parent)
        return alloc_copy_text(path);
    for (char *slash; (slash = strrchr(parent, '/')) && slash != parent;) {
        *slash = '\0';
        if (realpath(parent, real))
            return alloc_format("%s%s", strcmp(real, "/") == 0 ? "" : real, path + (slash - parent));
    }
    return alloc_copy_text(path);
}

/* Whether `path` lies below the folder, at any depth. */
static bool is_below(const char *path, const char *folder) {
    const size_t n = strcmp(folder, "/") == 0 ? 0 : strlen(folder);
    return strncmp(path, folder, n) == 0 && path[n] == '/' && path[n + 1];
}

static bool is_hidden(const struct walk *w, const char *path) {
    for (size_t i = 0; i < w->n_hidden; i++) {
        const struct hidden_path *h = &w->hidden[i];
        if (h->prefix ? strncmp(path, h->path, strlen(h->path)) == 0 && !strchr(path + strlen(h->path), '/')
                      : strcmp(path, h->path) == 0)
            return true;
    }
    return false;
}

static bool hides_below(const struct walk *w, const char *folder) {
    for (size_t i = 0; i < w->n_hidden; i++)
        if (is_below(w->hidden[i].path, folder))
            return true;
    return false;
}

static bool is_listed(const struct walk *w, const char *folder) {
    for (size_t i = 0; i < w->n_listed; i++)
        if (strcmp(folder, w->listed[i]) == 0 || is_below(folder, w->listed[i]))
            return true;
    return false;
}

/* ---- rules ---- */

/* Of a folder that an automounter mounts on its first use, O_DIRECTORY opens what it mounts. */
static int path_open(const char *path) {
    const int fd = open(path, O_PATH | O_CLOEXEC | O_DIRECTORY);
    return fd < 0 ? open(path, O_PATH | O_CLOEXEC) : fd;
}

/* A file that is gone meanwhile, or that this user may not even reach, needs no rule. */
static status_t rule_add(struct walk *w, const char *path, uint64_t rights, struct err *e) {
    CLEANUP(closep) int fd = path_open(path);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? err_errno(e, "open '%s'", path) : ST_OK;
    if (w->n_rules++ >= SANDBOX_RULES)
        return err_set(
            e, ST_RESOURCE_EXHAUSTED,
            "the sandbox hides something beside more than %d files, '%.200s' among them: move what is hidden "
            "to a folder with fewer files",
            SANDBOX_RULES, path);
    struct landlock_path_beneath_attr rule = { .allowed_access = S_ISDIR(st.st_mode) ? rights : rights & w->rights.file,
                                               .parent_fd = fd };
    if (rule.allowed_access == 0)
        return ST_OK;
    if (syscall(SYS_landlock_add_rule, w->ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
        return errno == EBADFD ? ST_OK /* a file system that Landlock does not restrict */
                               : err_errno(e, "grant '%s' to the sandbox", path);
    return ST_OK;
}

static status_t walk(struct walk *w, const char *path, uint64_t rights, int depth, struct err *e);

/* Whether all users may make files in the folder, as in /tmp: others must not be able to fill the ruleset. */
static bool is_shared(DIR *d) {
    struct stat st;
    return fstat(dirfd(d), &st) == 0 && (st.st_mode & S_IWOTH) && (st.st_mode & S_ISVTX);
}

static status_t walk_entries(struct walk *w, DIR *d, const char *path, uint64_t rights, int depth, struct err *e) {
    int left = is_shared(d) ? SANDBOX_SHARED_ENTRIES : INT_MAX;
    struct dirent *entry;
    while (errno = 0, left > 0 && (entry = readdir(d))) {
        char below[PATH_MAX];
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || entry->d_type == DT_LNK ||
            snprintf(below, sizeof below, "%s/%s", strcmp(path, "/") == 0 ? "" : path, name) >= (int)sizeof below ||
            is_hidden(w, below))
            continue;
        struct stat st;
        if (entry->d_type == DT_UNKNOWN && (lstat(below, &st) < 0 || S_ISLNK(st.st_mode)))
            continue;
        TRY(walk(w, below, rights, depth + 1, e));
        left--;
    }
    return errno == 0 ? ST_OK : err_errno(e, "read the folder '%s'", path);
}

/* A folder that this user may not pass through needs no rules. One that the user may pass through, but not list, has
 * files that the user knows by name, and that no rule can name. */
static status_t unlisted(const char *path, struct err *e) {
    if (errno == ENOENT || errno == ENOTDIR)
        return ST_OK;
    if (errno != EACCES)
        return err_errno(e, "open the folder '%s'", path);
    if (faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) < 0)
        return ST_OK;
    return err_set(e, ST_FAILED_PRECONDITION,
                   "the sandbox hides something below '%.200s', which the user of this process may enter but not list, "
                   "so that it could read nothing else there: let the user list the folder, or move what is hidden",
                   path);
}

static status_t walk(struct walk *w, const char *path, uint64_t rights, int depth, struct err *e) {
    if (!hides_below(w, path) || depth == DEPTH_MAX)
        return depth == DEPTH_MAX ? ST_OK : rule_add(w, path, rights, e);
    if (is_listed(w, path))
        TRY(rule_add(w, path, w->rights.list, e));
    DIR *d = opendir(path);
    if (!d)
        return unlisted(path, e);
    status_t st = walk_entries(w, d, path, rights, depth, e);
    closedir(d);
    return st;
}

static status_t grant(struct walk *w, const struct sandbox_grant *g, struct err *e) {
    char real[PATH_MAX];
    if (!realpath(g->path, real))
        return ST_OK;
    switch (g->right) {
    case SANDBOX_READ: return walk(w, real, w->rights.read, 0, e);
    case SANDBOX_WRITE: return walk(w, real, w->rights.write | (is_below(real, "/dev") ? w->rights.ioctl : 0), 0, e);
    case SANDBOX_OPEN: return walk(w, real, w->rights.open, 0, e);
    case SANDBOX_LIST: break;
    }
    return rule_add(w, real, w->rights.list, e);
}

static status_t devices_grant(struct walk *w, bool gpus, bool terminals, struct err *e) {
    for (size_t i = 0; i < sizeof DEVICES / sizeof *DEVICES; i++)
        TRY(rule_add(w, DEVICES[i], w->rights.device, e));
    TRY(rule_add(w, "/dev", w->rights.list, e));
    TRY(rule_add(w, SHARED_MEMORY, w->rights.write, e));
    if (terminals) {
        TRY(rule_add(w, TERMINAL_MAKER, w->rights.device, e));
        TRY(rule_add(w, TERMINALS, w->rights.device | w->rights.list, e));
    }
    for (size_t i = 0; gpus && i < sizeof GPU_DEVICES / sizeof *GPU_DEVICES; i++) {
        glob_t found = { 0 };
        status_t st = ST_OK;
        const int globbed = glob(GPU_DEVICES[i], GLOB_NOSORT, NULL, &found);
        for (size_t k = 0; globbed == 0 && k < found.gl_pathc && st == ST_OK; k++) {
            struct stat kind;
            if (stat(found.gl_pathv[k], &kind) == 0 && S_ISCHR(kind.st_mode))
                st = rule_add(w, found.gl_pathv[k], w->rights.device, e);
        }
        globfree(&found);
        TRY(st);
    }
    return ST_OK;
}

static status_t rules_add(struct walk *w, const struct sandbox_policy *p, struct err *e) {
    if (!p->only_grants)
        TRY(walk(w, "/", w->rights.read, 0, e));
    TRY(devices_grant(w, p->gpus, p->terminals, e));
    for (size_t i = 0; i < p->n_grants; i++)
        TRY(grant(w, &p->grants[i], e));
    return ST_OK;
}

/* ---- the policy's paths ---- */

static void hide(struct walk *w, const char *path) {
    char *given = alloc_copy_text(path);
    const size_t n = strlen(given);
    const bool prefix = n > 0 && given[n - 1] == '*';
    if (prefix)
        given[n - 1] = '\0';
    w->hidden[w->n_hidden++] = (struct hidden_path){ path_real(given), prefix };
    free(given);
}

static void walk_init(struct walk *w, const struct sandbox_policy *p, int abi) {
    *w = (struct walk){ .rights = landlock_rights_of(abi), .ruleset = -1 };
    w->hidden = alloc_zeroed(p->n_hidden + 1, sizeof *w->hidden);
    w->listed = alloc_zeroed(p->n_listed, sizeof *w->listed);
    hide(w, "/dev");
    for (size_t i = 0; i < p->n_hidden; i++)
        hide(w, p->hidden[i]);
    for (size_t i = 0; i < p->n_listed; i++)
        w->listed[w->n_listed++] = path_real(p->listed[i]);
}

static void walk_done(struct walk *w) {
    for (size_t i = 0; i < w->n_hidden; i++)
        free(w->hidden[i].path);
    for (size_t i = 0; i < w->n_listed; i++)
        free(w->listed[i]);
    free(w->hidden);
    free(w->listed);
    closep(&w->ruleset);
}

status_t file_rules_open(const struct sandbox_policy *policy, int abi, int *ret, struct err *e) {
    struct walk w;
    walk_init(&w, policy, abi);
    const struct ruleset_attr attr = { .handled_access_fs = w.rights.handled,
                                       .scoped = w.rights.scope_signals |
                                                 (policy->abstract_sockets ? 0 : w.rights.scope_abstract) };
    w.ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);
    status_t st = w.ruleset < 0 ? err_errno(e, "make a ruleset of Landlock") : rules_add(&w, policy, e);
    if (st == ST_OK)
        *ret = take_fd(&w.ruleset);
    walk_done(&w);
    return st;
}
