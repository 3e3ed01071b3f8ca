/* A pattern is split into its parts at slashes when it is read. A path is compared part by part: fnmatch(3) compares a
 * part of the pattern with a part of the path, and ** matches any number of parts. matches() keeps one row of a table,
 * reached[j]: whether the parts of the pattern so far match the first j parts of the path. The time of a comparison is
 * therefore at most the product of the two lengths, for every pattern.
 *
 * ignore_matches asks for each folder on the way to the path, from the top: the last rule that matches decides, and if
 * a folder is left out, everything in it is. */
#include "cli/code/ignore.h"

#include "base/alloc.h"
#include "base/limits.h"

#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rule {
    bool negative, folders_only;
    int n;
    char *parts[IGNORE_PARTS];
};

struct ignore {
    struct rule *rules;
    size_t n;
};

struct ignore *ignore_free(struct ignore *ig) {
    for (size_t i = 0; ig && i < ig->n; i++)
        for (int k = 0; k < ig->rules[i].n; k++)
            free(ig->rules[i].parts[k]);
    if (ig)
        free(ig->rules);
    free(ig);
    return NULL;
}

/* ---- reading ---- */

static status_t part_add(struct rule *r, const char *text, size_t n, struct err *e) {
    if (r->n == IGNORE_PARTS)
        return err_set(e, ST_INVALID_ARGUMENT, IGNORE_FILE ": a pattern has more than %d parts", IGNORE_PARTS - 1);
    r->parts[r->n++] = alloc_format("%.*s", (int)n, text);
    return ST_OK;
}

/* A pattern without a slash before its end matches at any depth, as if it began with two stars and a slash. */
static status_t rule_read(const char *line, size_t n, struct rule *r, struct err *e) {
    r->negative = n && *line == '!';
    line += r->negative;
    n -= r->negative;
    r->folders_only = n && line[n - 1] == '/';
    n -= r->folders_only;
    const bool anchored = memchr(line, '/', n) != NULL;
    if (n && *line == '/') {
        line++;
        n--;
    }
    if (!anchored)
        TRY(part_add(r, "**", 2, e));
    for (size_t at = 0; at < n;) {
        const char *slash = memchr(line + at, '/', n - at);
        const size_t length = slash ? (size_t)(slash - line) - at : n - at;
        if (length)
            TRY(part_add(r, line + at, length, e));
        at += length + 1;
    }
    return ST_OK;
}

/* The line without spaces at its end, unless a backslash is before them. */
static size_t line_length(const char *line, size_t n) {
    if (n && line[n - 1] == '\r')
        n--;
    while (n && line[n - 1] == ' ' && !(n > 1 && line[n - 2] == '\\'))
        n--;
    return n;
}

status_t ignore_new(const char *text, struct ignore **ret, struct err *e) {
    CLEANUP(ignore_freep) struct ignore *ig = alloc_zeroed(1, sizeof *ig);
    for (const char *line = text ? text : ""; *line;) {
        const size_t whole = strcspn(line, "\n"), n = line_length(line, whole);
        if (n && *line != '#') {
            if (ig->n == IGNORE_RULES)
                return err_set(e, ST_INVALID_ARGUMENT, IGNORE_FILE ": more than %d patterns", IGNORE_RULES);
            ig->rules = alloc_grow(ig->rules, ig->n, sizeof *ig->rules);
            ig->rules[ig->n] = (struct rule){ 0 };
            TRY(rule_read(line, n, &ig->rules[ig->n++], e));
        }
        line += whole + (line[whole] == '\n');
    }
    *ret = take_ptr(&ig);
    return ST_OK;
}

/* ---- comparing ---- */

/* parts: [m] of the path. A pattern that ends with ** matches what is in a folder, and not the folder. */
static bool matches(const struct rule *r, char *const *parts, int m) {
    bool reached[LIMIT_CODE_DEPTH + 1] = { true };
    for (int i = 0; i < r->n; i++) {
        const bool any = strcmp(r->parts[i], "**") == 0;
        bool next[LIMIT_CODE_DEPTH + 1] = { false };
        for (int j = 0; j <= m; j++) {
            if (any && reached[j])
                for (int k = j + (i == r->n - 1); k <= m; k++)
                    next[k] = true;
            else if (!any && j < m && reached[j] && fnmatch(r->parts[i], parts[j], 0) == 0)
                next[j + 1] = true;
        }
        memcpy(reached, next, sizeof reached);
    }
    return r->n > 0 && reached[m];
}

static bool left_out(const struct ignore *ig, char *const *parts, int m, bool is_folder) {
    for (size_t i = ig->n; i-- > 0;)
        if ((is_folder || !ig->rules[i].folders_only) && matches(&ig->rules[i], parts, m))
            return !ig->rules[i].negative;
    return false;
}

bool ignore_matches(const struct ignore *ig, const char *path, bool is_folder) {
    char text[PATH_MAX], *parts[LIMIT_CODE_DEPTH], *rest = NULL;
    int n = 0;
    if (ig->n == 0)
        return false;
    snprintf(text, sizeof text, "%s", path);
    for (char *part = strtok_r(text, "/", &rest); part && n < LIMIT_CODE_DEPTH; part = strtok_r(NULL, "/", &rest))
        parts[n++] = part;
    for (int m = 1; m <= n; m++)
        if (left_out(ig, parts, m, m < n || is_folder))
            return true;
    return false;
}
