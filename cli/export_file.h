/* Writes a file under a temporary name and renames it when it is complete. */
#ifndef CLI_EXPORT_FILE_H
#define CLI_EXPORT_FILE_H

#include "base/status.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

enum { EXPORT_MARK = 24 };
/* ".part-" and random digits, for the names of unfinished files. */
void export_mark(char ret[EXPORT_MARK]);
MUST_CHECK status_t export_path(char ret[PATH_MAX], struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Appends to the unfinished file, which the first call creates. */
MUST_CHECK status_t export_append(const char *part, const void *data, size_t n, struct err *e);
/* Calls fsync on the unfinished file and renames it. ALREADY_EXISTS if path exists, unless overwrite. */
MUST_CHECK status_t export_finish(const char *part, const char *path, bool overwrite, struct err *e);

#endif
