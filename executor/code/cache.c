/* code_cache_open opens the archive if the folder has it, and compares its bytes with its name. If it is missing or
 * damaged, the file SHA256.part is locked; who has the lock downloads, renames the file, and the others find the
 * archive when they get the lock. The file that was opened may have been renamed or removed meanwhile: then its name
 * does not belong to it any more, and the steps are repeated.
 *
 * A reader holds a shared lock of its archive. Making space removes only files whose lock is free, so that a file in
 * use stays; a .part whose lock is free belongs to a process that was killed. */
#include "executor/code/cache.h"

#include "api/code/entry.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    READ_BYTES = 256 << 10,
    TRIES = 100,          /* each is a race that was lost against another process */
    SPACE_MS = 60 * 1000, /* for archives that are being unpacked */
    SPACE_PAUSE_MS = 100,
};

static status_t name_in(const struct code_cache *c, const char *archive, const char *end, char ret[PATH_MAX],
                        struct err *e) {
    if (snprintf(ret, PATH_MAX, "%s/%s%s", c->path, archive, end) >= PATH_MAX)
        return err_set(e, ST_INTERNAL, "the path of the cache of code is too long");
    return ST_OK;
}

/* A failure of this host, whatever errno says: NOT_FOUND and the like are answers of the controller. */
static status_t fail(const char *what, const char *path, struct err *e) {
    const int number = errno;
    return err_set(e, number == ENOSPC || number == EDQUOT ? ST_RESOURCE_EXHAUSTED : ST_INTERNAL, "%s '%.200s': %s",
                   what, path, strerror(number));
}

static status_t matches(int file, const char *archive, bool *ret, struct err *e) {
    static char buffer[READ_BYTES];
    uint8_t digest[SHA256_BYTES];
    char hex[SHA256_HEX];
    struct sha256 s;
    ssize_t n;
    sha256_begin(&s);
    if (lseek(file, 0, SEEK_SET) < 0)
        return fail("read the archive", archive, e);
    while ((n = read(file, buffer, sizeof buffer)) > 0)
        sha256_update(&s, buffer, (size_t)n);
    if (n < 0 || lseek(file, 0, SEEK_SET) < 0)
        return fail("read the archive", archive, e);
    sha256_final(&s, digest);
    sha256_hex(digest, hex);
    *ret = strcmp(hex, archive) == 0;
    return ST_OK;
}

/* Whether the name still belongs to the open file. */
static bool is_at(int file, const char *path) {
    struct stat open_, named;
    return fstat(file, &open_) == 0 && stat(path, &named) == 0 && open_.st_dev == named.st_dev &&
           open_.st_ino == named.st_ino;
}

/* ---- space ---- */

struct oldest {
    char name[NAME_MAX + 1];
    struct timespec time;
    int lock;
};

static bool is_before(const struct timespec *a, const struct timespec *b) {
    return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

/* Adds up all files but `own`, and finds the one to remove first. Its lock is held. */
static status_t scan(const struct code_cache *c, int own, int64_t *ret_bytes, struct oldest *ret, struct err *e) {
    struct stat mine, st;
    DIR *d = fstat(own, &mine) == 0 ? opendir(c->path) : NULL;
    *ret_bytes = 0;
    *ret = (struct oldest){ .lock = -1 };
    if (!d)
        return fail("list the folder", c->path, e);
    for (const struct dirent *entry; (entry = readdir(d));) {
        if (fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
            st.st_ino == mine.st_ino)
            continue;
        *ret_bytes += st.st_size;
        if (!strchr(entry->d_name, '.') || (ret->lock >= 0 && !is_before(&st.st_mtim, &ret->time)))
            continue;
        CLEANUP(closep) int lock = openat(dirfd(d), entry->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) < 0)
            continue;
        closep(&ret->lock);
        snprintf(ret->name, sizeof ret->name, "%s", entry->d_name);
        ret->time = st.st_mtim;
        ret->lock = take_fd(&lock);
    }
    closedir(d);
    return ST_OK;
}

/* *ret_done false: everything that is left is in use. */
static status_t make_space(const struct code_cache *c, int own, int64_t bytes, bool *ret_done, struct err *e) {
    for (;;) {
        struct oldest oldest;
        int64_t used;
        char path[PATH_MAX];
        TRY(scan(c, own, &used, &oldest, e));
        CLEANUP(closep) int lock = oldest.lock;
        *ret_done = used + bytes <= c->max_bytes;
        if (*ret_done || lock < 0)
            return ST_OK;
        TRY(name_in(c, oldest.name, "", path, e));
        if (unlink(path) < 0 && errno != ENOENT)
            return fail("remove", path, e);
    }
}

status_t code_cache_reserve(const struct code_cache *c, int file, int64_t bytes, struct err *e) {
    const deadline_ms_t end = deadline_in(SPACE_MS);
    char path[PATH_MAX];
    bool done = false;
    if (bytes > c->max_bytes)
        return err_set(e, ST_RESOURCE_EXHAUSTED,
                       "the archive of code has %lld MiB, more than the executor's cache (--code-cache-mib %lld)",
                       (long long)(bytes >> 20), (long long)(c->max_bytes >> 20));
    TRY(name_in(c, "lock", "", path, e));
    CLEANUP(closep) int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock < 0 || flock(lock, LOCK_EX) < 0)
        return fail("lock", path, e);
    for (;;) {
        TRY(make_space(c, file, bytes, &done, e));
        if (done)
            break;
        if (clock_mono_ms() > end)
            return err_set(e, ST_RESOURCE_EXHAUSTED,
                           "the executor's cache of code is full of archives in use (--code-cache-mib %lld)",
                           (long long)(c->max_bytes >> 20));
        poll(NULL, 0, SPACE_PAUSE_MS);
    }
    const int number = posix_fallocate(file, 0, bytes);
    errno = number;
    return number ? fail("reserve space in", c->path, e) : ST_OK;
}

/* ---- opening ---- */

/* *ret_file stays -1 if the folder has no good archive. */
static status_t find(const struct code_cache *c, const char *archive, int *ret_file, struct err *e) {
    char path[PATH_MAX];
    bool good = false;
    TRY(name_in(c, archive, ".tar", path, e));
    CLEANUP(closep) int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0)
        return errno == ENOENT ? ST_OK : fail("open", path, e);
    if (flock(file, LOCK_SH) < 0)
        return fail("lock", path, e);
    if (!is_at(file, path))
        return ST_OK; /* it was removed: for space, or because it is damaged */
    TRY(matches(file, archive, &good, e));
    if (!good && unlink(path) < 0 && errno != ENOENT)
        return fail("remove", path, e);
    if (good) {
        futimens(file, NULL); /* it was used now; without the right to say so, it is removed earlier */
        *ret_file = take_fd(&file);
    }
    return ST_OK;
}

/* Returns with the archive in place, or because another process has put it there. */
static status_t fetch(const struct code_cache *c, const char *archive, struct err *e) {
    char part[PATH_MAX], path[PATH_MAX];
    bool good = false;
    TRY(name_in(c, archive, ".part", part, e));
    TRY(name_in(c, archive, ".tar", path, e));
    CLEANUP(closep) int file = open(part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0)
        return fail("open", part, e);
    if (flock(file, LOCK_EX) < 0)
        return fail("lock", part, e);
    if (!is_at(file, part) || access(path, F_OK) == 0)
        return ST_OK;
    if (ftruncate(file, 0) < 0)
        return fail("empty", part, e);
    status_t st = c->download(c->ctx, c, archive, file, e);
    if (st == ST_OK)
        st = matches(file, archive, &good, e);
    if (st == ST_OK && !good)
        st = err_set(e, ST_DATA_LOSS,
                     "the controller's archive of code %.12s has other bytes than its name says: submit "
                     "its folder again",
                     archive);
    if (st == ST_OK && rename(part, path) < 0)
        st = fail("rename", part, e);
    if (st != ST_OK)
        unlink(part);
    return st;
}

status_t code_cache_open(const struct code_cache *c, const char *archive, int *ret_file, struct err *e) {
    *ret_file = -1;
    if (!code_archive_name_good(archive))
        return err_set(e, ST_INVALID_ARGUMENT, "program.code.archive: is not a SHA-256");
    for (int i = 0; i < TRIES; i++) {
        TRY(find(c, archive, ret_file, e));
        if (*ret_file >= 0)
            return ST_OK;
        TRY(fetch(c, archive, e));
    }
    return err_set(e, ST_INTERNAL, "the archive of code %.12s was removed from the cache again and again", archive);
}
