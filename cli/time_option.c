#include "cli/time_option.h"

#include "api/codec/timestamp.h"

#include <stdlib.h>
#include <time.h>

status_t time_option_read(const char *option, const char *text, Google__Protobuf__Timestamp *ret, struct err *e) {
    static const struct {
        char letter;
        int64_t seconds;
    } units[] = { { 's', 1 }, { 'm', 60 }, { 'h', 3600 }, { 'd', 86400 } };
    char *end;
    const long long n = strtoll(text, &end, 10);
    google__protobuf__timestamp__init(ret);
    for (size_t i = 0; end != text && n >= 0 && n < INT32_MAX && i < 4; i++)
        if (end[0] == units[i].letter && !end[1]) {
            ret->seconds = (int64_t)time(NULL) - n * units[i].seconds;
            return ST_OK;
        }
    return timestamp_parse(text, &ret->seconds, &ret->nanos, NULL) == ST_OK
               ? ST_OK
               : err_set(e, ST_INVALID_ARGUMENT,
                         "--%s: '%.40s' is neither a duration such as 90m, 12h or 3d nor a time such as "
                         "2026-11-21T10:00:00Z",
                         option, text);
}
