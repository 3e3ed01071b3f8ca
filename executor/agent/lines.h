/* Cuts what a worker prints into lines: bounded in length, rate and alphabet, so that a mad worker costs little.
 *
 * A line longer than LIMIT_LOG_LINE_BYTES is cut into several. Bytes that are no UTF-8, and control characters but tab,
 * become '?'. More than LINES_PER_SECOND (after a burst of two seconds' worth) or LINE_BYTES_PER_SECOND are dropped and
 * counted. Owned by one thread. */
#ifndef EXECUTOR_AGENT_LINES_H
#define EXECUTOR_AGENT_LINES_H

#include "base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A person reads some ten lines a second; a stack trace or a library's start-up comes in a burst. */
enum { LINES_PER_SECOND = 500, LINE_BYTES_PER_SECOND = 256 << 10 };

struct lines {
    char text[LIMIT_LOG_LINE_BYTES + 1]; /* the line that is not complete yet */
    size_t n;
    double line_tokens, byte_tokens;
    int64_t filled_ms;
    int64_t dropped;                           /* lines since the caller last set it to 0 */
    void (*line)(void *ctx, const char *text); /* NUL-terminated, valid UTF-8 without NUL or newline */
    void *ctx;
};

void lines_init(struct lines *l, void (*line)(void *ctx, const char *text), void *ctx);
void lines_feed(struct lines *l, const char *data, size_t n);
void lines_end(struct lines *l); /* the last line, which lacks its newline */

#endif
