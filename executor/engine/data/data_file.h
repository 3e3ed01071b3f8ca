/* A file of a job's data, open for pread(2): whatever becomes of it while a job reads it is one sentence.
 * Any number of threads may read one. Private to this folder. */
#ifndef EXECUTOR_ENGINE_DATA_DATA_FILE_H
#define EXECUTOR_ENGINE_DATA_DATA_FILE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct data_file {
    const char *what; /* "data file", "token file": the word of its sentences */
    char *path;
    int fd;
    int64_t bytes;
};

/* NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (no regular file). `what` is borrowed for good. */
MUST_CHECK status_t data_file_open(struct data_file *f, const char *what, const char *path, struct err *e);
/* The same for a name within an open folder, however it goes on there: INVALID_ARGUMENT when `name` leaves the folder,
 * by ".." or by a symbolic link. path: what sentences call it. */
MUST_CHECK status_t data_file_open_below(struct data_file *f, const char *what, int folder, const char *name,
                                         const char *path, struct err *e);

/* A descriptor of a name (file or folder) within an open folder that does not leave it, opened with these flags of
 * open(2); "" or "." = the folder itself. */
MUST_CHECK status_t data_open_below(int folder, const char *name, int flags, const char *path, int *ret, struct err *e);

void data_file_close(struct data_file *f); /* also of one that open left half-done, and of zeroes with fd -1 */

/* Bytes [at, at + n). FAILED_PRECONDITION when the file ends before: it was checked against `bytes` when it was
 * opened. */
MUST_CHECK status_t data_file_read(const struct data_file *f, int64_t at, void *to, size_t n, struct err *e);

#endif
