/* To find: index/KEY names the copy; the copy has the right size and its mark, and the mark is not too old. Before the
 * lock is given back, the file of this process in `uses` names what was found. Whoever makes space (space.c) holds the
 * lock alone, and reads all of these files: thus no copy disappears that another process has found. */
#include "executor/data/cache.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

enum { READ_BYTES = 1 << 20, USES_MAX_BYTES = 256 << 20, RESERVED_BYTES = 21 };

static const char TARGET[] = "../objects/";

status_t data_cache_fail(struct err *e, const char *what, const char *path) {
    const int number = errno;
    const bool full = number == ENOSPC || number == EDQUOT;
    return err_set(e, full ? ST_RESOURCE_EXHAUSTED : ST_INTERNAL, "the cache of data: %s '%.200s': %s%s", what, path,
                   strerror(number), full ? " (free space, or give it less with --data-cache-mib)" : "");
}

bool data_cache_is_digest(const char *name) {
    return strlen(name) == SHA256_HEX - 1 && strspn(name, "0123456789abcdef") == SHA256_HEX - 1;
}

/* ---- locks ---- */

status_t data_cache_lock(struct data_cache *c, int operation, struct err *e) {
    pthread_mutex_lock(&c->mutex);
    while (flock(c->lock, operation) < 0)
        if (errno != EINTR)
            return data_cache_fail(e, "lock", c->path);
    return ST_OK;
}

void data_cache_unlock(struct data_cache *c) {
    flock(c->lock, LOCK_UN);
    pthread_mutex_unlock(&c->mutex);
}

/* ---- opening ---- */

static status_t folder_open(struct data_cache *c, const char *name, unsigned mode, int *ret, struct err *e) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", c->path, name) >= (int)sizeof path)
        return err_set(e, ST_INTERNAL, "the path of the cache of data is too long");
    if (dir_make(path, mode, e) != ST_OK)
        return err_prefix(e, ST_INTERNAL, "the cache of data: ");
    *ret = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*ret < 0 || fchmod(*ret, mode) < 0)
        return data_cache_fail(e, "open the folder", path);
    return ST_OK;
}

status_t data_cache_set_reserved(struct data_cache *c, int64_t bytes, struct err *e) {
    char text[RESERVED_BYTES + 1];
    c->reserved = bytes > 0 ? bytes : 0;
    snprintf(text, sizeof text, "%020lld\n", (long long)c->reserved);
    return pwrite(c->uses, text, RESERVED_BYTES, 0) == RESERVED_BYTES ? ST_OK : data_cache_fail(e, "write to", c->path);
}

/* Under the lock, so that nobody takes the file for one of a dead process before it is locked. */
static status_t uses_open(struct data_cache *c, struct err *e) {
    char path[PATH_MAX];
    CLEANUP(closep) int folder = -1;
    TRY(folder_open(c, "uses", 0700, &folder, e));
    if (snprintf(path, sizeof path, "%s/uses/XXXXXX", c->path) >= (int)sizeof path)
        return err_set(e, ST_INTERNAL, "the path of the cache of data is too long");
    status_t st = data_cache_lock(c, LOCK_SH, e);
    if (st == ST_OK) {
        c->uses = mkostemp(path, O_CLOEXEC);
        if (c->uses < 0 || flock(c->uses, LOCK_EX | LOCK_NB) < 0)
            st = data_cache_fail(e, "create", path);
    }
    data_cache_unlock(c);
    TRY(st);
    snprintf(c->uses_name, sizeof c->uses_name, "%.15s", strrchr(path, '/') + 1);
    return data_cache_set_reserved(c, 0, e);
}

struct data_cache *data_cache_close(struct data_cache *c) {
    char path[PATH_MAX];
    if (!c)
        return NULL;
    if (*c->uses_name && snprintf(path, sizeof path, "%s/uses/%s", c->path, c->uses_name) < (int)sizeof path)
        unlink(path);
    closep(&c->uses);
    closep(&c->lock);
    closep(&c->index);
    closep(&c->objects);
    closep(&c->parts);
    pthread_mutex_destroy(&c->mutex);
    free(c);
    return NULL;
}

static void boot_id(char ret[CACHE_BOOT_BYTES + 1]) {
    memset(ret, 0, CACHE_BOOT_BYTES + 1);
    CLEANUP(closep) int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (file < 0 || read(file, ret, CACHE_BOOT_BYTES) != CACHE_BOOT_BYTES)
        *ret = '\0';
}

status_t data_cache_open(const char *path, int64_t max_bytes, struct data_cache **ret, struct err *e) {
    CLEANUP(data_cache_closep) struct data_cache *c = alloc_zeroed(1, sizeof *c);
    *c = (struct data_cache){ .max_bytes = max_bytes, .lock = -1, .uses = -1, .index = -1, .objects = -1, .parts = -1 };
    pthread_mutex_init(&c->mutex, NULL);
    if (snprintf(c->path, sizeof c->path, "%s", path) >= (int)sizeof c->path)
        return err_set(e, ST_INTERNAL, "the path of the cache of data is too long");
    CLEANUP(closep) int top = -1;
    TRY(folder_open(c, ".", 0755, &top, e)); /* who runs jobs may pass */
    TRY(folder_open(c, "objects", 0755, &c->objects, e));
    TRY(folder_open(c, "index", 0700, &c->index, e));
    TRY(folder_open(c, "parts", 0700, &c->parts, e));
    char name[PATH_MAX];
    if (snprintf(name, sizeof name, "%s/lock", c->path) >= (int)sizeof name)
        return err_set(e, ST_INTERNAL, "the path of the cache of data is too long");
    c->lock = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (c->lock < 0)
        return data_cache_fail(e, "open", name);
    boot_id(c->boot);
    TRY(uses_open(c, e));
    *ret = take_ptr(&c);
    return ST_OK;
}

/* ---- marks ---- */

/* Below a second, from the digest; boot: for this start of the host alone, "": for ever. */
static long mark_of(const char *sha256, const char *boot) {
    char both[SHA256_HEX + CACHE_BOOT_BYTES + 1], hex[SHA256_HEX];
    uint8_t digest[SHA256_BYTES];
    snprintf(both, sizeof both, "%s%s", sha256, boot);
    if (*boot) {
        sha256_of(both, strlen(both), digest);
        sha256_hex(digest, hex);
        memcpy(both, hex, sizeof hex);
    }
    both[8] = '\0';
    return (long)(strtoul(both, NULL, 16) % 1000000000UL);
}

static bool has_mark(const struct data_cache *c, const struct stat *st, const char *sha256) {
    const long ns = st->st_mtim.tv_nsec;
    return st->st_mtim.tv_sec > 0 && (ns == mark_of(sha256, "") || (*c->boot && ns == mark_of(sha256, c->boot)));
}

static bool is_marked(const struct data_cache *c, const struct stat *st, const char *sha256) {
    const int64_t age_s = clock_wall_us() / 1000000 - st->st_mtim.tv_sec;
    return has_mark(c, st, sha256) && age_s >= 0 && age_s < CACHE_CHECK_S;
}

static int mark(int file, const char *sha256, const char *boot) {
    const struct timespec times[2] = { { .tv_nsec = UTIME_NOW },
                                       { .tv_sec = clock_wall_us() / 1000000, .tv_nsec = mark_of(sha256, boot) } };
    return futimens(file, times);
}

/* What the mark of a copy of this size follows from, besides its digest. */
static const char *boot_of(const struct data_cache *c, int64_t bytes) {
    return bytes < CACHE_SYNC_BYTES ? c->boot : "";
}

/* ---- finding ---- */

/* False: there is no copy. Else the copy has been used now. */
static bool copy_find(const struct data_cache *c, const char *key, char ret_sha256[SHA256_HEX], struct stat *ret) {
    static const struct timespec now[2] = { { .tv_nsec = UTIME_NOW }, { .tv_nsec = UTIME_OMIT } };
    char target[sizeof TARGET + SHA256_HEX];
    const ssize_t n = readlinkat(c->index, key, target, sizeof target - 1);
    if (n != (ssize_t)(sizeof TARGET - 1 + SHA256_HEX - 1))
        return false;
    target[n] = '\0';
    const char *sha256 = target + sizeof TARGET - 1;
    if (strncmp(target, TARGET, sizeof TARGET - 1) != 0 || !data_cache_is_digest(sha256) ||
        fstatat(c->objects, sha256, ret, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(ret->st_mode))
        return false;
    memcpy(ret_sha256, sha256, SHA256_HEX);
    utimensat(c->objects, sha256, now, AT_SYMLINK_NOFOLLOW);
    return true;
}

static void entry_find(const struct data_cache *c, const char *key, int64_t bytes, struct cache_entry *ret) {
    struct stat st;
    *ret = (struct cache_entry){ .state = CACHE_MISSING };
    if (!copy_find(c, key, ret->sha256, &st))
        return;
    ret->bytes = bytes < 0 ? st.st_size : bytes;
    ret->state = is_marked(c, &st, ret->sha256) && st.st_size == ret->bytes ? CACHE_GOOD : CACHE_UNCHECKED;
}

void data_cache_peek(const struct data_cache *c, const char *key, struct cache_entry *ret) {
    struct stat st;
    *ret = (struct cache_entry){ .state = CACHE_MISSING };
    if (copy_find(c, key, ret->sha256, &st) && has_mark(c, &st, ret->sha256)) {
        ret->bytes = st.st_size;
        ret->state = CACHE_GOOD;
    }
}

uint64_t data_cache_part_progress(const struct data_cache *c, const char *key) {
    struct stat st;
    if (fstatat(c->parts, key, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
        return 0;
    return (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
}

static status_t uses_add(struct data_cache *c, const struct bytes *lines, struct err *e) {
    if (lseek(c->uses, 0, SEEK_END) < 0)
        return data_cache_fail(e, "write to", c->path);
    if (lines->len > 0 && fd_write_all(c->uses, lines->data, lines->len, e) != ST_OK)
        return err_prefix(e, ST_INTERNAL, "the cache of data: ");
    return ST_OK;
}

static status_t find_all(struct data_cache *c, int n, const char *const *keys, const int64_t *bytes,
                         struct cache_entry *ret, struct bytes *lines, struct err *e) {
    for (int i = 0; i < n; i++) {
        entry_find(c, keys[i], bytes[i], &ret[i]);
        if (ret[i].state != CACHE_MISSING)
            TRY(bytes_printf(lines, e, "%s\n", ret[i].sha256));
    }
    return uses_add(c, lines, e);
}

status_t data_cache_find(struct data_cache *c, int n, const char *const *keys, const int64_t *bytes,
                         struct cache_entry *ret, struct err *e) {
    struct bytes lines;
    bytes_init(&lines, USES_MAX_BYTES);
    status_t st = data_cache_lock(c, LOCK_SH, e);
    if (st == ST_OK)
        st = find_all(c, n, keys, bytes, ret, &lines, e);
    data_cache_unlock(c);
    bytes_done(&lines);
    return st;
}

/* ---- checking ---- */

static status_t digest_of(int file, const char *path, char ret[SHA256_HEX], struct err *e) {
    CLEANUP(freep) char *buffer = malloc(READ_BYTES);
    uint8_t digest[SHA256_BYTES];
    struct sha256 s;
    ssize_t n;
    if (!buffer)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for %d bytes", READ_BYTES);
    sha256_begin(&s);
    while ((n = read(file, buffer, READ_BYTES)) > 0)
        sha256_update(&s, buffer, (size_t)n);
    if (n < 0 && errno != EIO) /* the disk has lost it: as good as damaged */
        return data_cache_fail(e, "read", path);
    sha256_final(&s, digest);
    sha256_hex(digest, ret);
    return ST_OK;
}

status_t data_cache_check(struct data_cache *c, struct cache_entry *entry, struct err *e) {
    static const struct timespec never[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = 0 } };
    char digest[SHA256_HEX];
    struct stat st;
    CLEANUP(closep) int file = openat(c->objects, entry->sha256, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0 || fstat(file, &st) < 0)
        return data_cache_fail(e, "open the copy", entry->sha256);
    TRY(digest_of(file, entry->sha256, digest, e));
    const bool good = st.st_size == entry->bytes && strcmp(digest, entry->sha256) == 0;
    if (good ? mark(file, entry->sha256, boot_of(c, entry->bytes)) < 0 : futimens(file, never) < 0)
        return data_cache_fail(e, "mark the copy", entry->sha256);
    entry->state = good ? CACHE_GOOD : CACHE_MISSING;
    return ST_OK;
}

/* ---- adding ---- */

/* The index first: whoever finds no part any more finds the copy. */
static status_t put(struct data_cache *c, const char *key, const char *sha256, int64_t bytes, struct err *e) {
    char target[sizeof TARGET + SHA256_HEX];
    struct stat st;
    const bool there = fstatat(c->objects, sha256, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
                       st.st_size == bytes && is_marked(c, &st, sha256);
    snprintf(target, sizeof target, "%s%s", TARGET, sha256);
    if ((unlinkat(c->index, key, 0) < 0 && errno != ENOENT) || symlinkat(target, c->index, key) < 0)
        return data_cache_fail(e, "write the index of", sha256);
    if (there ? unlinkat(c->parts, key, 0) < 0 : renameat(c->parts, key, c->objects, sha256) < 0)
        return data_cache_fail(e, "rename the copy", sha256);
    struct bytes line;
    bytes_init(&line, SHA256_HEX + 1);
    status_t st_line = bytes_printf(&line, e, "%s\n", sha256);
    if (st_line == ST_OK)
        st_line = uses_add(c, &line, e);
    bytes_done(&line);
    TRY(st_line);
    return data_cache_set_reserved(c, c->reserved - bytes, e);
}

status_t data_cache_publish(struct data_cache *c, const char *key, int part, const char sha256[SHA256_HEX],
                            int64_t bytes, struct err *e) {
    const char *boot = boot_of(c, bytes);
    if (fchmod(part, 0444) < 0 || mark(part, sha256, boot) < 0 || (!*boot && fsync(part) < 0))
        return data_cache_fail(e, "write the copy", sha256);
    status_t st = data_cache_lock(c, LOCK_SH, e);
    if (st == ST_OK)
        st = put(c, key, sha256, bytes, e);
    data_cache_unlock(c);
    return st;
}

status_t data_cache_release(struct data_cache *c, int64_t bytes, struct err *e) {
    status_t st = data_cache_lock(c, LOCK_SH, e);
    if (st == ST_OK)
        st = data_cache_set_reserved(c, c->reserved - bytes, e);
    data_cache_unlock(c);
    return st;
}

status_t data_cache_sync(struct data_cache *c, struct err *e) {
    if (fsync(c->objects) < 0 || fsync(c->index) < 0)
        return data_cache_fail(e, "write the folder", c->path);
    return ST_OK;
}
