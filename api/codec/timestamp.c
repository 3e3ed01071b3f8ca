#include "api/codec/timestamp.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Seconds of 0001-01-01 and of the last second of 9999, the range of google.protobuf.Timestamp. */
static const int64_t YEAR_1_S = -62135596800, YEAR_9999_END_S = 253402300799;

void timestamp_of_us(int64_t us, Google__Protobuf__Timestamp *ret) {
    google__protobuf__timestamp__init(ret);
    int64_t s = us / 1000000, rest = us % 1000000;
    if (rest < 0) {
        rest += 1000000;
        s--;
    }
    ret->seconds = s;
    ret->nanos = (int32_t)rest * 1000;
}

static status_t check_range(const Google__Protobuf__Timestamp *t, struct err *e) {
    if (t->seconds < YEAR_1_S || t->seconds > YEAR_9999_END_S || t->nanos < 0 || t->nanos > 999999999)
        return err_set(e, ST_INVALID_ARGUMENT, "a timestamp of %lld s and %d ns is outside the years 1 to 9999",
                       (long long)t->seconds, t->nanos);
    return ST_OK;
}

status_t timestamp_to_us(const Google__Protobuf__Timestamp *t, int64_t *ret_us, struct err *e) {
    TRY(check_range(t, e));
    *ret_us = t->seconds * 1000000 + t->nanos / 1000;
    return ST_OK;
}

status_t timestamp_print(const Google__Protobuf__Timestamp *t, char ret[TIMESTAMP_TEXT], struct err *e) {
    TRY(check_range(t, e));
    time_t s = t->seconds;
    struct tm tm;
    gmtime_r(&s, &tm);
    int n = snprintf(ret, TIMESTAMP_TEXT, "%04d-%02d-%02dT%02d:%02d:%02d", (tm.tm_year + 1900) % 10000, tm.tm_mon + 1,
                     tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
    int digits = t->nanos == 0 ? 0 : t->nanos % 1000000 == 0 ? 3 : t->nanos % 1000 == 0 ? 6 : 9;
    int32_t fraction = t->nanos;
    for (int i = digits; i < 9; i++)
        fraction /= 10;
    if (digits)
        n += snprintf(ret + n, TIMESTAMP_TEXT - (size_t)n, ".%0*d", digits, fraction);
    snprintf(ret + n, TIMESTAMP_TEXT - (size_t)n, "Z");
    return ST_OK;
}

/* Reads exactly `count` digits at *p, and moves *p past them. */
static bool take_digits(const char **p, int count, int *ret) {
    int value = 0;
    for (int i = 0; i < count; i++, ++*p) {
        if (!isdigit((unsigned char)**p))
            return false;
        value = value * 10 + (**p - '0');
    }
    *ret = value;
    return true;
}

static bool take_char(const char **p, const char *any) {
    if (**p == '\0' || !strchr(any, **p))
        return false;
    ++*p;
    return true;
}

static bool take_fraction(const char **p, int32_t *ret_nanos) {
    *ret_nanos = 0;
    if (**p != '.')
        return true;
    ++*p;
    int digits = 0;
    for (; isdigit((unsigned char)**p) && digits < 9; ++*p, digits++)
        *ret_nanos = *ret_nanos * 10 + (**p - '0');
    for (int i = digits; i < 9; i++)
        *ret_nanos *= 10;
    return digits > 0;
}

/* Reads "Z" or an offset, which must be the end of the text. */
static bool take_zone(const char **p, int *ret_offset_s) {
    *ret_offset_s = 0;
    int sign = **p == '-' ? -1 : 1, hours, minutes;
    if (take_char(p, "Zz"))
        return **p == '\0';
    if (!take_char(p, "+-") || !take_digits(p, 2, &hours) || !take_char(p, ":") || !take_digits(p, 2, &minutes))
        return false;
    *ret_offset_s = sign * (hours * 3600 + minutes * 60);
    return hours < 24 && minutes < 60 && **p == '\0';
}

status_t timestamp_parse(const char *text, int64_t *ret_seconds, int32_t *ret_nanos, struct err *e) {
    struct tm tm = { 0 }, back;
    const char *p = text;
    int32_t nanos = 0;
    int offset_s = 0;
    bool shape = take_digits(&p, 4, &tm.tm_year) && take_char(&p, "-") && take_digits(&p, 2, &tm.tm_mon) &&
                 take_char(&p, "-") && take_digits(&p, 2, &tm.tm_mday) && take_char(&p, "Tt ") &&
                 take_digits(&p, 2, &tm.tm_hour) && take_char(&p, ":") && take_digits(&p, 2, &tm.tm_min) &&
                 take_char(&p, ":") && take_digits(&p, 2, &tm.tm_sec) && take_fraction(&p, &nanos) &&
                 take_zone(&p, &offset_s);
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    back = tm;
    /* timegm converts 31 June to 1 July. So a date that timegm changes does not exist. */
    int64_t seconds = shape ? timegm(&back) : 0;
    bool exists = shape && back.tm_mon == tm.tm_mon && back.tm_mday == tm.tm_mday && back.tm_hour == tm.tm_hour &&
                  back.tm_min == tm.tm_min && back.tm_sec == tm.tm_sec;
    seconds -= offset_s;
    if (!exists || seconds < YEAR_1_S || seconds > YEAR_9999_END_S)
        return err_set(e, ST_INVALID_ARGUMENT, "expected a time such as 2026-11-21T10:11:04Z");
    *ret_seconds = seconds;
    *ret_nanos = nanos;
    return ST_OK;
}
