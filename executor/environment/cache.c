/* To use an environment:
 *
 *   1. lock ID.lock (shared), which nobody holds exclusively but a process that removes the environment
 *   2. if .state/ID names a folder with the right print, use it
 *   3. lock ID.build, and look again: another process may have built it meanwhile, or failed to
 *   4. remove what earlier builds left, build into a new folder, make it read-only, write .state/ID, remove the
 *      environments that were not used for longest until all fit
 *
 * A changed environment is built again in another folder. Processes that use the changed one keep it, because they hold
 * ID.lock; it is removed with the next build after them. */
#include "executor/environment/cache.h"

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "executor/environment/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_BYTES = 48, RECORD_BYTES = 1024, TRIES = 100, BUSY_MS = 20 * 1000, BUSY_PAUSE_MS = 50 };

struct record {
    char folder[NAME_BYTES];
    struct tree_facts facts;
};

static status_t path_in(const struct environment_cache *c, const char *folder, const char *name, const char *end,
                        char ret[PATH_MAX], struct err *e) {
    if (snprintf(ret, PATH_MAX, "%s/%s%s%s", c->path, folder, name, end) >= PATH_MAX)
        return err_set(e, ST_INTERNAL, "the path of the cache of environments is too long");
    return ST_OK;
}

static status_t state_path(const struct environment_cache *c, const char *name, const char *end, char ret[PATH_MAX],
                           struct err *e) {
    return path_in(c, ".state/", name, end, ret, e);
}

/* ---- locks ---- */

static bool is_at(int file, const char *path) {
    struct stat open_, named;
    return fstat(file, &open_) == 0 && stat(path, &named) == 0 && open_.st_dev == named.st_dev &&
           open_.st_ino == named.st_ino;
}

/* The file may be removed by a process that removes the environment: then it is made again. *ret stays -1 if LOCK_NB is
 * given and the lock is taken. */
static status_t lock_take(const struct environment_cache *c, const char *name, const char *end, int operation, int *ret,
                          struct err *e) {
    char path[PATH_MAX];
    TRY(state_path(c, name, end, path, e));
    for (int i = 0; i < TRIES; i++) {
        CLEANUP(closep) int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (file < 0)
            return err_errno(e, "open '%.200s'", path);
        if (flock(file, operation) < 0) {
            if (errno == EWOULDBLOCK)
                return ST_OK;
            return err_errno(e, "lock '%.200s'", path);
        }
        if (is_at(file, path)) {
            *ret = take_fd(&file);
            return ST_OK;
        }
    }
    return err_set(e, ST_INTERNAL, "'%.200s' was removed again and again", path);
}

/* ---- records ---- */

static status_t record_read(const struct environment_cache *c, const char *id, struct record *ret, bool *ret_found,
                            struct err *e) {
    char path[PATH_MAX];
    struct bytes text;
    TRY(state_path(c, id, "", path, e));
    bytes_init(&text, RECORD_BYTES);
    *ret = (struct record){ .folder = "" };
    *ret_found = file_read(path, &text, NULL) == ST_OK && bytes_append(&text, "", 1, NULL) == ST_OK &&
                 sscanf(text.data, "%47s %" SCNd64 " %64s", ret->folder, &ret->facts.bytes, ret->facts.print) == 3 &&
                 strncmp(ret->folder, id, KEY_BYTES - 1) == 0 && !strchr(ret->folder, '/');
    bytes_done(&text);
    return ST_OK;
}

static status_t record_write(const struct environment_cache *c, const char *id, const struct record *record,
                             struct err *e) {
    char path[PATH_MAX], text[RECORD_BYTES];
    TRY(state_path(c, id, "", path, e));
    const int n = snprintf(text, sizeof text, "%s %" PRId64 " %s\n", record->folder, record->facts.bytes,
                           record->facts.print);
    return file_write_atomic(path, text, (size_t)n, 0600, e);
}

static void state_remove(const struct environment_cache *c, const char *id, const char *end) {
    char path[PATH_MAX];
    if (state_path(c, id, end, path, NULL) == ST_OK)
        unlink(path);
}

/* *ret_found: the environment is there and as it was built. */
static status_t find(const struct environment_cache *c, const char *id, struct environment_use *ret, bool *ret_found,
                     struct err *e) {
    struct record record;
    struct tree_facts now;
    struct err why;
    char path[PATH_MAX];
    TRY(record_read(c, id, &record, ret_found, e));
    if (!*ret_found)
        return ST_OK;
    TRY(path_in(c, "", record.folder, "/env", ret->path, e));
    *ret_found = tree_measure(ret->path, &now, &why) == ST_OK && strcmp(now.print, record.facts.print) == 0;
    ret->changed = !*ret_found;
    ret->bytes = record.facts.bytes;
    TRY(state_path(c, id, "", path, e));
    if (*ret_found)
        utimensat(AT_FDCWD, path, NULL, 0); /* used now */
    return ST_OK;
}

/* ---- removing ---- */

static status_t folder_remove(const struct environment_cache *c, const char *name, struct err *e) {
    char path[PATH_MAX];
    TRY(path_in(c, "", name, "", path, e));
    if (c->user) /* a build of that user owns the files until it has ended well */
        status_ignore(tree_claim(path, NULL));
    return dir_remove_readonly(path, e);
}

static bool is_folder_name(const char *name) {
    return strlen(name) == KEY_BYTES + 6 && name[KEY_BYTES - 1] == '-' &&
           strspn(name, "0123456789abcdef") == KEY_BYTES - 1;
}

/* With the locks of an environment that nobody uses or builds; the own one is being built by this process. */
static status_t leftover_remove(const struct environment_cache *c, const char *name, const char *id, bool own,
                                struct err *e) {
    struct record record;
    bool found;
    TRY(record_read(c, id, &record, &found, e));
    if (!found || strcmp(record.folder, name) != 0)
        TRY(folder_remove(c, name, e));
    if (!found && !own) {
        state_remove(c, id, ".failed");
        state_remove(c, id, ".build");
        state_remove(c, id, ".lock");
    }
    return ST_OK;
}

/* The folders that no record names and nobody uses. own: the environment whose ID.build this process has locked. */
static status_t leftovers_remove(const struct environment_cache *c, const char *own, struct err *e) {
    char id[KEY_BYTES];
    DIR *d = opendir(c->path);
    status_t st = d ? ST_OK : err_errno(e, "list '%.200s'", c->path);
    for (const struct dirent *entry; st == ST_OK && (entry = readdir(d));) {
        if (!is_folder_name(entry->d_name))
            continue;
        snprintf(id, sizeof id, "%.32s", entry->d_name);
        const bool is_own = strcmp(id, own) == 0;
        CLEANUP(closep) int use = -1;
        CLEANUP(closep) int build = -1;
        st = lock_take(c, id, ".lock", LOCK_EX | LOCK_NB, &use, e);
        if (st == ST_OK && !is_own)
            st = lock_take(c, id, ".build", LOCK_EX | LOCK_NB, &build, e);
        if (st == ST_OK && use >= 0 && (is_own || build >= 0))
            st = leftover_remove(c, entry->d_name, id, is_own, e);
    }
    if (d)
        closedir(d);
    return st;
}

struct oldest {
    char id[KEY_BYTES];
    struct timespec time;
    int lock;
};

static bool is_before(const struct timespec *a, const struct timespec *b) {
    return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

/* Adds up all environments, and finds the one to remove first. Its lock is held. */
static status_t scan(const struct environment_cache *c, int64_t *ret_bytes, struct oldest *ret, struct err *e) {
    char path[PATH_MAX];
    struct record record;
    struct stat st;
    bool found;
    TRY(path_in(c, ".state", "", "", path, e));
    DIR *d = opendir(path);
    *ret_bytes = 0;
    *ret = (struct oldest){ .lock = -1 };
    if (!d)
        return err_errno(e, "list '%.200s'", path);
    for (const struct dirent *entry; (entry = readdir(d));) {
        if (strlen(entry->d_name) != KEY_BYTES - 1 || fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            record_read(c, entry->d_name, &record, &found, NULL) != ST_OK || !found)
            continue;
        *ret_bytes += record.facts.bytes;
        if (ret->lock >= 0 && !is_before(&st.st_mtim, &ret->time))
            continue;
        int lock = -1;
        if (lock_take(c, entry->d_name, ".lock", LOCK_EX | LOCK_NB, &lock, NULL) != ST_OK || lock < 0)
            continue;
        closep(&ret->lock);
        *ret = (struct oldest){ .time = st.st_mtim, .lock = lock };
        snprintf(ret->id, sizeof ret->id, "%s", entry->d_name);
    }
    closedir(d);
    return ST_OK;
}

/* *ret_done false: everything that is left is in use. */
static status_t make_space(const struct environment_cache *c, bool *ret_done, struct err *e) {
    for (;;) {
        struct oldest oldest;
        struct record record;
        int64_t used;
        bool found;
        TRY(scan(c, &used, &oldest, e));
        CLEANUP(closep) int lock = oldest.lock;
        *ret_done = used <= c->max_bytes;
        if (*ret_done || lock < 0)
            return ST_OK;
        TRY(record_read(c, oldest.id, &record, &found, e));
        state_remove(c, oldest.id, "");
        state_remove(c, oldest.id, ".failed");
        if (found)
            TRY(folder_remove(c, record.folder, e));
        state_remove(c, oldest.id, ".build");
        state_remove(c, oldest.id, ".lock"); /* last: who has opened it meanwhile makes it again */
    }
}

/* ---- failures ---- */

static void failure_write(const struct environment_cache *c, const char *id, bool refused, const struct err *why) {
    char path[PATH_MAX], text[sizeof why->msg + 8];
    const int n = snprintf(text, sizeof text, "%d %s", refused, why->msg);
    if (state_path(c, id, ".failed", path, NULL) == ST_OK)
        status_ignore(file_write_atomic(path, text, (size_t)n, 0600, NULL));
}

/* The failure of a build that ended after `since`; a refusal counts for longer. */
static status_t failure_read(const struct environment_cache *c, const char *id, int64_t since_us, bool *ret_refused,
                             struct err *e) {
    char path[PATH_MAX];
    struct bytes text;
    struct stat st;
    TRY(state_path(c, id, ".failed", path, e));
    bytes_init(&text, RECORD_BYTES);
    status_t found = stat(path, &st) == 0 ? file_read(path, &text, NULL) : ST_NOT_FOUND;
    if (found == ST_OK)
        found = bytes_append(&text, "", 1, NULL);
    const int64_t at_us = found == ST_OK ? (int64_t)st.st_mtim.tv_sec * 1000000 + st.st_mtim.tv_nsec / 1000 : 0;
    const int64_t age_us = clock_wall_us() - at_us;
    const bool refused = found == ST_OK && *text.data == '1';
    const bool counts = found == ST_OK && text.len > 3 &&
                        (at_us >= since_us || (refused && age_us >= 0 && age_us < ENVIRONMENT_FAILED_MS * 1000LL));
    status_t ret = ST_OK;
    if (counts) {
        *ret_refused = refused;
        ret = err_set(e, ST_FAILED_PRECONDITION, "%s", text.data + 2);
    }
    bytes_done(&text);
    return ret;
}

/* ---- building ---- */

static status_t give(const char *path, const struct passwd *user, struct err *e) {
    return user && chown(path, user->pw_uid, user->pw_gid) < 0
               ? err_errno(e, "give '%.200s' to the user '%.60s'", path, user->pw_name)
               : ST_OK;
}

/* The folder of a build, and one for its temporary files. */
static status_t folder_make(const struct environment_cache *c, const char *id, char ret[PATH_MAX], struct err *e) {
    char temporary[PATH_MAX];
    const struct passwd *user = c->user ? getpwnam(c->user) : NULL;
    if (c->user && !user)
        return err_set(e, ST_NOT_FOUND, "there is no user '%.60s'", c->user);
    TRY(path_in(c, "", id, "-XXXXXX", ret, e));
    if (!mkdtemp(ret) || snprintf(temporary, sizeof temporary, "%.4000s/tmp", ret) < 0)
        return err_errno(e, "create the folder '%.200s'", ret);
    if (chmod(ret, 0755) < 0 || mkdir(temporary, 0700) < 0)
        return err_errno(e, "create the folder '%.200s'", temporary);
    TRY(give(temporary, user, e));
    return give(ret, user, e);
}

static status_t built_take(const struct environment_cache *c, const char *id, const char *folder,
                           struct environment_use *ret, struct err *e) {
    struct record record;
    char temporary[PATH_MAX];
    bool done = false;
    const deadline_ms_t end = deadline_in(BUSY_MS);
    if (snprintf(ret->path, sizeof ret->path, "%.4000s/env", folder) < 0 ||
        snprintf(temporary, sizeof temporary, "%.4000s/tmp", folder) < 0)
        return err_set(e, ST_INTERNAL, "the path is too long");
    TRY(tree_claim(folder, e));
    if (chmod(folder, 0755) < 0) /* this process may then remove a part */
        return err_errno(e, "open the folder '%.200s'", folder);
    TRY(dir_remove_readonly(temporary, e));
    if (chmod(folder, 0555) < 0)
        return err_errno(e, "close the folder '%.200s'", folder);
    TRY(tree_measure(ret->path, &record.facts, e));
    snprintf(record.folder, sizeof record.folder, "%s", strrchr(folder, '/') + 1);
    ret->bytes = record.facts.bytes;
    if (ret->bytes > c->max_bytes)
        return err_set(e, ST_RESOURCE_EXHAUSTED,
                       "the environment has %lld MiB, more than the executor keeps (--environment-cache-mib %lld)",
                       (long long)(ret->bytes >> 20), (long long)(c->max_bytes >> 20));
    TRY(record_write(c, id, &record, e));
    while (!done && clock_mono_ms() < end) {
        TRY(make_space(c, &done, e));
        if (!done)
            poll(NULL, 0, BUSY_PAUSE_MS);
    }
    if (done)
        return ST_OK;
    state_remove(c, id, "");
    return err_set(e, ST_RESOURCE_EXHAUSTED,
                   "the executor's cache of Python environments is full of environments in use "
                   "(--environment-cache-mib %lld)",
                   (long long)(c->max_bytes >> 20));
}

static status_t build_new(const struct environment_cache *c, const char *id, struct environment_use *ret,
                          bool *ret_refused, struct err *e) {
    char folder[PATH_MAX];
    c->wait(c->ctx, ret->changed ? ENVIRONMENT_BUILDS_AGAIN : ENVIRONMENT_BUILDS);
    closep(&ret->lock); /* its own leftovers are in use by others, or by nobody */
    TRY(leftovers_remove(c, id, e));
    TRY(lock_take(c, id, ".lock", LOCK_SH, &ret->lock, e));
    TRY(folder_make(c, id, folder, e));
    status_t st = c->build(c->ctx, folder, ret_refused, e);
    if (st == ST_OK)
        st = built_take(c, id, folder, ret, e);
    if (st != ST_OK)
        status_ignore(folder_remove(c, strrchr(folder, '/') + 1, NULL));
    ret->built = st == ST_OK;
    return st;
}

/* Holds ID.build, and .state/build if builds of several environments could disturb each other. */
static status_t build_alone(const struct environment_cache *c, const char *id, int64_t since_us,
                            struct environment_use *ret, bool *ret_refused, struct err *e) {
    CLEANUP(closep) int own = -1;
    CLEANUP(closep) int all = -1;
    bool found;
    TRY(lock_take(c, id, ".build", LOCK_EX | LOCK_NB, &own, e));
    if (own < 0) {
        c->wait(c->ctx, ENVIRONMENT_BUILDS_FOR_ANOTHER);
        TRY(lock_take(c, id, ".build", LOCK_EX, &own, e));
    }
    const bool changed = ret->changed;
    TRY(find(c, id, ret, &found, e));
    if (found)
        return ST_OK;
    ret->changed = changed;
    TRY(failure_read(c, id, since_us, ret_refused, e));
    if (c->user)
        TRY(lock_take(c, "", "build", LOCK_EX | LOCK_NB, &all, e));
    if (c->user && all < 0) {
        c->wait(c->ctx, ENVIRONMENT_TURN);
        TRY(lock_take(c, "", "build", LOCK_EX, &all, e));
    }
    struct err why = { "" };
    status_t st = build_new(c, id, ret, ret_refused, &why);
    if (st != ST_OK && st != ST_CANCELLED)
        failure_write(c, id, *ret_refused, &why);
    return st == ST_OK ? ST_OK : err_set(e, st, "%s", why.msg);
}

status_t environment_cache_open(const struct environment_cache *c, const char *id, struct environment_use *ret,
                                bool *ret_refused, struct err *e) {
    const int64_t since_us = clock_wall_us();
    char path[PATH_MAX];
    bool found;
    *ret = (struct environment_use){ .lock = -1 };
    *ret_refused = false;
    TRY(path_in(c, ".state", "", "", path, e));
    TRY(dir_make(path, 0700, e));
    TRY(lock_take(c, id, ".lock", LOCK_SH, &ret->lock, e));
    status_t st = find(c, id, ret, &found, e);
    if (st == ST_OK && !found)
        st = build_alone(c, id, since_us, ret, ret_refused, e);
    if (st != ST_OK)
        closep(&ret->lock);
    return st;
}
