/* A file of a job's data, open for pread(2). If the file changes or disappears while a job reads it, the read returns
 * an error and raises no signal. Any number of threads may read one. Private to this folder. */
#ifndef ENGINE_DATA_DATA_FILE_H
#define ENGINE_DATA_DATA_FILE_H

#include "base/roots.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct data_file {
    const char *what; /* "data file", "token file": for error messages */
    char *path;
    int fd;
    int64_t bytes;
};

/* NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (not a regular file), and as roots_open. `what` must be static. */
MUST_CHECK status_t data_file_open(struct data_file *f, const char *what, const struct roots *roots, const char *path,
                                   struct err *e);

/* An open folder of data. With roots NULL (the user's own folder), symbolic links that stay in the folder are followed.
 */
struct data_folder {
    const struct roots *roots;
    int fd;
};

/* Opens a file by a name within a folder: INVALID_ARGUMENT if `name` leaves the folder, by ".." or by a symbolic link.
 * path: its name in error messages. */
MUST_CHECK status_t data_file_open_below(struct data_file *f, const char *what, const struct data_folder *folder,
                                         const char *name, const char *path, struct err *e);

/* Opens a file or folder by a name within an open folder, with these flags of open(2). The name may not leave the
 * folder; "" or "." = the folder itself. */
MUST_CHECK status_t data_open_below(const struct data_folder *folder, const char *name, int flags, const char *path,
                                    int *ret, struct err *e);

void data_file_close(struct data_file *f); /* allowed after a failed open, and for a struct of zeros with fd -1 */

/* Reads bytes [at, at + n). FAILED_PRECONDITION if the file has become shorter since it was opened. */
MUST_CHECK status_t data_file_read(const struct data_file *f, int64_t at, void *to, size_t n, struct err *e);

/* The time that this thread has spent in opening and reading data files, in all. */
int64_t data_file_ns(void);

#endif
