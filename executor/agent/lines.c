#include "executor/agent/lines.h"

#include "base/clock.h"

#include <string.h>

void lines_init(struct lines *l, void (*line)(void *ctx, const char *text), void *ctx) {
    l->n = 0;
    l->line_tokens = 2.0 * LINES_PER_SECOND;
    l->byte_tokens = 2.0 * LINE_BYTES_PER_SECOND;
    l->filled_ms = clock_mono_ms();
    l->dropped = 0;
    l->line = line;
    l->ctx = ctx;
}

/* The length of the UTF-8 character at s, 0 when it is none (RFC 3629: no surrogates, no overlong forms). */
static size_t utf8_length(const unsigned char *s, size_t n) {
    static const struct {
        unsigned char low, high, second_low, second_high;
        size_t length;
    } forms[] = {
        { 0xc2, 0xdf, 0x80, 0xbf, 2 }, { 0xe0, 0xe0, 0xa0, 0xbf, 3 }, { 0xe1, 0xec, 0x80, 0xbf, 3 },
        { 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 }, { 0xf0, 0xf0, 0x90, 0xbf, 4 },
        { 0xf1, 0xf3, 0x80, 0xbf, 4 }, { 0xf4, 0xf4, 0x80, 0x8f, 4 },
    };
    if (s[0] < 0x80)
        return 1;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (s[0] < forms[i].low || s[0] > forms[i].high || n < forms[i].length)
            continue;
        if (s[1] < forms[i].second_low || s[1] > forms[i].second_high)
            return 0;
        for (size_t k = 2; k < forms[i].length; k++)
            if (s[k] < 0x80 || s[k] > 0xbf)
                return 0;
        return forms[i].length;
    }
    return 0;
}

void lines_clean(char *text, size_t n) {
    unsigned char *s = (unsigned char *)text;
    for (size_t i = 0; i < n;) {
        size_t length = utf8_length(s + i, n - i);
        if (length == 0 || (length == 1 && (s[i] < 0x20 || s[i] == 0x7f) && s[i] != '\t')) {
            s[i] = '?';
            length = 1;
        }
        i += length;
    }
}

static bool admitted(struct lines *l) {
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

static void line_out(struct lines *l) {
    if (l->n && l->text[l->n - 1] == '\r')
        l->n--;
    if (l->n == 0)
        return;
    if (admitted(l)) {
        lines_clean(l->text, l->n);
        l->text[l->n] = '\0';
        l->line(l->ctx, l->text);
    } else {
        l->dropped++;
    }
    l->n = 0;
}

void lines_feed(struct lines *l, const char *data, size_t n) {
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

void lines_end(struct lines *l) { line_out(l); }
