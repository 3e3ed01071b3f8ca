#include "engine/data/data_file.h"

#include "base/alloc.h"
#include "base/beneath.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Thread_local int64_t spent_ns;

int64_t data_file_ns(void) { return spent_ns; }

static void begin(struct data_file *f, const char *what, const char *path) {
    *f = (struct data_file){ .what = what, .path = alloc_copy_text(path ? path : ""), .fd = -1 };
}

static status_t check(struct data_file *f, struct err *e) {
    struct stat st;
    if (fstat(f->fd, &st) < 0)
        return err_unreadable(e, "stat the %s '%s'", f->what, f->path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ST_INVALID_ARGUMENT, "the %s '%s' is not a regular file", f->what, f->path);
    f->bytes = st.st_size;
    return ST_OK;
}

/* O_NONBLOCK: a FIFO is refused instead of waiting for its writer. */
enum { FLAGS = O_RDONLY | O_CLOEXEC | O_NONBLOCK };

status_t data_file_open(struct data_file *f, const char *what, const struct roots *roots, const char *path,
                        struct err *e) {
    const int64_t before = clock_mono_ns();
    begin(f, what, path);
    status_t st = roots_open(roots, f->path, FLAGS, &f->fd, e);
    spent_ns += clock_mono_ns() - before;
    return st == ST_OK ? check(f, e) : err_prefix(e, st, "the %s: ", what);
}

static status_t open_admitted(const struct data_folder *folder, const char *name, int flags, const char *path, int *ret,
                              struct err *e) {
    CLEANUP(closep) int fd = -1;
    TRY(beneath_open(folder->fd, name, flags, path, &fd, e));
    TRY(roots_check(folder->roots, fd, path, e));
    *ret = take_fd(&fd);
    return ST_OK;
}

status_t data_open_below(const struct data_folder *folder, const char *name, int flags, const char *path, int *ret,
                         struct err *e) {
    if (folder->roots)
        return open_admitted(folder, name, flags, path, ret, e);
    /* RESOLVE_BENEATH follows a symbolic link only if its target is in the folder. */
    struct open_how how = { .flags = (unsigned)(flags | O_CLOEXEC),
                            .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };
    long fd = syscall(SYS_openat2, folder->fd, *name ? name : ".", &how, sizeof how);
    if (fd < 0 && errno == EXDEV)
        return err_set(e, ST_INVALID_ARGUMENT, "'%s' leads out of the folder that it is in", path);
    if (fd < 0)
        return err_unreadable(e, "open '%s'", path);
    *ret = (int)fd;
    return ST_OK;
}

status_t data_file_open_below(struct data_file *f, const char *what, const struct data_folder *folder, const char *name,
                              const char *path, struct err *e) {
    const int64_t before = clock_mono_ns();
    begin(f, what, path);
    status_t st = data_open_below(folder, name, FLAGS, path, &f->fd, e);
    spent_ns += clock_mono_ns() - before;
    return st == ST_OK ? check(f, e) : st;
}

void data_file_close(struct data_file *f) {
    if (f->fd >= 0)
        close(f->fd);
    free(f->path);
    *f = (struct data_file){ .fd = -1 };
}

static status_t read_all(const struct data_file *f, int64_t at, char *p, size_t n, struct err *e) {
    while (n) {
        ssize_t k = pread(f->fd, p, n, at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return err_unreadable(e, "read the %s '%s'", f->what, f->path);
        /* The caller reads only inside the length at open, so an early end means that the file has shrunk. */
        if (k == 0)
            return err_set(e, ST_FAILED_PRECONDITION, "the %s '%s' had %lld bytes and now ends at byte %lld", f->what,
                           f->path, (long long)f->bytes, (long long)at);
        p += k;
        at += k;
        n -= (size_t)k;
    }
    return ST_OK;
}

status_t data_file_read(const struct data_file *f, int64_t at, void *to, size_t n, struct err *e) {
    const int64_t before = clock_mono_ns();
    status_t st = read_all(f, at, to, n, e);
    spent_ns += clock_mono_ns() - before;
    return st;
}
