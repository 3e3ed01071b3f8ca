/* A log with a ceiling: NAME.log and, when that is full, the one before it as NAME.log.1. Two files of
 * LOG_FILE_BYTES each are all that one child of `up` may ever fill. A log that cannot be written is dropped. */
#ifndef CLI_UP_LOG_FILE_H
#define CLI_UP_LOG_FILE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { LOG_FILE_BYTES = 8 << 20 };

struct log_file {
    char path[512];
    int fd; /* -1: closed */
    int64_t bytes;
};

/* Appends to what is there. */
MUST_CHECK status_t log_file_open(struct log_file *l, const char *path, struct err *e);
void log_file_write(struct log_file *l, const char *data, size_t n);
void log_file_close(struct log_file *l);

#endif
