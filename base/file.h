/* Whole files: read with a limit, written so that a crash leaves the old content or the new, never a mixture.
 * All descriptors are close-on-exec. Paths must not be NULL. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include "base/bytes.h"
#include "base/status.h"

#include <stdbool.h>

/* Appends the file's content to ret, up to the end of the file: also of a file of /proc, for which the kernel says
 * that its size is 0. A file longer than ret's limit is RESOURCE_EXHAUSTED; not a regular file is INVALID_ARGUMENT. */
MUST_CHECK status_t file_read(const char *path, struct bytes *ret, struct err *e);
/* The same for an open file, from its current offset; `path` is for error sentences. */
MUST_CHECK status_t fd_read_file(int fd, const char *path, struct bytes *ret, struct err *e);

/* Writes path.tmp, fsyncs it, renames it to path and fsyncs the folder. mode as for open(2), e.g. 0644; an old path.tmp
 * does not widen it. */
MUST_CHECK status_t file_write_atomic(const char *path, const void *data, size_t n, unsigned mode, struct err *e);

/* All n bytes, over short writes and EINTR. */
MUST_CHECK status_t fd_write_all(int fd, const void *data, size_t n, struct err *e);
/* Exactly n bytes; OUT_OF_RANGE if the file ends before. */
MUST_CHECK status_t fd_read_exact(int fd, void *data, size_t n, struct err *e);

/* mkdir -p: every missing folder with this mode; an existing folder is fine, an existing file is ALREADY_EXISTS. */
MUST_CHECK status_t dir_make(const char *path, unsigned mode, struct err *e);
/* fsync of a folder: makes a rename or a creation in it durable. */
MUST_CHECK status_t dir_sync(const char *path, struct err *e);
/* Whether the folder is empty or missing. */
MUST_CHECK status_t dir_is_empty(const char *path, bool *ret, struct err *e);
/* rm -r below and including path, not following symbolic links; a missing path is fine. */
MUST_CHECK status_t dir_remove(const char *path, struct err *e);
/* The same, also for read-only folders of this user. Does not leave the file system. */
MUST_CHECK status_t dir_remove_readonly(const char *path, struct err *e);

#endif
