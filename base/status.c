#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Ends a sentence that did not fit with "...", so that a reader sees that it was cut. */
static void mark_cut(char *msg, size_t cap, int wanted) {
    if (wanted >= (int)cap)
        memcpy(msg + cap - 4, "...", 4);
}

status_t err_vset(struct err *e, status_t st, const char *fmt, va_list args) {
    if (e) {
        int wanted = vsnprintf(e->msg, sizeof e->msg, fmt, args);
        mark_cut(e->msg, sizeof e->msg, wanted);
    }
    return st;
}

status_t err_set(struct err *e, status_t st, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    st = err_vset(e, st, fmt, args);
    va_end(args);
    return st;
}

status_t err_prefix(struct err *e, status_t st, const char *fmt, ...) {
    if (!e)
        return st;
    /* The old sentence is copied first, because the new one is written over it. */
    struct err inner = *e;
    va_list args;
    va_start(args, fmt);
    int used = vsnprintf(e->msg, sizeof e->msg, fmt, args);
    va_end(args);
    if (used < 0)
        used = 0;
    if ((size_t)used < sizeof e->msg) {
        int wanted = snprintf(e->msg + used, sizeof e->msg - (size_t)used, "%s", inner.msg);
        used += wanted;
    }
    mark_cut(e->msg, sizeof e->msg, used);
    return st;
}

status_t status_of_errno(int errnum) {
    switch (errnum) {
    case 0: return ST_OK;
    case ENOENT:
    case ESRCH: return ST_NOT_FOUND;
    case EACCES:
    case EPERM:
    case EROFS: return ST_PERMISSION_DENIED;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE: return ST_RESOURCE_EXHAUSTED;
    case EEXIST:
    case EADDRINUSE: return ST_ALREADY_EXISTS;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case EHOSTUNREACH:
    case ENETUNREACH: return ST_UNAVAILABLE;
    case ETIMEDOUT: return ST_DEADLINE_EXCEEDED;
    default: return ST_INTERNAL;
    }
}

__attribute__((format(printf, 3, 0))) static status_t errno_say(struct err *e, int errnum, const char *fmt,
                                                                va_list args) {
    if (!e)
        return status_of_errno(errnum);
    int used = vsnprintf(e->msg, sizeof e->msg, fmt, args);
    if (used < 0)
        used = 0;
    if ((size_t)used < sizeof e->msg) {
        char reason[128];
        const char *text = strerror_r(errnum, reason, sizeof reason);
        used += snprintf(e->msg + used, sizeof e->msg - (size_t)used, ": %s", text);
    }
    mark_cut(e->msg, sizeof e->msg, used);
    return status_of_errno(errnum);
}

status_t err_errno(struct err *e, const char *fmt, ...) {
    const int errnum = errno;
    va_list args;
    va_start(args, fmt);
    const status_t st = errno_say(e, errnum, fmt, args);
    va_end(args);
    return st;
}

status_t err_unreadable(struct err *e, const char *fmt, ...) {
    const int errnum = errno;
    va_list args;
    va_start(args, fmt);
    const status_t st = errno_say(e, errnum, fmt, args);
    va_end(args);
    return st == ST_PERMISSION_DENIED || st == ST_RESOURCE_EXHAUSTED ? st : ST_NOT_FOUND;
}

const char *status_name(status_t st) {
    static const char *const names[] = {
        [ST_OK] = "OK",
        [ST_CANCELLED] = "CANCELLED",
        [ST_UNKNOWN] = "UNKNOWN",
        [ST_INVALID_ARGUMENT] = "INVALID_ARGUMENT",
        [ST_DEADLINE_EXCEEDED] = "DEADLINE_EXCEEDED",
        [ST_NOT_FOUND] = "NOT_FOUND",
        [ST_ALREADY_EXISTS] = "ALREADY_EXISTS",
        [ST_PERMISSION_DENIED] = "PERMISSION_DENIED",
        [ST_RESOURCE_EXHAUSTED] = "RESOURCE_EXHAUSTED",
        [ST_FAILED_PRECONDITION] = "FAILED_PRECONDITION",
        [ST_ABORTED] = "ABORTED",
        [ST_OUT_OF_RANGE] = "OUT_OF_RANGE",
        [ST_UNIMPLEMENTED] = "UNIMPLEMENTED",
        [ST_INTERNAL] = "INTERNAL",
        [ST_UNAVAILABLE] = "UNAVAILABLE",
        [ST_DATA_LOSS] = "DATA_LOSS",
        [ST_UNAUTHENTICATED] = "UNAUTHENTICATED",
    };
    size_t i = (size_t)st;
    return i < sizeof names / sizeof *names ? names[i] : "UNKNOWN";
}
