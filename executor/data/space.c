/* Under the lock of the cache, alone: adds up the copies, what processes may still add, and the parts that processes
 * have left behind. What is in use is in the files of `uses` whose lock is held; a file whose lock is free is of a
 * process that has ended, and is removed. Parts whose lock is held are a part of what their process may still add. */
#include "executor/data/space.h"

#include "base/alloc.h"
#include "base/array.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

enum { USES_MAX_BYTES = 256 << 20, RESERVED_DIGITS = 20, BLOCK_BYTES = 512 };

struct item {
    char name[SHA256_HEX];
    int64_t bytes;
    struct timespec used;
    bool is_part;
};

struct count {
    struct data_cache *c;
    const char *const *keys;
    int n_keys;
    char (*in_use)[SHA256_HEX]; /* sorted */
    int n_in_use;
    struct item *items; /* what may be removed */
    int n_items, n_objects;
    int64_t removable_bytes, in_use_bytes, promised_bytes;
    int64_t disk_bytes; /* free, and in parts that this process goes on with */
};

static void count_done(struct count *k) {
    free(k->in_use);
    free(k->items);
}

static int by_text(const void *a, const void *b) { return strcmp(a, b); }

static int by_key(const void *key, const void *at) { return strcmp(key, *(const char *const *)at); }

static int by_use(const void *a, const void *b) {
    const struct item *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec)
        return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    return x->used.tv_nsec < y->used.tv_nsec ? -1 : x->used.tv_nsec > y->used.tv_nsec;
}

/* ---- what processes say ---- */

/* A number of RESERVED_DIGITS digits and then digests, one in a line. */
static status_t uses_read(struct count *k, const char *text, size_t n, bool own, struct err *e) {
    if (n > RESERVED_DIGITS && !own)
        k->promised_bytes += strtoll(text, NULL, 10);
    for (size_t at = RESERVED_DIGITS + 1; at + SHA256_HEX <= n; at += SHA256_HEX) {
        TRY(array_grow(&k->in_use, k->n_in_use, e));
        memcpy(k->in_use[k->n_in_use], text + at, SHA256_HEX - 1);
        k->in_use[k->n_in_use++][SHA256_HEX - 1] = '\0';
    }
    return ST_OK;
}

static status_t uses_take(struct count *k, int folder, const char *name, struct err *e) {
    const bool own = strcmp(name, k->c->uses_name) == 0;
    struct bytes text;
    CLEANUP(closep) int file = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0)
        return errno == ENOENT ? ST_OK : data_cache_fail(e, "open", name);
    if (!own && flock(file, LOCK_EX | LOCK_NB) == 0)
        return unlinkat(folder, name, 0) == 0 ? ST_OK : data_cache_fail(e, "remove", name);
    bytes_init(&text, USES_MAX_BYTES);
    status_t st = fd_read_file(file, name, &text, e);
    if (st == ST_OK && text.len > 0)
        st = uses_read(k, text.data, text.len, own, e);
    bytes_done(&text);
    return st;
}

/* ---- what there is ---- */

static status_t item_add(struct count *k, const char *name, int64_t bytes, const struct stat *st, bool is_part,
                         struct err *e) {
    TRY(array_grow(&k->items, k->n_items, e));
    struct item *i = &k->items[k->n_items++];
    *i = (struct item){ .bytes = bytes, .used = is_part ? st->st_mtim : st->st_atim, .is_part = is_part };
    memcpy(i->name, name, SHA256_HEX);
    k->removable_bytes += bytes;
    return ST_OK;
}

static status_t object_take(struct count *k, int folder, const char *name, struct err *e) {
    struct stat st;
    if (!data_cache_is_digest(name) || fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return ST_OK;
    k->n_objects++;
    if (k->n_in_use == 0 || !bsearch(name, k->in_use, (size_t)k->n_in_use, SHA256_HEX, by_text))
        return item_add(k, name, st.st_size, &st, false, e);
    k->in_use_bytes += st.st_size;
    return ST_OK;
}

static status_t part_take(struct count *k, int folder, const char *name, struct err *e) {
    struct stat st;
    if (!data_cache_is_digest(name))
        return ST_OK;
    CLEANUP(closep) int file = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0 || fstat(file, &st) < 0 || flock(file, LOCK_EX | LOCK_NB) < 0)
        return ST_OK;
    const int64_t bytes = (int64_t)st.st_blocks * BLOCK_BYTES;
    if (k->n_keys == 0 || !bsearch(name, k->keys, (size_t)k->n_keys, sizeof *k->keys, by_key))
        return item_add(k, name, bytes, &st, true, e);
    k->disk_bytes += bytes;
    return ST_OK;
}

static status_t each(struct count *k, const char *name,
                     status_t (*take)(struct count *k, int folder, const char *name, struct err *e), struct err *e) {
    char path[PATH_MAX];
    DIR *d = snprintf(path, sizeof path, "%s/%s", k->c->path, name) < (int)sizeof path ? opendir(path) : NULL;
    status_t st = d ? ST_OK : data_cache_fail(e, "list", path);
    for (const struct dirent *entry; st == ST_OK && (entry = readdir(d));)
        if (*entry->d_name != '.')
            st = take(k, dirfd(d), entry->d_name, e);
    if (d)
        closedir(d);
    return st;
}

/* ---- removing ---- */

static status_t index_take(struct count *k, int folder, const char *name, struct err *e) {
    struct stat st;
    if (fstatat(folder, name, &st, 0) < 0 && errno == ENOENT && unlinkat(folder, name, 0) < 0)
        return data_cache_fail(e, "remove", name);
    (void)k;
    return ST_OK;
}

/* A part whose lock somebody takes meanwhile stays: *ret_removed false. */
static status_t item_remove(const struct count *k, const struct item *item, bool *ret_removed, struct err *e) {
    const int folder = item->is_part ? k->c->parts : k->c->objects;
    CLEANUP(closep) int file = item->is_part ? openat(folder, item->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    *ret_removed = !item->is_part || file < 0 || flock(file, LOCK_EX | LOCK_NB) == 0;
    if (*ret_removed && unlinkat(folder, item->name, 0) < 0 && errno != ENOENT)
        return data_cache_fail(e, "remove", item->name);
    return ST_OK;
}

static bool fits(const struct count *k, int64_t bytes, int removed, int64_t removed_bytes) {
    return k->in_use_bytes + k->promised_bytes + k->removable_bytes - removed_bytes <= k->c->max_bytes - bytes &&
           k->disk_bytes + removed_bytes >= bytes && k->n_objects - removed < CACHE_OBJECTS_MAX;
}

static status_t remove_oldest(struct count *k, int64_t bytes, struct err *e) {
    int removed = 0;
    int64_t removed_bytes = 0;
    if (k->n_items > 0)
        qsort(k->items, (size_t)k->n_items, sizeof *k->items, by_use);
    for (int i = 0; i < k->n_items && !fits(k, bytes, removed, removed_bytes); i++) {
        bool done = false;
        TRY(item_remove(k, &k->items[i], &done, e));
        removed += done && !k->items[i].is_part;
        removed_bytes += done ? k->items[i].bytes : 0;
    }
    return removed > 0 ? each(k, "index", index_take, e) : ST_OK;
}

static status_t reserve(struct count *k, int64_t bytes, struct space *ret, struct err *e) {
    TRY(each(k, "uses", uses_take, e));
    if (k->n_in_use > 0)
        qsort(k->in_use, (size_t)k->n_in_use, SHA256_HEX, by_text);
    TRY(each(k, "objects", object_take, e));
    TRY(each(k, "parts", part_take, e));
    struct statvfs disk;
    if (fstatvfs(k->c->parts, &disk) < 0)
        return data_cache_fail(e, "measure", k->c->path);
    k->disk_bytes += (int64_t)(disk.f_bavail * disk.f_frsize);
    *ret = (struct space){ .in_use = k->in_use_bytes,
                           .promised = k->promised_bytes,
                           .disk_bytes = k->disk_bytes + k->removable_bytes };
    if (!fits(k, bytes, k->n_items, k->removable_bytes))
        return ST_OK;
    TRY(remove_oldest(k, bytes, e));
    ret->reserved = true;
    return data_cache_set_reserved(k->c, bytes, e);
}

static status_t reserve_alone(struct count *k, int64_t bytes, bool more, struct space *ret, struct err *e) {
    struct data_cache *c = k->c;
    status_t st = data_cache_lock(c, LOCK_EX, e);
    if (st == ST_OK)
        st = reserve(k, bytes + (more ? c->reserved : 0), ret, e);
    data_cache_unlock(c);
    count_done(k);
    return st;
}

status_t space_reserve(struct data_cache *c, int64_t bytes, int n, const char *const *keys, struct space *ret,
                       struct err *e) {
    struct count k = { .c = c, .keys = keys, .n_keys = n };
    return reserve_alone(&k, bytes, false, ret, e);
}

status_t space_reserve_more(struct data_cache *c, int64_t bytes, struct space *ret, struct err *e) {
    struct count k = { .c = c };
    return reserve_alone(&k, bytes, true, ret, e);
}
