/* A name in the folder is a hard link to the copy in the cache, whose name is its digest: a reader of the folder cannot
 * change the copy, and a copy that is removed from the cache stays in the folder. Who reads a checkpoint proves its
 * bytes by its tables. */
#include "executor/data/checkpoint.h"

#include "base/alloc.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_copy(const struct fetch *f, const struct data_object *o, int folder, const char *name) {
    struct stat there, copy;
    return fstatat(folder, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstatat(f->cache->objects, o->sha256, &copy, AT_SYMLINK_NOFOLLOW) == 0 && there.st_dev == copy.st_dev &&
           there.st_ino == copy.st_ino;
}

/* An earlier process may have made it, and a rank may read it. */
static status_t name_make(const struct fetch *f, const struct data_object *o, int folder, struct err *e) {
    const char *slash = strrchr(o->path, '/'), *name = slash ? slash + 1 : o->path;
    if (is_copy(f, o, folder, name))
        return ST_OK;
    if (unlinkat(folder, name, 0) < 0 && errno != ENOENT)
        return data_cache_fail(e, "remove", name);
    return linkat(f->cache->objects, o->sha256, folder, name, 0) == 0 ? ST_OK : data_cache_fail(e, "name a copy", name);
}

static status_t names_make(const struct fetch *f, const char *path, struct err *e) {
    if (dir_make(path, 0755, e) != ST_OK)
        return err_prefix(e, ST_INTERNAL, "the cache of data: ");
    CLEANUP(closep) int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0)
        return data_cache_fail(e, "open the folder", path);
    for (int i = 0; i < f->objects.n; i++)
        TRY(name_make(f, &f->objects.items[i], folder, e));
    return ST_OK;
}

status_t folder_fetch(struct fetch *f, char *pattern, const char *folder, struct err *e) {
    Trainyard__V1__DataFetch own = *f->order; /* shallow */
    const Trainyard__V1__DataFetch *const whole = f->order;
    own.uris = &pattern;
    own.n_uris = 1;
    f->order = &own;
    status_t st = fetch_run(f, e);
    f->order = whole;
    return st == ST_OK && !whole->check ? names_make(f, folder, e) : st;
}

status_t checkpoint_fetch(struct fetch *f, struct err *e) {
    CLEANUP(freep) char *pattern = alloc_format("%s/*", f->order->checkpoint);
    return folder_fetch(f, pattern, f->order->checkpoint_folder, e);
}
