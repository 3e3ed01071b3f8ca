/* Lines of JSON that a program writes to its metrics FIFO, as rows of metrics.
 *
 *     {"step": 10, "loss": 2.31, "accuracy": 0.4}
 *
 * `step` is an integer from 0 to 2^53; every other member is a number. A line that is no such object, is longer than
 * METRIC_LINE_BYTES, or has a name that no metric can have is refused: refused() gets a sentence with the line and the
 * reason.
 *
 *     metric_lines_feed(&lines, data, n, &sink);     // the data may end inside a line
 *
 * One thread. Memory: one line. */
#ifndef EXECUTOR_PROGRAM_METRIC_LINES_H
#define EXECUTOR_PROGRAM_METRIC_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* PIPE_BUF, with the newline: a longer write to a FIFO is not atomic, so that lines of several processes would be
 * mixed. */
enum { METRIC_LINE_BYTES = 4096, METRIC_LINE_VALUES = 64 };

struct metric_lines {
    char line[METRIC_LINE_BYTES - 1];
    size_t n;
    bool too_long; /* the rest of a line that was refused is skipped */
};

struct metric_sink {
    void *ctx;
    /* names and values are valid during the call. */
    void (*row)(void *ctx, int64_t step, char *const *names, const double *values, size_t n);
    void (*refused)(void *ctx, const char *sentence);
};

void metric_lines_feed(struct metric_lines *lines, const char *data, size_t n, const struct metric_sink *sink);

#endif
