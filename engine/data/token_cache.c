/* To add: open KEY.part, lock it alone, and see whether the file is still the one of that name. If it is not, another
 * process has published or removed it: begin again. Then look whether KEY is there by now.
 *
 * Who finds the part locked begins again every 100 ms, until the other process has published the file or was killed.
 * It gives up when nothing was written to the part for a while: whoever can read the folder's files as their user can
 * lock them. Others cannot open a part.
 *
 * To make space: under `lock`, add up the files, and remove those that nobody has locked, in the order of their last
 * use. A part has the length that was reserved for it from its beginning on (it is sparse), so that the sum counts what
 * will be written. */
#include "engine/data/token_cache.h"

#include "base/alloc.h"
#include "base/array.h"
#include "base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_MS = 100, NOTICE_BYTES = 640 };

static const char PART[] = ".part";

void token_cache_notice(const struct token_cache *c, const char *kind, const char *fmt, ...) {
    char text[NOTICE_BYTES];
    va_list args;
    if (!c->notice)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    c->notice(c->ctx, kind, text);
}

static char *path_of(const struct token_cache_use *u, const char *end) {
    char key[SHA256_HEX];
    sha256_hex(u->key, key);
    return alloc_format("%s/%s%s", u->cache->folder, key, end);
}

/* A failure of the folder is none of the data's: it must not look like a missing or wrong file of the job. */
static status_t fail(struct err *e, const char *what, const char *path) {
    const int number = errno;
    return err_set(e, number == ENOSPC || number == EDQUOT ? ST_RESOURCE_EXHAUSTED : ST_INTERNAL,
                   "the token cache: %s '%s': %s", what, path, strerror(number));
}

/* ---- finding ---- */

status_t token_cache_find(struct token_cache_use *u, struct encoded_text **ret, struct err *e) {
    static const struct timespec now[2] = { { .tv_nsec = UTIME_NOW }, { .tv_nsec = UTIME_OMIT } };
    CLEANUP(freep) char *path = path_of(u, "");
    struct err why = { "" };
    const status_t st = encoded_text_open(path, u->key, u->progress, u->ctx, ret, &why);
    if (st == ST_OK && *ret)
        utimensat(AT_FDCWD, path, now, 0); /* a reader that may not write leaves this to the file system */
    if (st == ST_DATA_LOSS && !u->damage_reported)
        token_cache_notice(u->cache, "token_cache_damaged", "%s; the text is encoded again", why.msg);
    u->damage_reported |= st == ST_DATA_LOSS;
    if (st == ST_OK || st == ST_DATA_LOSS)
        return ST_OK;
    return err_set(e, ST_INTERNAL, "the token cache: %s", why.msg);
}

/* ---- waiting ---- */

/* What another process has locked, and when it last changed. */
struct waited {
    struct stat file;
    int64_t since_ms; /* 0: nothing was waited for */
};

static bool has_changed(const struct stat *a, const struct stat *b) {
    return a->st_ino != b->st_ino || a->st_blocks != b->st_blocks || a->st_mtim.tv_sec != b->st_mtim.tv_sec ||
           a->st_mtim.tv_nsec != b->st_mtim.tv_nsec;
}

static status_t wait_for(const struct token_cache_use *u, const struct token_part *part, struct waited *w,
                         struct err *e) {
    static const struct timespec pause = { .tv_nsec = WAIT_MS * 1000000L };
    const int64_t now = clock_mono_ms(), max = u->cache->still_ms ? u->cache->still_ms : TOKEN_CACHE_STILL_MS;
    struct stat st;
    if (fstat(part->fd, &st) < 0)
        return fail(e, "look at", part->path);
    if (!w->since_ms || has_changed(&w->file, &st))
        *w = (struct waited){ .file = st, .since_ms = now };
    if (now - w->since_ms > max)
        return err_set(e, ST_RESOURCE_EXHAUSTED,
                       "the token cache: another process has locked '%s', and has not written to it for %lld s",
                       part->path, (long long)(max / 1000));
    if (u->progress)
        u->progress(u->ctx);
    nanosleep(&pause, NULL);
    return ST_OK;
}

static bool is_same(int fd, const char *path) {
    struct stat open, named;
    return fstat(fd, &open) == 0 && lstat(path, &named) == 0 && open.st_dev == named.st_dev &&
           open.st_ino == named.st_ino;
}

static status_t part_lock(const struct token_cache_use *u, struct token_part *part, struct err *e) {
    struct waited waited = { .since_ms = 0 };
    for (;;) {
        part->fd = open(part->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (part->fd < 0)
            return fail(e, "create", part->path);
        const bool locked = flock(part->fd, LOCK_EX | LOCK_NB) == 0;
        if (locked && is_same(part->fd, part->path))
            return ST_OK;
        status_t st = ST_OK;
        if (!locked)
            st = errno == EWOULDBLOCK ? wait_for(u, part, &waited, e) : fail(e, "lock", part->path);
        closep(&part->fd);
        TRY(st);
    }
}

/* ---- space ---- */

struct kept {
    char *name;
    int64_t bytes;
    struct timespec used;
};

struct count {
    struct kept *files; /* that may be removed */
    int n, n_all;
    int64_t bytes, removable;
};

static int by_use(const void *a, const void *b) {
    const struct kept *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec)
        return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    return x->used.tv_nsec < y->used.tv_nsec ? -1 : x->used.tv_nsec > y->used.tv_nsec;
}

static bool is_kept(const char *name) {
    const size_t n = strspn(name, "0123456789abcdef");
    return n == SHA256_HEX - 1 && (!name[n] || strcmp(name + n, PART) == 0);
}

/* The file, locked; -1 with EWOULDBLOCK: somebody reads or writes it. */
static int unused_open(int folder, const char *name) {
    CLEANUP(closep) int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 ? take_fd(&fd) : -1;
}

/* Under the lock, so that nobody has begun to write a part meanwhile. */
static status_t file_remove(int folder, const char *name, bool *ret_done, struct err *e) {
    CLEANUP(closep) int fd = unused_open(folder, name);
    *ret_done = fd >= 0;
    return fd < 0 || unlinkat(folder, name, 0) == 0 ? ST_OK : fail(e, "remove", name);
}

static status_t count_file(struct count *k, int folder, const char *name, struct err *e) {
    struct stat st;
    if (!is_kept(name) || fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return ST_OK;
    k->n_all++;
    k->bytes += st.st_size;
    CLEANUP(closep) int fd = unused_open(folder, name);
    if (fd < 0)
        return ST_OK;
    TRY(array_grow(&k->files, k->n, e));
    k->files[k->n++] = (struct kept){ alloc_copy_text(name), st.st_size, st.st_atim };
    k->removable += st.st_size;
    return ST_OK;
}

static bool fits(const struct count *k, const struct token_cache *c, int64_t bytes, int64_t free_bytes, int removed,
                 int64_t removed_bytes) {
    return k->bytes - removed_bytes <= c->max_bytes - bytes && free_bytes + removed_bytes >= bytes &&
           k->n_all - removed < TOKEN_CACHE_FILES_MAX;
}

static status_t remove_oldest(struct count *k, const struct token_cache *c, int folder, int64_t bytes,
                              int64_t free_bytes, struct err *e) {
    int removed = 0;
    int64_t removed_bytes = 0;
    if (!fits(k, c, bytes, free_bytes, k->n, k->removable))
        return err_set(e, ST_RESOURCE_EXHAUSTED,
                       "the token cache '%s' has no space for %lld bytes: it may have %lld, of which %lld are in use, "
                       "and the disk has %lld",
                       c->folder, (long long)bytes, (long long)c->max_bytes, (long long)(k->bytes - k->removable),
                       (long long)free_bytes);
    if (k->n > 0)
        qsort(k->files, (size_t)k->n, sizeof *k->files, by_use);
    for (int i = 0; i < k->n && !fits(k, c, bytes, free_bytes, removed, removed_bytes); i++) {
        bool done = false;
        TRY(file_remove(folder, k->files[i].name, &done, e));
        removed += done;
        removed_bytes += done ? k->files[i].bytes : 0;
    }
    return fits(k, c, bytes, free_bytes, removed, removed_bytes)
               ? ST_OK
               : err_set(e, ST_RESOURCE_EXHAUSTED, "the token cache '%s' is in use by other processes", c->folder);
}

static status_t space_make(const struct token_cache *c, DIR *d, int64_t bytes, struct err *e) {
    struct count k = { .n = 0 };
    struct statvfs disk;
    status_t st = fstatvfs(dirfd(d), &disk) == 0 ? ST_OK : fail(e, "measure", c->folder);
    for (const struct dirent *entry; st == ST_OK && (entry = readdir(d));)
        st = count_file(&k, dirfd(d), entry->d_name, e);
    if (st == ST_OK)
        st = remove_oldest(&k, c, dirfd(d), bytes, (int64_t)(disk.f_bavail * disk.f_frsize), e);
    for (int i = 0; i < k.n; i++)
        free(k.files[i].name);
    free(k.files);
    return st;
}

/* The part, which has no length yet, gets that of the bytes. */
static status_t part_reserve(const struct token_cache *c, const struct token_part *part, int64_t bytes, struct err *e) {
    CLEANUP(freep) char *path = alloc_format("%s/lock", c->folder);
    CLEANUP(closep) int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock < 0)
        return fail(e, "open", path);
    while (flock(lock, LOCK_EX) < 0)
        if (errno != EINTR)
            return fail(e, "lock", path);
    DIR *d = opendir(c->folder);
    if (!d)
        return fail(e, "list", c->folder);
    status_t st = ftruncate(part->fd, 0) == 0 ? space_make(c, d, bytes, e) : fail(e, "write", part->path);
    if (st == ST_OK && ftruncate(part->fd, bytes) < 0)
        st = fail(e, "write", part->path);
    closedir(d);
    return st;
}

/* ---- adding ---- */

status_t token_cache_begin(struct token_cache_use *u, int64_t bytes, struct token_part *ret,
                           struct encoded_text **ret_found, struct err *e) {
    *ret = (struct token_part){ .fd = -1, .path = path_of(u, PART) };
    *ret_found = NULL;
    TRY(part_lock(u, ret, e));
    TRY(token_cache_find(u, ret_found, e));
    if (*ret_found) {
        token_part_close(ret);
        return ST_OK;
    }
    return part_reserve(u->cache, ret, bytes, e);
}

status_t token_cache_publish(struct token_cache_use *u, struct token_part *part, struct encoded_text **ret,
                             struct err *e) {
    CLEANUP(freep) char *path = path_of(u, "");
    if (fchmod(part->fd, 0644) < 0 || rename(part->path, path) < 0)
        return fail(e, "rename", part->path);
    free(part->path);
    part->path = NULL;
    flock(part->fd, LOCK_SH); /* in use until it is open */
    return token_cache_find(u, ret, e);
}

void token_part_close(struct token_part *part) {
    if (part->path && part->fd >= 0)
        unlink(part->path);
    closep(&part->fd);
    free(part->path);
    part->path = NULL;
}
