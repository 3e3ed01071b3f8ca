/* Splits the output of a worker into lines of bounded length, rate and alphabet, so that a worker that prints endlessly
 * costs little.
 *
 * A line longer than LIMIT_LOG_LINE_BYTES is split. Bytes that are not UTF-8, and control characters except tab, become
 * '?'. Lines beyond LINES_PER_SECOND or LINE_BYTES_PER_SECOND, after a burst of two seconds' worth, are dropped and
 * counted. Owned by one thread. */
#ifndef EXECUTOR_AGENT_OUTPUT_LINES_H
#define EXECUTOR_AGENT_OUTPUT_LINES_H

#include "base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A person reads some ten lines a second; a stack trace arrives in a burst. */
enum { LINES_PER_SECOND = 500, LINE_BYTES_PER_SECOND = 256 << 10 };

struct output_lines {
    char text[LIMIT_LOG_LINE_BYTES + 1]; /* the incomplete line */
    size_t n;
    double line_tokens, byte_tokens;
    int64_t filled_ms;
    int64_t dropped;                           /* lines since the caller last set it to 0 */
    void (*line)(void *ctx, const char *text); /* NUL-terminated, valid UTF-8 without NUL or newline */
    void *ctx;
};

void output_lines_init(struct output_lines *l, void (*line)(void *ctx, const char *text), void *ctx);
void output_lines_feed(struct output_lines *l, const char *data, size_t n);
void output_lines_end(struct output_lines *l); /* ends a last line without a newline */

#endif
