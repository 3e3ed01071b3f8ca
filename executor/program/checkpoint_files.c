/* checkpoint_files_store, in five steps:
 *
 *   list       a walk over the entry. Only folders and regular files are allowed; their number, the length of their
 *              names and the depth are limited
 *   link       if the entry is not named step-N: the same tree in a temporary folder by hard links, which is then
 *              renamed to step-N. The tree is listed again there, since the program may have changed its own meanwhile
 *   read       each file: its digest, then fsync. Then fsync of each folder: programs rarely sync what they write
 *   list again the same files must have the same inodes, sizes and times of change, or the checkpoint was not complete
 *   manifest   durable, beside the checkpoint
 *
 * Memory: the list, at most FILE_MANIFEST_FILES names, and a block of 1 MiB. */
#include "executor/program/checkpoint_files.h"

#include "base/alloc.h"
#include "base/beneath.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_DEPTH = 32, STEP_NAME_BYTES = 40 };

struct item {
    char *name; /* below the checkpoint; "" is the checkpoint itself */
    bool folder;
    ino_t inode;
    off_t bytes;
    struct timespec changed;
};

struct listing {
    struct item *items;
    size_t n, files;
};

static void listing_done(struct listing *l) {
    for (size_t i = 0; i < l->n; i++)
        free(l->items[i].name);
    free(l->items);
    *l = (struct listing){ 0 };
}

/* ---- list ---- */

static status_t refuse(const char *name, const char *what, struct err *e) {
    return err_set(e, ST_INVALID_ARGUMENT, "'%.200s' %s", name, what);
}

/* An entry that vanished was still being changed. */
static status_t vanished(const char *name, struct err *e) {
    return errno == ENOENT ? err_set(e, ST_ABORTED, "'%.200s' changed while it was read", name)
                           : err_errno(e, "open '%.200s'", name);
}

static status_t add(struct listing *l, const char *name, const struct stat *st, struct err *e) {
    if (!S_ISDIR(st->st_mode) && !S_ISREG(st->st_mode))
        return refuse(name, S_ISLNK(st->st_mode) ? "is a symbolic link" : "is neither a file nor a folder", e);
    if (l->n >= FILE_MANIFEST_FILES)
        return err_set(e, ST_INVALID_ARGUMENT, "it has more than %d files and folders", FILE_MANIFEST_FILES);
    l->items = alloc_grow(l->items, l->n, sizeof *l->items);
    l->items[l->n++] = (struct item){ .name = alloc_copy_text(name),
                                      .folder = S_ISDIR(st->st_mode),
                                      .inode = st->st_ino,
                                      .bytes = S_ISDIR(st->st_mode) ? 0 : st->st_size,
                                      .changed = st->st_mtim };
    l->files += S_ISREG(st->st_mode);
    return ST_OK;
}

/* at: an open folder, `name` what it is called below the checkpoint. Closes it. */
static status_t list_folder(int at, const char *name, int depth, struct listing *l, struct err *e);

static status_t list_entry(int at, const char *folder, const char *entry, int depth, struct listing *l, struct err *e) {
    char name[FILE_MANIFEST_NAME_BYTES];
    struct stat st;
    if (snprintf(name, sizeof name, "%s%s%s", folder, *folder ? "/" : "", entry) >= (int)sizeof name)
        return refuse(folder, "has a file with too long a name", e);
    if (fstatat(at, entry, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return vanished(name, e);
    TRY(add(l, name, &st, e));
    if (!S_ISDIR(st.st_mode))
        return ST_OK;
    const int below = openat(at, entry, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return below < 0 ? vanished(name, e) : list_folder(below, name, depth + 1, l, e);
}

static status_t list_folder(int at, const char *name, int depth, struct listing *l, struct err *e) {
    struct dirent *entry;
    DIR *d = depth < MAX_DEPTH ? fdopendir(at) : NULL;
    if (!d) {
        close(at);
        return refuse(name, "has too many folders in each other", e);
    }
    status_t st = ST_OK;
    while (st == ST_OK && (errno = 0, entry = readdir(d)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            st = list_entry(dirfd(d), name, entry->d_name, depth, l, e);
    if (st == ST_OK && errno != 0)
        st = err_errno(e, "read the folder '%.200s'", name);
    closedir(d);
    return st;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct item *)a)->name, ((const struct item *)b)->name);
}

static status_t list(int folder, const char *path, struct listing *l, struct err *e) {
    struct stat st;
    if (fstatat(folder, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return vanished(path, e);
    TRY(add(l, "", &st, e));
    if (S_ISDIR(st.st_mode)) {
        const int at = openat(folder, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (at < 0)
            return vanished(path, e);
        TRY(list_folder(at, "", 0, l, e));
    }
    if (l->files == 0)
        return refuse(path, "has no file in it", e);
    qsort(l->items, l->n, sizeof *l->items, by_name);
    return ST_OK;
}

static bool same(const struct item *a, const struct item *b) {
    return strcmp(a->name, b->name) == 0 && a->folder == b->folder && a->inode == b->inode && a->bytes == b->bytes &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

static status_t list_again(int folder, const char *path, const struct listing *before, struct err *e) {
    CLEANUP(listing_done) struct listing now = { 0 };
    TRY(list(folder, path, &now, e));
    bool equal = now.n == before->n;
    for (size_t i = 0; equal && i < now.n; i++)
        if (!same(&now.items[i], &before->items[i]))
            return err_set(e, ST_ABORTED, "'%.100s/%.200s' changed while it was read", path, now.items[i].name);
    return equal ? ST_OK : err_set(e, ST_ABORTED, "'%.200s' changed while it was read", path);
}

/* ---- link ---- */

static char *join(const char *path, const char *name) {
    return *name ? alloc_format("%s/%s", path, name) : alloc_copy_text(path);
}

static status_t link_item(const struct checkpoint_entry *c, const char *target, const struct item *item,
                          struct err *e) {
    CLEANUP(freep) char *from = join(c->name, item->name);
    CLEANUP(freep) char *inner = join(target, c->name);
    CLEANUP(freep) char *to = join(inner, item->name);
    if (item->folder)
        return mkdirat(c->folder, to, 0777) == 0 ? ST_OK : err_errno(e, "create the folder '%.200s'", to);
    if (linkat(c->folder, from, c->folder, to, 0) == 0)
        return ST_OK;
    return errno == ENOENT ? vanished(from, e) : err_errno(e, "link '%.200s' to '%.200s'", from, to);
}

static status_t link_all(const struct checkpoint_entry *c, const char *temporary, const char *step, struct err *e) {
    CLEANUP(listing_done) struct listing l = { 0 };
    TRY(list(c->folder, c->name, &l, e));
    if (mkdirat(c->folder, temporary, 0777) < 0)
        return err_errno(e, "create the folder '%s'", temporary);
    for (size_t i = 0; i < l.n; i++)
        TRY(link_item(c, temporary, &l.items[i], e));
    return renameat(c->folder, temporary, c->folder, step) == 0 ? ST_OK : err_errno(e, "rename '%s'", temporary);
}

static status_t snapshot(const struct checkpoint_entry *c, const char *step, struct err *e) {
    char temporary[STEP_NAME_BYTES + 8];
    snprintf(temporary, sizeof temporary, ".%s.tmp", step);
    status_ignore(beneath_remove(c->folder, temporary, c->path, NULL));
    status_t st = link_all(c, temporary, step, e);
    if (st != ST_OK)
        status_ignore(beneath_remove(c->folder, temporary, c->path, NULL));
    return st;
}

/* ---- read ---- */

static status_t read_item(int folder, const char *path, const struct item *item, const struct file_progress *progress,
                          struct file_manifest *m, struct err *e) {
    CLEANUP(freep) char *name = join(path, item->name);
    CLEANUP(closep) int fd = openat(folder, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC);
    int64_t bytes = 0;
    if (fd < 0)
        return vanished(name, e);
    if (!item->folder) {
        struct manifest_file *file = file_manifest_add(m, item->name, item->bytes);
        TRY(file_digest(fd, name, progress, file->sha256, &bytes, e));
        if (bytes != item->bytes)
            return err_set(e, ST_ABORTED, "'%.200s' changed while it was read", name);
    }
    return fsync(fd) == 0 ? ST_OK : err_errno(e, "fsync '%.200s'", name);
}

static status_t store(const struct checkpoint_entry *c, const char *step, const char *path,
                      const struct file_progress *progress, struct checkpoint_stored *ret, struct err *e) {
    CLEANUP(listing_done) struct listing l = { 0 };
    CLEANUP(file_manifest_freep) struct file_manifest *m = alloc_zeroed(1, sizeof *m);
    m->step = c->step;
    m->path = alloc_copy_text(path);
    TRY(list(c->folder, path, &l, e));
    for (size_t i = l.n; i-- > 0;) /* a folder after its content */
        TRY(read_item(c->folder, path, &l.items[i], progress, m, e));
    TRY(list_again(c->folder, path, &l, e));
    if (fsync(c->folder) < 0)
        return err_errno(e, "fsync the folder '%.200s'", c->path);
    TRY(file_manifest_store(m, c->folder, c->path, step, ret->sha256, e));
    ret->step = c->step;
    ret->files = m->n;
    ret->bytes = file_manifest_bytes(m);
    return ST_OK;
}

status_t checkpoint_files_store(const struct checkpoint_entry *entry, const struct file_progress *progress,
                                struct checkpoint_stored *ret, struct err *e) {
    char step[STEP_NAME_BYTES];
    snprintf(step, sizeof step, "step-%lld", (long long)entry->step);
    if (strcmp(step, entry->name) == 0)
        return store(entry, step, step, progress, ret, e);
    CLEANUP(freep) char *path = alloc_format("%s/%s", step, entry->name);
    TRY(snapshot(entry, step, e));
    status_t st = store(entry, step, path, progress, ret, e);
    if (st != ST_OK)
        status_ignore(beneath_remove(entry->folder, step, entry->path, NULL));
    return st;
}
