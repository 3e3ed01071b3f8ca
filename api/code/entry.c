#include "api/code/entry.h"

#include "base/limits.h"

#include <limits.h>
#include <string.h>

enum { SHOWN = 200 }; /* bytes of a name in a sentence */

static bool part_is(const char *part, size_t n, const char *text) {
    return n == strlen(text) && memcmp(part, text, n) == 0;
}

status_t code_name_check(const char *name, struct err *e) {
    int depth = 0;
    if (strlen(name) >= PATH_MAX)
        return err_set(e, ST_INVALID_ARGUMENT, "the path '%.*s...' is too long", SHOWN, name);
    for (const char *part = name;; part++) {
        const size_t n = strcspn(part, "/");
        if (n == 0 || n > NAME_MAX || part_is(part, n, ".") || part_is(part, n, ".."))
            return err_set(e, ST_INVALID_ARGUMENT, "'%.*s' is not a relative path in normal form", SHOWN, name);
        if (++depth > LIMIT_CODE_DEPTH)
            return err_set(e, ST_INVALID_ARGUMENT, "'%.*s' is more than %d folders deep", SHOWN, name,
                           LIMIT_CODE_DEPTH);
        part += n;
        if (!*part)
            return ST_OK;
    }
}

status_t code_link_check(const char *name, const char *target, struct err *e) {
    int depth = 0;
    bool below = false; /* a part that is not ".." was seen */
    for (const char *at = name; *at; at++)
        depth += *at == '/';
    bool good = *target && *target != '/' && strlen(target) < PATH_MAX;
    for (const char *part = target; good && *part;) {
        const size_t n = strcspn(part, "/");
        if (part_is(part, n, "..")) {
            good = !below && --depth >= 0;
        } else if (n > 0 && !part_is(part, n, ".")) {
            below = true;
        }
        part += n + (part[n] == '/');
    }
    return good ? ST_OK
                : err_set(e, ST_INVALID_ARGUMENT,
                          "the link '%.*s' does not stay in the folder: it points to '%.*s', which must be relative, "
                          "with '..' only at its beginning",
                          SHOWN / 2, name, SHOWN / 2, target);
}

static int digit_of(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool code_archive_name_read(const char *text, uint8_t ret[SHA256_BYTES]) {
    if (strlen(text) != SHA256_HEX - 1)
        return false;
    for (int i = 0; i < SHA256_BYTES; i++) {
        const int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        ret[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

bool code_archive_name_good(const char *text) {
    uint8_t digest[SHA256_BYTES];
    return code_archive_name_read(text, digest);
}
