#include "base/utf8.h"

#include <string.h>

uint32_t utf8_next(const char *s, size_t n, size_t *ret_len) {
    /* The smallest code of each length: a smaller code in a longer sequence is not valid UTF-8. */
    static const uint32_t min[] = { 0, 0, 0x80, 0x800, 0x10000 };
    uint8_t first = (uint8_t)s[0];
    size_t len = first < 0x80 ? 1 : (first >> 5) == 6 ? 2 : (first >> 4) == 14 ? 3 : (first >> 3) == 30 ? 4 : 0;
    *ret_len = 0;
    if (len == 0 || len > n)
        return 0;
    uint32_t code = len == 1 ? first : first & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if (((uint8_t)s[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | ((uint8_t)s[i] & 0x3f);
    }
    if (code < min[len] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return 0;
    *ret_len = len;
    return code;
}

bool utf8_valid(const char *s, size_t n) {
    for (size_t len; n; s += len, n -= len) {
        utf8_next(s, n, &len);
        if (len == 0)
            return false;
    }
    return true;
}

void utf8_printable(const char *s, size_t n, const char *keep, char *ret) {
    for (size_t len; n; s += len, ret += len, n -= len) {
        uint32_t code = utf8_next(s, n, &len);
        bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
        bool shown = len && (!control || (code && code < 0x80 && strchr(keep, (int)code)));
        len = len ? len : 1;
        if (shown)
            memmove(ret, s, len);
        else
            memset(ret, '?', len);
    }
}

size_t utf8_open(const char *s, size_t n) {
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        uint8_t first = (uint8_t)s[n - back];
        if (first >= 0xc0)
            return back < (first < 0xe0 ? 2u : first < 0xf0 ? 3u : 4u) ? back : 0;
    }
    return 0;
}

size_t utf8_put(uint32_t code, char ret[4]) {
    size_t len = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const uint8_t lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    for (size_t i = len; i-- > 1; code >>= 6)
        ret[i] = (char)(0x80 | (code & 0x3f));
    ret[0] = (char)(lead[len] | code);
    return len;
}

void utf8_copy_printable(const char *text, char *ret, size_t bytes) {
    size_t n = strnlen(text, bytes - 1);
    n -= utf8_open(text, n);
    utf8_printable(text, n, "", ret);
    ret[n] = '\0';
}
