/* A walk with one open folder per level. The print is the sum of the digests of all entries, so that it does not depend
 * on the order in which a folder lists them. */
#include "executor/environment/tree.h"

#include "base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH_MAX = 100, BLOCK_BYTES = 512, SUM_WORDS = SHA256_BYTES / 8 };

struct walk {
    status_t (*visit)(struct walk *w, int folder, const char *name, const struct stat *st, struct err *e);
    char path[PATH_MAX]; /* from the top, of what is visited */
    int64_t bytes;
    uint64_t sum[SUM_WORDS];
};

static status_t walk_folder(struct walk *w, int fd, int depth, struct err *e);

static status_t walk_entry(struct walk *w, int folder, const char *name, int depth, struct err *e) {
    struct stat st;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? ST_OK : err_errno(e, "read the environment's '%.100s'", w->path);
    TRY(w->visit(w, folder, name, &st, e));
    if (!S_ISDIR(st.st_mode))
        return ST_OK;
    CLEANUP(closep) int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? ST_OK : err_errno(e, "open the environment's '%.100s'", w->path);
    return walk_folder(w, take_fd(&fd), depth + 1, e);
}

/* Owns fd. */
static status_t walk_folder(struct walk *w, int fd, int depth, struct err *e) {
    const size_t n = strlen(w->path);
    DIR *d = depth < DEPTH_MAX ? fdopendir(fd) : NULL;
    status_t st = ST_OK;
    if (!d) {
        close(fd);
        return err_set(e, ST_INTERNAL, "the environment's folder '%.100s' cannot be listed", w->path);
    }
    for (const struct dirent *entry; st == ST_OK && (entry = readdir(d));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (n + 1 + strlen(entry->d_name) >= sizeof w->path)
            st = err_set(e, ST_INTERNAL, "the environment has a path that is too long");
        else
            snprintf(w->path + n, sizeof w->path - n, "/%s", entry->d_name);
        if (st == ST_OK)
            st = walk_entry(w, dirfd(d), entry->d_name, depth, e);
        w->path[n] = '\0';
    }
    closedir(d);
    return st;
}

static status_t walk_from(struct walk *w, const char *path, struct err *e) {
    CLEANUP(closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_errno(e, "open the environment '%.200s'", path);
    return walk_folder(w, take_fd(&fd), 0, e);
}

/* ---- measuring ---- */

static bool is_cache(const char *path) {
    const char *at = strstr(path, "/__pycache__");
    return at && (at[12] == '/' || at[12] == '\0');
}

static status_t measure(struct walk *w, int folder, const char *name, const struct stat *st, struct err *e) {
    struct sha256 s;
    union {
        uint8_t bytes[SHA256_BYTES];
        uint64_t words[SUM_WORDS];
    } digest;
    const bool is_folder = S_ISDIR(st->st_mode); /* its times and size depend on a __pycache__ in it */
    const int64_t numbers[] = { st->st_mode,
                                st->st_uid,
                                is_folder ? 0 : st->st_size,
                                is_folder ? 0 : (int64_t)st->st_ino,
                                is_folder ? 0 : st->st_ctim.tv_sec,
                                is_folder ? 0 : st->st_ctim.tv_nsec };
    (void)folder;
    (void)name;
    (void)e;
    w->bytes += (int64_t)st->st_blocks * BLOCK_BYTES;
    if (is_cache(w->path))
        return ST_OK;
    sha256_begin(&s);
    sha256_update(&s, w->path, strlen(w->path) + 1);
    sha256_update(&s, numbers, sizeof numbers);
    sha256_final(&s, digest.bytes);
    for (int i = 0; i < SUM_WORDS; i++)
        w->sum[i] += digest.words[i];
    return ST_OK;
}

status_t tree_measure(const char *path, struct tree_facts *ret, struct err *e) {
    struct walk w = { .visit = measure };
    uint8_t digest[SHA256_BYTES];
    TRY(walk_from(&w, path, e));
    memcpy(digest, w.sum, sizeof digest);
    ret->bytes = w.bytes;
    sha256_hex(digest, ret->print);
    return ST_OK;
}

/* ---- ownership ---- */

static mode_t closed_mode(const struct stat *st) {
    return S_ISDIR(st->st_mode) || (st->st_mode & (S_IXUSR | S_IXGRP | S_IXOTH)) ? 0555 : 0444;
}

/* The owner first: then this process may change the mode, and no process of the old owner can. */
static status_t claim(struct walk *w, int folder, const char *name, const struct stat *st, struct err *e) {
    if (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode) && !S_ISLNK(st->st_mode))
        return unlinkat(folder, name, 0) < 0 ? err_errno(e, "remove the environment's '%.100s'", w->path) : ST_OK;
    if (st->st_uid != geteuid() && fchownat(folder, name, geteuid(), getegid(), AT_SYMLINK_NOFOLLOW) < 0)
        return err_errno(e, "become the owner of the environment's '%.100s'", w->path);
    if (!S_ISLNK(st->st_mode) && fchmodat(folder, name, closed_mode(st), 0) < 0)
        return err_errno(e, "make the environment's '%.100s' read-only", w->path);
    return ST_OK;
}

status_t tree_claim(const char *path, struct err *e) {
    struct walk w = { .visit = claim };
    struct stat st;
    if (lstat(path, &st) < 0)
        return err_errno(e, "read the environment '%.200s'", path);
    TRY(claim(&w, AT_FDCWD, path, &st, e));
    return walk_from(&w, path, e);
}
