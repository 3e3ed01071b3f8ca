#include "executor/agent/output_lines.h"

#include "base/clock.h"
#include "base/utf8.h"

#include <string.h>

void output_lines_init(struct output_lines *l, void (*line)(void *ctx, const char *text), void *ctx) {
    l->n = 0;
    l->line_tokens = 2.0 * LINES_PER_SECOND;
    l->byte_tokens = 2.0 * LINE_BYTES_PER_SECOND;
    l->filled_ms = clock_mono_ms();
    l->dropped = 0;
    l->line = line;
    l->ctx = ctx;
}

/* Two token buckets, one for lines and one for bytes: each holds at most two seconds' worth. */
static bool admitted(struct output_lines *l) {
    int64_t now = clock_mono_ms();
    double seconds = (double)(now - l->filled_ms) / 1000;
    l->filled_ms = now;
    l->line_tokens += seconds * LINES_PER_SECOND;
    l->byte_tokens += seconds * LINE_BYTES_PER_SECOND;
    if (l->line_tokens > 2.0 * LINES_PER_SECOND)
        l->line_tokens = 2.0 * LINES_PER_SECOND;
    if (l->byte_tokens > 2.0 * LINE_BYTES_PER_SECOND)
        l->byte_tokens = 2.0 * LINE_BYTES_PER_SECOND;
    if (l->line_tokens < 1 || l->byte_tokens < (double)l->n)
        return false;
    l->line_tokens -= 1;
    l->byte_tokens -= (double)l->n;
    return true;
}

static void line_out(struct output_lines *l) {
    if (l->n && l->text[l->n - 1] == '\r')
        l->n--;
    if (l->n == 0)
        return;
    if (admitted(l)) {
        utf8_printable(l->text, l->n, "\t", l->text);
        l->text[l->n] = '\0';
        l->line(l->ctx, l->text);
    } else {
        l->dropped++;
    }
    l->n = 0;
}

void output_lines_feed(struct output_lines *l, const char *data, size_t n) {
    while (n) {
        const char *newline = memchr(data, '\n', n);
        size_t take = newline ? (size_t)(newline - data) : n;
        if (take > LIMIT_LOG_LINE_BYTES - l->n) {
            take = LIMIT_LOG_LINE_BYTES - l->n;
            newline = NULL;
        }
        memcpy(l->text + l->n, data, take);
        l->n += take;
        data += take;
        n -= take;
        if (newline) {
            line_out(l);
            data++;
            n--;
        } else if (l->n == LIMIT_LOG_LINE_BYTES) {
            line_out(l);
        }
    }
}

void output_lines_end(struct output_lines *l) { line_out(l); }
