/* The log of a program: one structured line per event on stderr, for main programs and service loops only.
 *
 *     log_event(LOG_INFO, "attempt_started", "job", LOG_INT(job), "attempt", LOG_INT(n), "host", LOG_STR(host), NULL);
 *
 * text:  2026-11-21T10:11:04.123Z info attempt_started job=7 attempt=1 host=gpu-3
 * json: {"time":"2026-11-21T10:11:04.123Z","level":"info","event":"attempt_started","job":7,"attempt":1,"host":"gpu-3"}
 *
 * A line has at most 4,096 bytes (PIPE_BUF: one write(2) is atomic among several writers). A longer one loses its last
 * fields and ends with cut=true. Strings are escaped, so that a value cannot forge a line. Thread-safe. Never fails:
 * a log that cannot be written is dropped. Libraries do not call this: they return a status with a sentence. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_format { LOG_TEXT, LOG_JSON };

/* Set at the start of main, from --log-format and --log-level, and when these are read again. Defaults: text, info. */
void log_setup(enum log_format format, enum log_level min_level);

struct log_value {
    enum { LOG_VALUE_INT, LOG_VALUE_DOUBLE, LOG_VALUE_STR } kind;
    union {
        int64_t i;
        double d;
        const char *s; /* NULL is written as null (JSON) or "-" (text) */
    };
};
#define LOG_INT(x)    (&(const struct log_value){ LOG_VALUE_INT, { .i = (x) } })
#define LOG_DOUBLE(x) (&(const struct log_value){ LOG_VALUE_DOUBLE, { .d = (x) } })
#define LOG_STR(x)    (&(const struct log_value){ LOG_VALUE_STR, { .s = (x) } })

/* After the event's name follow pairs of `const char *key, const struct log_value *`, ending with NULL. Keys are
 * snake_case. */
void log_event(enum log_level level, const char *event, ...) __attribute__((sentinel));

/* "debug" | "info" | "warn" | "error" and "text" | "json"; -1 for anything else. */
int log_level_parse(const char *text);
int log_format_parse(const char *text);

#endif
