/* A file that is not there before it is whole: it grows under another name, and is renamed. */
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
/* Appends to the unfinished file; the first time it is made. */
MUST_CHECK status_t export_append(const char *part, const void *data, size_t n, struct err *e);
/* The unfinished file is on disk, and gets its name. ALREADY_EXISTS where another has it, unless overwrite. */
MUST_CHECK status_t export_finish(const char *part, const char *path, bool overwrite, struct err *e);

#endif
