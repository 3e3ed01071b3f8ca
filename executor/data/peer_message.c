#include "executor/data/peer_message.h"

#include <stdlib.h>
#include <string.h>

enum { NUMBER_DIGITS = 19 };

static bool digest_read(const char *text, size_t n, char ret[SHA256_HEX]) {
    if (n != SHA256_HEX - 1)
        return false;
    for (size_t i = 0; i < n; i++)
        if ((text[i] < '0' || text[i] > '9') && (text[i] < 'a' || text[i] > 'f'))
            return false;
    memcpy(ret, text, n);
    ret[n] = '\0';
    return true;
}

/* Decimal digits alone, and all of the text. */
static bool number_read(const char *text, size_t n, uint64_t *ret) {
    *ret = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        *ret = *ret * 10 + (uint64_t)(text[i] - '0');
    }
    return n > 0 && n <= NUMBER_DIGITS;
}

bool peer_key_read(const char *text, size_t n, char ret[SHA256_HEX]) {
    return n >= SHA256_HEX && text[SHA256_HEX - 1] == '\n' && digest_read(text, SHA256_HEX - 1, ret);
}

static bool line_read(const char *text, size_t n, struct peer_line *ret) {
    *ret = (struct peer_line){ 0 };
    if (n == 1 && *text == '-')
        return true;
    ret->coming = n > 1 && *text == '+';
    return ret->coming ? number_read(text + 1, n - 1, &ret->progress) : digest_read(text, n, ret->sha256);
}

bool peer_lines_read(const char *text, size_t bytes, size_t n, struct peer_line *ret) {
    const char *at = text, *end = text + bytes;
    for (size_t i = 0; i < n; i++) {
        const char *line_end = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
        if (!line_end || !line_read(at, (size_t)(line_end - at), &ret[i]))
            return false;
        at = line_end + 1;
    }
    return at == end;
}

bool peer_range_read(const char *value, int64_t bytes, int64_t *ret_from, int64_t *ret_n) {
    static const char UNIT[] = "bytes=";
    uint64_t from, to;
    if (strncmp(value, UNIT, sizeof UNIT - 1) != 0)
        return false;
    value += sizeof UNIT - 1;
    const char *dash = strchr(value, '-');
    if (!dash || !number_read(value, (size_t)(dash - value), &from) || !number_read(dash + 1, strlen(dash + 1), &to) ||
        from > to || to >= (uint64_t)bytes)
        return false;
    *ret_from = (int64_t)from;
    *ret_n = (int64_t)(to - from + 1);
    return true;
}
