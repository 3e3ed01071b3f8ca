#include "executor/agent/quarantine.h"

#include "base/file.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { MAX_BYTES = 64 << 10 }; /* some 600 lines */

static status_t path_of(const char *directory, char ret[PATH_MAX], struct err *e) {
    return snprintf(ret, PATH_MAX, "%s/quarantine", directory) < PATH_MAX
               ? ST_OK
               : err_set(e, ST_INVALID_ARGUMENT, "--directory: the path is too long");
}

status_t quarantine_read(const char *directory, struct bytes *ret, struct err *e) {
    char path[PATH_MAX];
    struct err why;
    bytes_init(ret, MAX_BYTES);
    TRY(path_of(directory, path, e));
    TRY(bytes_append(ret, "", 0, e));
    status_t st = file_read(path, ret, &why);
    return st == ST_OK || st == ST_NOT_FOUND ? ST_OK : err_set(e, st, "%s", why.msg);
}

bool quarantine_find(const struct bytes *text, const char *uuid, char *ret, size_t n) {
    size_t name = strlen(uuid);
    const char *end = text->data + text->len;
    *ret = '\0';
    for (const char *line = text->data, *next; name && line < end; line = next) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        stop = stop ? stop : end;
        next = stop + 1;
        if ((size_t)(stop - line) <= name || memcmp(line, uuid, name) != 0 || line[name] != ' ')
            continue;
        snprintf(ret, n, "%.*s", (int)(stop - line - (ptrdiff_t)name - 1), line + name + 1);
        return *ret != '\0';
    }
    return false;
}

static status_t add_line(struct bytes *text, const char *uuid, const char *reason, struct err *e) {
    bool torn = text->len > 0 &&
                text->data[text->len - 1] != '\n'; /* an editor may leave the last line without a newline */
    return bytes_printf(text, e, "%s%s %s\n", torn ? "\n" : "", uuid, reason);
}

status_t quarantine_add(const char *directory, const char *uuid, const char *reason, struct err *e) {
    char path[PATH_MAX];
    struct bytes text;
    status_t st = quarantine_read(directory, &text, e);
    if (st == ST_OK)
        st = path_of(directory, path, e);
    if (st == ST_OK)
        st = add_line(&text, uuid, reason, e);
    if (st == ST_OK)
        st = file_write_atomic(path, text.data, text.len, 0644, e);
    bytes_done(&text);
    return st;
}
