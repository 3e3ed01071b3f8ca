#include "base/control_group.h"

#include "base/bytes.h"
#include "base/file.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { MAX_FILE = 1 << 16 };

/* The path in the line "0::/PATH" of cgroup v2; "" if there is no such line. */
static void group_find(const char *membership, char *ret, size_t n) {
    struct bytes text;
    bytes_init(&text, MAX_FILE);
    *ret = '\0';
    if (file_read(membership, &text, NULL) == ST_OK && bytes_append(&text, "", 1, NULL) == ST_OK)
        for (const char *line = text.data; line; line = strchr(line, '\n')) {
            line += *line == '\n';
            if (strncmp(line, "0::", 3) == 0)
                snprintf(ret, n, "%.*s", (int)strcspn(line + 3, "\n"), line + 3);
        }
    bytes_done(&text);
}

static int64_t limit_read(const char *path, control_group_limit_fn *limit) {
    struct bytes text;
    int64_t n = 0;
    bytes_init(&text, MAX_FILE);
    if (file_read(path, &text, NULL) == ST_OK && text.len > 0 && bytes_append(&text, "", 1, NULL) == ST_OK)
        n = limit(text.data);
    bytes_done(&text);
    return n;
}

/* A limit of any parent group applies too, so that all groups up to the root are read. */
int64_t control_group_min(const char *membership, const char *root, const char *file, control_group_limit_fn *limit) {
    char group[PATH_MAX], path[2 * PATH_MAX];
    int64_t min = 0;
    group_find(membership, group, sizeof group);
    for (;;) {
        snprintf(path, sizeof path, "%s%s/%s", root, group, file);
        const int64_t n = limit_read(path, limit);
        if (n > 0 && (min == 0 || n < min))
            min = n;
        char *last = strrchr(group, '/');
        if (!last)
            return min;
        *last = '\0'; /* the parent group; "" is the root */
    }
}
