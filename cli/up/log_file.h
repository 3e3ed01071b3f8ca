/* A log of bounded size: NAME.log and, when it is full, the previous one as NAME.log.1. Each has at most
 * LOG_FILE_BYTES. If a log cannot be written, its lines are dropped. */
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

/* Appends to an existing log. */
MUST_CHECK status_t log_file_open(struct log_file *l, const char *path, struct err *e);
void log_file_write(struct log_file *l, const char *data, size_t n);
void log_file_close(struct log_file *l);

#endif
