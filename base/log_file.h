/* A log of bounded size: NAME.log and, when it is full, the previous one as NAME.log.1. If a log cannot be renamed, it
 * begins anew. If it cannot be written, the data is dropped, and the next write tries to open it again. One thread at a
 * time. */
#ifndef BASE_LOG_FILE_H
#define BASE_LOG_FILE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct log_file {
    char path[512];
    int fd; /* -1: closed, or the last try to open it has failed */
    int64_t bytes, max_bytes;
    unsigned mode;
};

/* Appends to an existing log. max_bytes: of each of the two files. mode: of a new file. */
MUST_CHECK status_t log_file_open(struct log_file *l, const char *path, int64_t max_bytes, unsigned mode,
                                  struct err *e);
/* False: the data was dropped. Not after log_file_close. */
bool log_file_write(struct log_file *l, const char *data, size_t n);
void log_file_close(struct log_file *l);

#endif
