#include "cli/up/log_file.h"

#include "base/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_for_append(const char *path) { return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644); }

status_t log_file_open(struct log_file *l, const char *path, struct err *e) {
    *l = (struct log_file){ .fd = -1 };
    if (snprintf(l->path, sizeof l->path, "%s", path) >= (int)sizeof l->path)
        return err_set(e, ST_INVALID_ARGUMENT, "the path '%.100s...' is too long for a log", path);
    l->fd = open_for_append(path);
    if (l->fd < 0)
        return err_errno(e, "open '%s'", path);
    struct stat st;
    if (fstat(l->fd, &st) == 0)
        l->bytes = st.st_size;
    return ST_OK;
}

static void rotate(struct log_file *l) {
    char older[sizeof l->path + 2];
    snprintf(older, sizeof older, "%s.1", l->path);
    rename(l->path, older);
    close(l->fd);
    l->fd = open_for_append(l->path);
    l->bytes = 0;
}

void log_file_write(struct log_file *l, const char *data, size_t n) {
    if (l->fd >= 0 && l->bytes + (int64_t)n > LOG_FILE_BYTES)
        rotate(l);
    if (l->fd < 0)
        return;
    status_ignore(fd_write_all(l->fd, data, n, NULL));
    l->bytes += (int64_t)n;
}

void log_file_close(struct log_file *l) {
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
}
