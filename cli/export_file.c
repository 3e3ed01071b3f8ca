#include "cli/export_file.h"

#include "base/cleanup.h"
#include "base/file.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

void export_mark(char ret[EXPORT_MARK]) {
    unsigned digits[2] = { 0 };
    if (getrandom(digits, sizeof digits, 0) != sizeof digits)
        digits[0] = (unsigned)getpid(); /* cannot fail for 8 bytes once the kernel has booted */
    snprintf(ret, EXPORT_MARK, ".part-%08x%08x", digits[0], digits[1]);
}

status_t export_path(char ret[PATH_MAX], struct err *e, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(ret, PATH_MAX, fmt, args);
    va_end(args);
    return n >= 0 && n < PATH_MAX ? ST_OK : err_set(e, ST_INVALID_ARGUMENT, "the path '%.80s...' is too long", ret);
}

status_t export_append(const char *part, const void *data, size_t n, struct err *e) {
    CLEANUP(closep) int fd = open(part, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return err_errno(e, "create '%s'", part);
    status_t st = fd_write_all(fd, data, n, e);
    return st == ST_OK ? ST_OK : err_prefix(e, st, "'%s': ", part);
}

status_t export_finish(const char *part, const char *path, bool overwrite, struct err *e) {
    CLEANUP(closep) int fd = open(part, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        return err_errno(e, "fsync '%s'", part);
    /* link(2) refuses an existing name; rename(2) does not. */
    if (!overwrite && link(part, path) < 0)
        return err_errno(e, "make '%s'", path);
    if (overwrite ? rename(part, path) < 0 : unlink(part) < 0)
        return err_errno(e, "rename '%s' to '%s'", part, path);
    return ST_OK;
}
