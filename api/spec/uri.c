#include "api/spec/spec.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int hex_digit(char c) { return isdigit((unsigned char)c) ? c - '0' : tolower((unsigned char)c) - 'a' + 10; }

/* Decodes %XX; false for half an escape or a text of cap bytes or more. */
static bool decode(const char *from, char *ret, size_t cap) {
    size_t n = 0;
    for (; *from; from++) {
        char c = *from;
        if (c == '%') {
            if (!isxdigit((unsigned char)from[1]) || !isxdigit((unsigned char)from[2]))
                return false;
            c = (char)(hex_digit(from[1]) << 4 | hex_digit(from[2]));
            if (c == '\0')
                c = '\1'; /* refused as a control character */
            from += 2;
        }
        if (n + 1 >= cap)
            return false;
        ret[n++] = c;
    }
    ret[n] = '\0';
    return true;
}

/* "/a/b": no empty part, no "." or "..", no slash at the end. */
static bool is_normal(const char *path) {
    while (*path == '/') {
        size_t n = strcspn(++path, "/");
        if (n == 0 || (n == 1 && path[0] == '.') || (n == 2 && path[0] == '.' && path[1] == '.'))
            return false;
        path += n;
    }
    return *path == '\0';
}

static bool has_control(const char *s) {
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            return true;
    return false;
}

static status_t check_path(const char *uri, const char *path, struct err *e) {
    if (has_control(path))
        return err_set(e, ST_INVALID_ARGUMENT, "the path has a control character");
    if (!is_normal(path))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "'%.120s' is not in normal form: no '.', '..', empty part or slash at the end", uri);
    return ST_OK;
}

status_t spec_uri_path(const char *uri, char *ret, size_t cap, struct err *e) {
    static const char scheme[] = "file://";
    if (strncmp(uri, scheme, sizeof scheme - 1) != 0 || uri[sizeof scheme - 1] != '/')
        return err_set(e, ST_INVALID_ARGUMENT, "'%.120s' is not a URI of the form file:///absolute/path",
                       has_control(uri) ? "..." : uri);
    if (strpbrk(uri, "?#"))
        return err_set(e, ST_INVALID_ARGUMENT, "'%.120s' has a query or fragment; write ? as %%3F and # as %%23", uri);
    CLEANUP(freep) char *path = alloc_zeroed(cap, 1);
    if (!decode(uri + sizeof scheme - 1, path, cap))
        return err_set(e, ST_INVALID_ARGUMENT, "'%.120s' is too long or has an incomplete %%XX", uri);
    TRY(check_path(uri, path, e));
    strcpy(ret, path);
    return ST_OK;
}
