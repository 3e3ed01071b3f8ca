#include "executor/engine/data/data_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static status_t begin(struct data_file *f, const char *what, const char *path, struct err *e) {
    *f = (struct data_file){ .what = what, .path = strdup(path ? path : ""), .fd = -1 };
    return f->path ? ST_OK : err_errno(e, "allocate a file name");
}

static status_t check(struct data_file *f, struct err *e) {
    struct stat st;
    if (fstat(f->fd, &st) < 0)
        return err_errno(e, "stat the %s '%s'", f->what, f->path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ST_INVALID_ARGUMENT, "the %s '%s' is not a regular file", f->what, f->path);
    f->bytes = st.st_size;
    return ST_OK;
}

/* O_NONBLOCK: a FIFO is told as what it is, instead of waiting for its writer. */
enum { FLAGS = O_RDONLY | O_CLOEXEC | O_NONBLOCK };

status_t data_file_open(struct data_file *f, const char *what, const char *path, struct err *e) {
    TRY(begin(f, what, path, e));
    if ((f->fd = open(f->path, FLAGS)) < 0)
        return err_errno(e, "open the %s '%s'", what, f->path);
    return check(f, e);
}

status_t data_open_below(int folder, const char *name, int flags, const char *path, int *ret, struct err *e) {
    struct open_how how = { .flags = (unsigned)(flags | O_CLOEXEC),
                            .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };
    long fd = syscall(SYS_openat2, folder, *name ? name : ".", &how, sizeof how);
    if (fd < 0 && errno == EXDEV)
        return err_set(e, ST_INVALID_ARGUMENT, "'%s' leads out of the folder that it is in", path);
    if (fd < 0)
        return err_errno(e, "open '%s'", path);
    *ret = (int)fd;
    return ST_OK;
}

status_t data_file_open_below(struct data_file *f, const char *what, int folder, const char *name, const char *path,
                              struct err *e) {
    TRY(begin(f, what, path, e));
    TRY(data_open_below(folder, name, FLAGS, path, &f->fd, e));
    return check(f, e);
}

void data_file_close(struct data_file *f) {
    if (f->fd >= 0)
        close(f->fd);
    free(f->path);
    *f = (struct data_file){ .fd = -1 };
}

status_t data_file_read(const struct data_file *f, int64_t at, void *to, size_t n, struct err *e) {
    char *p = to;
    while (n) {
        ssize_t k = pread(f->fd, p, n, at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return err_errno(e, "read the %s '%s'", f->what, f->path);
        if (k == 0)
            return err_set(e, ST_FAILED_PRECONDITION, "the %s '%s' had %lld bytes and now ends at byte %lld", f->what,
                           f->path, (long long)f->bytes, (long long)at);
        p += k;
        at += k;
        n -= (size_t)k;
    }
    return ST_OK;
}
