#include "engine/checkpoint/reader_state.h"

#include "base/file.h"
#include "base/roots.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

void reader_progress(const struct checkpoint_reader *r) {
    if (r->options.progress)
        r->options.progress(r->options.ctx);
}

status_t reader_in_file(const struct checkpoint_reader *r, const char *name, status_t st, struct err *e) {
    return err_prefix(e, st, "'%s/%s': ", r->directory, name);
}

status_t reader_open_file(const struct checkpoint_reader *r, const char *name, int *ret_fd, int64_t *ret_bytes,
                          struct err *e) {
    char path[PATH_MAX + CHECKPOINT_FILE_BYTES];
    snprintf(path, sizeof path, "%s/%s", r->directory, name);
    CLEANUP(closep) int fd = -1;
    struct stat st;
    status_t opened = roots_open(r->options.roots, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, &fd, e);
    if (opened != ST_OK)
        return opened;
    if (fstat(fd, &st) < 0)
        return err_unreadable(e, "open '%s/%s'", r->directory, name);
    if (!S_ISREG(st.st_mode))
        return reader_in_file(r, name, err_set(e, ST_DATA_LOSS, "it is not a regular file"), e);
    *ret_bytes = st.st_size;
    *ret_fd = take_fd(&fd);
    return ST_OK;
}

status_t reader_read_at(const struct checkpoint_reader *r, const char *name, int fd, int64_t at, void *to, size_t n,
                        struct err *e) {
    for (char *p = to; n;) {
        ssize_t k = pread(fd, p, n, at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return err_unreadable(e, "read '%s/%s'", r->directory, name);
        if (k == 0)
            return reader_in_file(r, name, err_set(e, ST_DATA_LOSS, "it ends at byte %lld", (long long)at), e);
        p += k;
        at += k;
        n -= (size_t)k;
    }
    return ST_OK;
}
