/* Log lines as text (key=value) or JSON, to standard error.
 *
 * A line is built in a fixed buffer and written with one write(2). If a field does not fit, this field and all later
 * fields are dropped, and the line ends with a mark ("cut"). The format and the minimum level are atomic global
 * variables. */
#include "base/log.h"

#include "base/clock.h"

#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_CAP = 4096, TAIL_CAP = 16 }; /* TAIL_CAP: space for the "cut" mark, the closing brace and the newline */

static _Atomic int log_format = LOG_TEXT;
static _Atomic int log_min_level = LOG_INFO;

static const char *const level_names[] = { "debug", "info", "warn", "error" };
static const char *const format_names[] = { "text", "json" };

void log_setup(enum log_format format, enum log_level min_level) {
    atomic_store(&log_format, (int)format);
    atomic_store(&log_min_level, (int)min_level);
}

static int find_name(const char *const *names, int n, const char *text) {
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], text) == 0)
            return i;
    return -1;
}
int log_level_parse(const char *text) { return find_name(level_names, 4, text); }
int log_format_parse(const char *text) { return find_name(format_names, 2, text); }

struct line {
    char bytes[LINE_CAP];
    size_t len;
    bool full;
};

static void put(struct line *l, const char *text, size_t n) {
    if (l->full || l->len + n > LINE_CAP - TAIL_CAP) {
        l->full = true;
        return;
    }
    memcpy(l->bytes + l->len, text, n);
    l->len += n;
}
static void put_str(struct line *l, const char *text) { put(l, text, strlen(text)); }

/* The text format uses JSON escaping too: a quoted value is the same string literal in both formats. */
static void put_quoted(struct line *l, const char *text) {
    put(l, "\"", 1);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        char esc[8];
        if (*p == '"' || *p == '\\')
            put(l, (char[]){ '\\', (char)*p }, 2);
        else if (*p < 0x20 || *p == 0x7f)
            put(l, esc, (size_t)snprintf(esc, sizeof esc, "\\u%04x", *p));
        else
            put(l, (const char *)p, 1);
    }
    put(l, "\"", 1);
}

static bool is_plain(const char *text) {
    if (!*text)
        return false;
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if (*p <= ' ' || *p == '"' || *p == '=' || *p == '\\' || *p == 0x7f)
            return false;
    return true;
}

static void put_value(struct line *l, const struct log_value *v, bool json) {
    char num[40];
    if (v->kind == LOG_VALUE_INT)
        put(l, num, (size_t)snprintf(num, sizeof num, "%lld", (long long)v->i));
    else if (v->kind == LOG_VALUE_DOUBLE && isfinite(v->d))
        put(l, num, (size_t)snprintf(num, sizeof num, "%.9g", v->d));
    else if (v->kind == LOG_VALUE_DOUBLE)
        put_str(l, json ? "null" : "nan");
    else if (!v->s)
        put_str(l, json ? "null" : "-");
    else if (!json && is_plain(v->s))
        put_str(l, v->s);
    else
        put_quoted(l, v->s);
}

static void put_head(struct line *l, enum log_level level, const char *event, bool json) {
    int64_t us = clock_wall_us();
    time_t secs = (time_t)(us / 1000000);
    struct tm tm;
    gmtime_r(&secs, &tm);
    char when[48];
    size_t n = strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(when + n, sizeof when - n, ".%03dZ", (int)(us / 1000 % 1000));
    if (json) {
        put_str(l, "{\"time\":");
        put_quoted(l, when);
        put_str(l, ",\"level\":");
        put_quoted(l, level_names[level]);
        put_str(l, ",\"event\":");
        put_quoted(l, event);
    } else {
        put_str(l, when);
        put_str(l, " ");
        put_str(l, level_names[level]);
        put_str(l, " ");
        put_str(l, event);
    }
}

void log_event(enum log_level level, const char *event, ...) {
    if ((int)level < atomic_load(&log_min_level))
        return;
    bool json = atomic_load(&log_format) == LOG_JSON;
    struct line l = { .len = 0 };
    put_head(&l, level, event, json);
    va_list args;
    va_start(args, event);
    for (const char *key; (key = va_arg(args, const char *)) != NULL;) {
        const struct log_value *v = va_arg(args, const struct log_value *);
        size_t before = l.len;
        put_str(&l, json ? ",\"" : " ");
        put_str(&l, key);
        put_str(&l, json ? "\":" : "=");
        put_value(&l, v, json);
        if (l.full) {
            l.len = before; /* a partial field would break the JSON: drop all of it */
            break;
        }
    }
    va_end(args);
    const char *tail = json ? (l.full ? ",\"cut\":true}\n" : "}\n") : (l.full ? " cut=true\n" : "\n");
    size_t n = strlen(tail);
    memcpy(l.bytes + l.len, tail, n);
    ssize_t written = write(STDERR_FILENO, l.bytes, l.len + n);
    (void)written; /* a log that cannot be written is dropped */
}
