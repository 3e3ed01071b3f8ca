#include "executor/data/part.h"

#include "base/alloc.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

enum { TRIES = 100 };

int64_t part_piece_bytes(const struct part *p, int piece) {
    const int64_t rest = p->bytes - part_offset(piece);
    return rest < PART_PIECE_BYTES ? rest : PART_PIECE_BYTES;
}

void part_close(struct part *p) {
    closep(&p->file);
    free(p->done);
    *p = (struct part){ .file = -1 };
}

void part_discard(const struct data_cache *c, const char *key, struct part *p) {
    unlinkat(c->parts, key, 0);
    part_close(p);
}

/* *ret_file stays -1 if another one has the lock. */
static status_t lock_take(const struct data_cache *c, const char *key, int *ret_file, struct err *e) {
    for (int i = 0; i < TRIES; i++) {
        struct stat open_, named;
        CLEANUP(closep) int file = openat(c->parts, key, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (file < 0)
            return data_cache_fail(e, "create", key);
        if (flock(file, LOCK_EX | LOCK_NB) < 0) {
            if (errno == EWOULDBLOCK)
                return ST_OK;
            return data_cache_fail(e, "lock", key);
        }
        if (fstat(file, &open_) == 0 && fstatat(c->parts, key, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
            open_.st_ino == named.st_ino) {
            *ret_file = take_fd(&file);
            return ST_OK;
        }
    }
    return err_set(e, ST_INTERNAL, "the cache of data: '%.64s' was removed again and again", key);
}

/* What an earlier process has left, if it can be continued. */
static bool resume(const struct part *p, const char *boot) {
    char written[CACHE_BOOT_BYTES];
    struct stat st;
    return *boot && fstat(p->file, &st) == 0 && st.st_size == p->bytes + p->n + CACHE_BOOT_BYTES &&
           pread(p->file, written, sizeof written, p->bytes + p->n) == (ssize_t)sizeof written &&
           memcmp(written, boot, sizeof written) == 0 && pread(p->file, p->done, (size_t)p->n, p->bytes) == p->n;
}

static status_t begin(struct part *p, const char *key, const char *boot, struct err *e) {
    memset(p->done, 0, (size_t)p->n);
    if (ftruncate(p->file, 0) < 0)
        return data_cache_fail(e, "empty", key);
    const int number = posix_fallocate(p->file, 0, p->bytes + p->n + CACHE_BOOT_BYTES);
    errno = number;
    if (number)
        return data_cache_fail(e, "reserve space for", key);
    if (pwrite(p->file, boot, CACHE_BOOT_BYTES, p->bytes + p->n) != CACHE_BOOT_BYTES)
        return data_cache_fail(e, "write to", key);
    return ST_OK;
}

status_t part_open(const struct data_cache *c, const char *key, int64_t bytes, struct part *ret, bool *ret_busy,
                   struct err *e) {
    struct part p = { .file = -1, .bytes = bytes, .n = (int)((bytes + PART_PIECE_BYTES - 1) / PART_PIECE_BYTES) };
    TRY(lock_take(c, key, &p.file, e));
    *ret_busy = p.file < 0;
    if (*ret_busy)
        return ST_OK;
    p.done = alloc_zeroed((size_t)p.n + 1, 1);
    const status_t st = resume(&p, c->boot) ? ST_OK : begin(&p, key, c->boot, e);
    if (st == ST_OK)
        *ret = p;
    else
        part_discard(c, key, &p);
    return st;
}

status_t part_set_done(struct part *p, int piece, bool proven, struct err *e) {
    p->done[piece] = '1';
    if (proven && pwrite(p->file, "1", 1, p->bytes + piece) != 1)
        return data_cache_fail(e, "write to", "a part");
    return ST_OK;
}

status_t part_complete(struct part *p, struct err *e) {
    return ftruncate(p->file, p->bytes) == 0 ? ST_OK : data_cache_fail(e, "cut", "a part");
}
