/* Scalar values as text: numbers, booleans, enum names, strings and base64, for YAML, JSON and --set.
 *
 * scalar_parse selects the parser by the type of the field. Numbers follow JSON's grammar; 1e3 and 200.0 are integers
 * if a double represents them exactly. An enum is given by its name or its number. base64 may use the URL-safe alphabet
 * and may omit the padding. Every refusal names the expected type and quotes the text.
 *
 * A double is printed with the fewest digits that parse to the same value. 15 digits are tried first: a double keeps
 * every decimal number of 15 digits, and %g leaves out zeros at the end, so that a shorter text need not be looked for.
 * Only numbers below DBL_MIN have fewer exact digits, and are tried with 1 digit and more. */
#include "api/codec/scalar.h"

#include "api/codec/text.h"
#include "base/alloc.h"
#include "base/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The longest text that can be a number: 2^1024 in full has 309 digits. */
enum { NUMBER_TEXT = 400 };

void scalar_quote(const char *text, size_t n, char ret[64]) {
    size_t keep = n > 40 ? 40 : n;
    while (keep < n && keep > 0 && ((uint8_t)text[keep] & 0xc0) == 0x80)
        keep--; /* never cut inside a character */
    size_t used = 0;
    ret[used++] = '\'';
    utf8_printable(text, keep, "", ret + used);
    used += keep;
    snprintf(ret + used, 64 - used, "%s'", keep < n ? "..." : "");
}

const char *scalar_expected(const ProtobufCFieldDescriptor *f) {
    switch (f->type) {
    case PROTOBUF_C_TYPE_DOUBLE:
    case PROTOBUF_C_TYPE_FLOAT: return "a number";
    case PROTOBUF_C_TYPE_BOOL: return "true or false";
    case PROTOBUF_C_TYPE_STRING: return "text";
    case PROTOBUF_C_TYPE_BYTES: return "base64 text";
    case PROTOBUF_C_TYPE_ENUM: return "a name";
    case PROTOBUF_C_TYPE_MESSAGE: return "a mapping";
    default: return "an integer";
    }
}

static status_t not_expected(const ProtobufCFieldDescriptor *f, const char *text, size_t n, struct err *e) {
    char quoted[64];
    scalar_quote(text, n, quoted);
    return err_set(e, ST_INVALID_ARGUMENT, "expected %s, found %s", scalar_expected(f), quoted);
}

static status_t out_of_range(const char *type, const char *text, size_t n, struct err *e) {
    char quoted[64];
    scalar_quote(text, n, quoted);
    return err_set(e, ST_INVALID_ARGUMENT, "%s is too large for %s", quoted, type);
}

/* [+-] digits [. digits] [e [+-] digits], with digits before or after the point; no leading zero, which YAML 1.1 would
 * read as octal. */
static bool is_number(const char *s) {
    s += *s == '+' || *s == '-';
    if (s[0] == '0' && isdigit((unsigned char)s[1]))
        return false;
    size_t whole = strspn(s, "0123456789"), part = 0;
    s += whole;
    if (*s == '.') {
        part = strspn(++s, "0123456789");
        s += part;
    }
    if (whole + part == 0)
        return false;
    if (*s == 'e' || *s == 'E') {
        s += 1 + (s[1] == '+' || s[1] == '-');
        size_t digits = strspn(s, "0123456789");
        if (digits == 0)
            return false;
        s += digits;
    }
    return *s == '\0';
}

static bool is_integer(const char *s) {
    s += *s == '+' || *s == '-';
    return *s && s[strspn(s, "0123456789")] == '\0';
}

/* 1e3 and 200.0 are integers too, if a double represents them exactly. */
static bool integral_double(const char *number, double *ret) {
    double d = strtod(number, NULL);
    *ret = d;
    return d == floor(d) && fabs(d) <= 9007199254740992.0;
}

static status_t parse_signed(const ProtobufCFieldDescriptor *f, const char *number, long long min, long long max,
                             long long *ret, struct err *e) {
    const char *type = max == INT32_MAX ? "a 32-bit integer" : "a 64-bit integer";
    long long value;
    double d;
    errno = 0;
    if (is_integer(number))
        value = strtoll(number, NULL, 10);
    else if (integral_double(number, &d))
        value = (long long)d;
    else
        return not_expected(f, number, strlen(number), e);
    if (errno == ERANGE || value < min || value > max)
        return out_of_range(type, number, strlen(number), e);
    *ret = value;
    return ST_OK;
}

static status_t parse_unsigned(const ProtobufCFieldDescriptor *f, const char *number, unsigned long long max,
                               unsigned long long *ret, struct err *e) {
    unsigned long long value;
    double d;
    errno = 0;
    if (is_integer(number) && *number != '-')
        value = strtoull(number, NULL, 10);
    else if (integral_double(number, &d) && d >= 0)
        value = (unsigned long long)d;
    else
        return err_set(e, ST_INVALID_ARGUMENT, "expected an integer of at least 0, found '%.40s'", number);
    if (errno == ERANGE || value > max)
        return out_of_range(f->type == PROTOBUF_C_TYPE_UINT32 ? "a 32-bit integer" : "a 64-bit integer", number,
                            strlen(number), e);
    *ret = value;
    return ST_OK;
}

/* The words of JSON and YAML for values that are not finite numbers. */
static bool special_double(const char *word, double *ret) {
    static const struct {
        const char *word;
        double value;
    } specials[] = {
        { "NaN", NAN },
        { ".nan", NAN },
        { ".NaN", NAN },
        { "Infinity", INFINITY },
        { ".inf", INFINITY },
        { "+.inf", INFINITY },
        { "-Infinity", -INFINITY },
        { "-.inf", -INFINITY },
    };
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++)
        if (strcmp(word, specials[i].word) == 0) {
            *ret = specials[i].value;
            return true;
        }
    return false;
}

static status_t parse_double(const ProtobufCFieldDescriptor *f, const char *word, double *ret, struct err *e) {
    double d;
    if (special_double(word, &d)) {
        *ret = d;
        return ST_OK;
    }
    if (!is_number(word))
        return not_expected(f, word, strlen(word), e);
    d = strtod(word, NULL);
    if (isinf(d) || (f->type == PROTOBUF_C_TYPE_FLOAT && isinf((float)d)))
        return out_of_range(f->type == PROTOBUF_C_TYPE_FLOAT ? "a float" : "a double", word, strlen(word), e);
    *ret = d;
    return ST_OK;
}

static status_t parse_number(const ProtobufCFieldDescriptor *f, const char *text, size_t n, void *at, struct err *e) {
    char word[NUMBER_TEXT];
    bool real = f->type == PROTOBUF_C_TYPE_DOUBLE || f->type == PROTOBUF_C_TYPE_FLOAT;
    if (n >= sizeof word || memchr(text, '\0', n))
        return not_expected(f, text, n, e);
    memcpy(word, text, n);
    word[n] = '\0';
    if (!real && !is_number(word))
        return not_expected(f, text, n, e);
    double d;
    long long i;
    unsigned long long u;
    switch (f->type) {
    case PROTOBUF_C_TYPE_DOUBLE: return parse_double(f, word, at, e);
    case PROTOBUF_C_TYPE_FLOAT:
        TRY(parse_double(f, word, &d, e));
        *(float *)at = (float)d;
        return ST_OK;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        TRY(parse_unsigned(f, word, UINT32_MAX, &u, e));
        *(uint32_t *)at = (uint32_t)u;
        return ST_OK;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        TRY(parse_unsigned(f, word, UINT64_MAX, &u, e));
        *(uint64_t *)at = u;
        return ST_OK;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        TRY(parse_signed(f, word, INT64_MIN, INT64_MAX, &i, e));
        *(int64_t *)at = i;
        return ST_OK;
    default:
        TRY(parse_signed(f, word, INT32_MIN, INT32_MAX, &i, e));
        *(int32_t *)at = (int32_t)i;
        return ST_OK;
    }
}

static status_t parse_bool(const ProtobufCFieldDescriptor *f, const char *text, size_t n, void *at, struct err *e) {
    bool yes = n == 4 && memcmp(text, "true", 4) == 0, no = n == 5 && memcmp(text, "false", 5) == 0;
    if (!yes && !no)
        return not_expected(f, text, n, e);
    *(protobuf_c_boolean *)at = yes;
    return ST_OK;
}

const char *enum_name(const ProtobufCFieldDescriptor *f, int value) {
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(f->descriptor, value);
    return v ? v->name : NULL;
}

static status_t parse_enum(const ProtobufCFieldDescriptor *f, const char *text, size_t n, void *at, struct err *e) {
    const ProtobufCEnumDescriptor *desc = f->descriptor;
    char names[256] = "";
    size_t used = 0;
    for (unsigned i = 0; i < desc->n_values; i++) {
        const ProtobufCEnumValue *v = &desc->values[i];
        char digits[16];
        snprintf(digits, sizeof digits, "%d", v->value);
        if ((strlen(v->name) == n && memcmp(v->name, text, n) == 0) ||
            (strlen(digits) == n && memcmp(digits, text, n) == 0)) {
            *(int *)at = v->value;
            return ST_OK;
        }
        if (v->value != 0 && used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", v->name);
    }
    char quoted[64];
    scalar_quote(text, n, quoted);
    return err_set(e, ST_INVALID_ARGUMENT, "%s is not one of: %s", quoted, names);
}

static status_t parse_string(const char *text, size_t n, void *at, struct err *e) {
    if (memchr(text, '\0', n))
        return err_set(e, ST_INVALID_ARGUMENT, "a text with a NUL character cannot be stored");
    if (!utf8_valid(text, n))
        return err_set(e, ST_INVALID_ARGUMENT, "the text is not UTF-8");
    *(char **)at = alloc_format("%.*s", (int)n, text);
    return ST_OK;
}

static const char BASE64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* The value of a base64 digit. Accepts the URL-safe alphabet too, as proto3 JSON does. */
static int base64_digit(char c) {
    c = c == '-' ? '+' : c == '_' ? '/' : c;
    const char *at = c ? strchr(BASE64, c) : NULL;
    return at ? (int)(at - BASE64) : -1;
}

static status_t parse_base64(const ProtobufCFieldDescriptor *f, const char *text, size_t n, void *at, struct err *e) {
    size_t digits = n;
    while (digits > 0 && n - digits < 2 && text[digits - 1] == '=')
        digits--;
    uint8_t *data = alloc_zeroed(digits * 3 / 4, 1);
    uint32_t group = 0;
    size_t len = 0;
    bool good = digits % 4 != 1;
    for (size_t i = 0; i < digits && good; i++) {
        int digit = base64_digit(text[i]);
        good = digit >= 0;
        group = group << 6 | (uint32_t)(digit & 63);
        if (i % 4 > 0)
            data[len++] = (uint8_t)(group >> (2 * (3 - i % 4)));
    }
    if (!good) {
        free(data);
        return not_expected(f, text, n, e);
    }
    *(ProtobufCBinaryData *)at = (ProtobufCBinaryData){ .len = len, .data = data };
    return ST_OK;
}

status_t base64_print(const uint8_t *data, size_t n, struct bytes *ret, struct err *e) {
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        uint32_t group = (uint32_t)data[i] << 16 | (left > 1 ? (uint32_t)data[i + 1] << 8 : 0) |
                         (left > 2 ? (uint32_t)data[i + 2] : 0);
        char text[4] = { BASE64[group >> 18], BASE64[group >> 12 & 63], left > 1 ? BASE64[group >> 6 & 63] : '=',
                         left > 2 ? BASE64[group & 63] : '=' };
        TRY(bytes_append(ret, text, 4, e));
    }
    return ST_OK;
}

status_t scalar_parse(const ProtobufCFieldDescriptor *f, const char *text, size_t n, void *at, struct err *e) {
    switch (f->type) {
    case PROTOBUF_C_TYPE_STRING: return parse_string(text, n, at, e);
    case PROTOBUF_C_TYPE_BYTES: return parse_base64(f, text, n, at, e);
    case PROTOBUF_C_TYPE_BOOL: return parse_bool(f, text, n, at, e);
    case PROTOBUF_C_TYPE_ENUM: return parse_enum(f, text, n, at, e);
    default: return parse_number(f, text, n, at, e);
    }
}

void codec_double_text(double value, char ret[32]) {
    if (isnan(value)) {
        snprintf(ret, 32, "NaN");
        return;
    }
    if (isinf(value)) {
        snprintf(ret, 32, value < 0 ? "-Infinity" : "Infinity");
        return;
    }
    if (value == floor(value) && fabs(value) < 1e15) { /* 2000 rather than 2e+03 */
        snprintf(ret, 32, "%.0f", value);
        return;
    }
    for (int digits = fabs(value) < DBL_MIN ? 1 : DBL_DIG; digits <= DBL_DECIMAL_DIG; digits++) {
        snprintf(ret, 32, "%.*g", digits, value);
        if (strtod(ret, NULL) == value)
            return;
    }
}
