#include "tracking/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

json_t *json_parse(const char *text, size_t n) {
    json_t *value = json_loadb(text, n, JSON_ALLOW_NUL, NULL);
    return value ? value : json_loadb(text, n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
}

bool json_double(const json_t *value, double *ret) {
    const char *text = json_string_value(value);
    if (json_is_number(value))
        *ret = json_number_value(value);
    else if (json_is_boolean(value))
        *ret = json_is_true(value);
    else if (text && strcmp(text, "NaN") == 0)
        *ret = NAN;
    else if (text && strcmp(text, "Infinity") == 0)
        *ret = INFINITY;
    else if (text && strcmp(text, "-Infinity") == 0)
        *ret = -INFINITY;
    else
        return false;
    return true;
}

int64_t json_int(const json_t *value, int64_t other) {
    const double real = json_real_value(value);
    const char *text = json_string_value(value);
    if (json_is_integer(value))
        return json_integer_value(value);
    if (json_is_real(value))
        return real == floor(real) && fabs(real) < 9e18 ? (int64_t)real : other;
    if (!text || !*text)
        return other;
    char *end = NULL;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    return *end || errno ? other : number;
}

const char *json_member_text(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}
