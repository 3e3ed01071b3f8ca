#include "base/log_file.h"

#include "base/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static bool open_for_append(struct log_file *l) {
    struct stat st;
    l->fd = open(l->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, l->mode);
    l->bytes = l->fd >= 0 && fstat(l->fd, &st) == 0 ? st.st_size : 0;
    return l->fd >= 0;
}

status_t log_file_open(struct log_file *l, const char *path, int64_t max_bytes, unsigned mode, struct err *e) {
    *l = (struct log_file){ .fd = -1, .max_bytes = max_bytes, .mode = mode };
    if (snprintf(l->path, sizeof l->path, "%s", path) >= (int)sizeof l->path)
        return err_set(e, ST_INVALID_ARGUMENT, "the path '%.100s...' is too long for a log", path);
    return open_for_append(l) ? ST_OK : err_errno(e, "open '%s'", path);
}

/* If the log cannot become the previous one, its lines are lost: its size is bounded first of all. */
static bool rotate(struct log_file *l) {
    char older[sizeof l->path + 2];
    snprintf(older, sizeof older, "%s.1", l->path);
    if (rename(l->path, older) == 0) {
        close(l->fd);
        return open_for_append(l);
    }
    if (ftruncate(l->fd, 0) != 0)
        return false;
    l->bytes = 0;
    return true;
}

/* Removes what a failed write has left, so that no line begins behind a part of another one. */
static void take_back(struct log_file *l) {
    struct stat st;
    if (fstat(l->fd, &st) == 0 && (st.st_size <= l->bytes || ftruncate(l->fd, l->bytes) != 0))
        l->bytes = st.st_size;
}

bool log_file_write(struct log_file *l, const char *data, size_t n) {
    if (l->fd < 0 && !open_for_append(l))
        return false;
    if (l->bytes + (int64_t)n > l->max_bytes && !rotate(l))
        return false;
    if (fd_write_all(l->fd, data, n, NULL) != ST_OK) {
        take_back(l);
        return false;
    }
    l->bytes += (int64_t)n;
    return true;
}

void log_file_close(struct log_file *l) {
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
}
