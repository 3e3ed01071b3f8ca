/* A logical line is made of physical lines that end with a backslash, as pip joins them. A comment begins with '#' at
 * the beginning of a line or after a space. A line that begins with '-' is an option; any other one is a requirement:
 * a name of PEP 508 and what may follow a name, or a path or URL, which are not examined. */
#include "api/code/requirements.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { LINE_BYTES = 4096 };

enum requirements_kind requirements_kind(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return strcmp(name, "uv.lock") == 0          ? REQUIREMENTS_UV_LOCK
           : strcmp(name, "pyproject.toml") == 0 ? REQUIREMENTS_PYPROJECT
                                                 : REQUIREMENTS_PIP;
}

/* ---- logical lines ---- */

/* One physical line without its end; false at the end of the text. */
static bool physical_next(const char **at, const char *end, const char **ret, size_t *ret_n) {
    if (*at >= end)
        return false;
    const char *newline = memchr(*at, '\n', (size_t)(end - *at));
    *ret = *at;
    *ret_n = (size_t)((newline ? newline : end) - *at);
    *at = newline ? newline + 1 : end;
    if (*ret_n && (*ret)[*ret_n - 1] == '\r')
        --*ret_n;
    return true;
}

static bool is_comment(const char *line, size_t n) {
    while (n && isspace((unsigned char)*line)) {
        line++;
        n--;
    }
    return n && *line == '#';
}

/* The joined line; *ret_first: its number. What exceeds the buffer is cut: hashes fill the lines that are so long. */
static bool logical_next(const char **at, const char *end, int *number, char line[LINE_BYTES], int *ret_first,
                         bool *ret_hashed) {
    const char *part;
    size_t part_n, n = 0;
    bool more = true, any = false;
    *ret_hashed = false;
    while (more && physical_next(at, end, &part, &part_n)) {
        ++*number;
        if (!any)
            *ret_first = *number;
        any = true;
        const bool comment = is_comment(part, part_n);
        more = !comment && part_n && part[part_n - 1] == '\\';
        part_n -= more;
        *ret_hashed |= !comment && memmem(part, part_n, "--hash", 6) != NULL;
        const size_t copy = comment ? 0 : part_n < LINE_BYTES - 1 - n ? part_n : LINE_BYTES - 1 - n;
        memcpy(line + n, part, copy);
        n += copy;
    }
    line[n] = '\0';
    return any;
}

static char *trim(char *line) {
    for (char *p = line; (p = strchr(p, '#')); p++)
        if (p == line || isspace((unsigned char)p[-1])) {
            *p = '\0';
            break;
        }
    while (isspace((unsigned char)*line))
        line++;
    size_t n = strlen(line);
    while (n && isspace((unsigned char)line[n - 1]))
        line[--n] = '\0';
    return line;
}

/* ---- options ---- */

/* The value of an option "-x VALUE", "-xVALUE", "--name VALUE" or "--name=VALUE"; NULL: it is another option. */
static const char *value_of(const char *line, const char *brief, const char *name) {
    const size_t n = strlen(name), b = strlen(brief);
    const char *value = NULL;
    if (strncmp(line, name, n) == 0 && (line[n] == '=' || isspace((unsigned char)line[n])))
        value = line + n + 1;
    else if (b && strncmp(line, brief, b) == 0 && line[1] != '-')
        value = line + b + (line[b] == '=');
    while (value && isspace((unsigned char)*value))
        value++;
    return value;
}

static bool is_url(const char *text) { return strstr(text, "://") || strncmp(text, "file:", 5) == 0; }

static status_t include_take(const char *path, struct requirements_line *ret, struct err *e) {
    const size_t n = strlen(path);
    if (n == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "line %d: names no file", ret->number);
    if (is_url(path) || strchr(path, '$'))
        return err_set(e, ST_INVALID_ARGUMENT, "line %d: includes '%.100s', which is not the path of a file",
                       ret->number, path);
    if (n >= sizeof ret->include)
        return err_set(e, ST_INVALID_ARGUMENT, "line %d: the path is too long", ret->number);
    memcpy(ret->include, path, n + 1);
    return ST_OK;
}

/* One option that names neither a file nor a folder. pip also takes several options in a line, and abbreviated
 * names. */
static bool is_harmless(const char *line) {
    static const char *const names[] = { "--no-index",    "--pre",       "--prefer-binary", "--require-hashes",
                                         "--only-binary", "--no-binary", "--trusted-host",  "--use-feature" };
    const size_t n = strcspn(line, " \t=");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == n && strncmp(line, names[i], n) == 0)
            return true;
    return false;
}

/* An option -e behind another option. */
static bool is_editable_later(const char *line) {
    for (const char *p = line; (p = strstr(p, "-e")); p++)
        if (p > line && (isspace((unsigned char)p[-1]) || strncmp(p - 1, "--ed", 4) == 0))
            return true;
    return false;
}

static bool has_more_options(const char *line) {
    for (const char *p = line + 1; *p; p++)
        if (*p == '-' && (isspace((unsigned char)p[-1]) || strchr("\"'", p[-1])))
            return true;
    return false;
}

static status_t option_take(const char *line, struct requirements_line *ret, struct err *e) {
    static const struct {
        const char *brief, *name;
    } includes[] = { { "-r", "--requirement" }, { "-c", "--constraint" } }, paths[] = { { "-f", "--find-links" },
                                                                                        { "-e", "--editable" },
                                                                                        { "-i", "--index-url" },
                                                                                        { "", "--extra-index-url" },
                                                                                        { "", "--pypi-url" } };
    static const char editable[] = "line %d: '%.80s' installs a folder that other jobs do not have: name the folder "
                                   "without -e";
    ret->local = ret->sources = has_more_options(line);
    if (ret->local && is_editable_later(line))
        return err_set(e, ST_INVALID_ARGUMENT, editable, ret->number, line);
    if (ret->local || is_harmless(line))
        return ST_OK;
    for (size_t i = 0; i < sizeof includes / sizeof *includes; i++) {
        const char *value = value_of(line, includes[i].brief, includes[i].name);
        if (value)
            return include_take(value, ret, e);
    }
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        const char *value = value_of(line, paths[i].brief, paths[i].name);
        if (value) {
            ret->local = !strstr(value, "://") || strncmp(value, "file:", 5) == 0;
            return ret->local && strcmp(paths[i].brief, "-e") == 0
                       ? err_set(e, ST_INVALID_ARGUMENT, editable, ret->number, line)
                       : ST_OK;
        }
    }
    ret->local = ret->sources = true;
    return ST_OK;
}

/* ---- requirements ---- */

static bool is_archive(const char *line) {
    static const char *const ends[] = { ".whl", ".zip", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar" };
    const size_t n = strcspn(line, " \t;");
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t m = strlen(ends[i]);
        if (n > m && strncmp(line + n - m, ends[i], m) == 0)
            return true;
    }
    return false;
}

static bool is_path(const char *line) {
    const size_t n = strcspn(line, " \t;");
    return *line == '.' || *line == '$' || memchr(line, '/', n) || memchr(line, '\\', n) || memchr(line, ':', n) ||
           is_archive(line);
}

/* A name, and what may follow it: extras, a version, a marker, a URL, or options. */
static status_t requirement_take(const char *line, struct requirements_line *ret, struct err *e) {
    if (is_path(line)) {
        ret->local = strchr("./", *line) || !strstr(line, "://") || strstr(line, "file:");
        ret->sources = ret->local && !is_archive(line);
        return ST_OK;
    }
    size_t n = 0;
    while (isalnum((unsigned char)line[n]) || (line[n] && strchr("._-", line[n])))
        n++;
    const char *rest = line + n;
    while (isspace((unsigned char)*rest))
        rest++;
    if (n == 0 || !isalnum((unsigned char)*line) || (*rest && !strchr("[(<>=!~;@-", *rest)))
        return err_set(e, ST_INVALID_ARGUMENT, "line %d: '%.80s' is not a requirement of pip", ret->number, line);
    const char *url = strstr(rest, "file:");
    ret->local = url != NULL;
    ret->sources = url && !is_archive(url);
    return ST_OK;
}

status_t requirements_next(const char **at, const char *end, int *number, struct requirements_line *ret, bool *ret_end,
                           struct err *e) {
    char buffer[LINE_BYTES];
    *ret = (struct requirements_line){ 0 };
    *ret_end = false;
    while (logical_next(at, end, number, buffer, &ret->number, &ret->hashed)) {
        const char *line = trim(buffer);
        if (*line)
            return *line == '-' ? option_take(line, ret, e) : requirement_take(line, ret, e);
    }
    *ret_end = true;
    return ST_OK;
}

/* ---- paths ---- */

bool requirements_join(const char *including, const char *include, char ret[REQUIREMENTS_PATH_BYTES]) {
    const char *slash = strrchr(including, '/');
    char joined[2 * REQUIREMENTS_PATH_BYTES];
    const bool absolute = *include == '/' || *including == '/';
    if (snprintf(joined, sizeof joined, "%.*s%s", slash && *include != '/' ? (int)(slash + 1 - including) : 0,
                 including, include) >= (int)sizeof joined)
        return false;
    size_t n = 0;
    for (const char *part = joined; *part;) {
        const size_t length = strcspn(part, "/");
        if (length == 2 && strncmp(part, "..", 2) == 0) {
            if (n == 0)
                return false;
            while (n && ret[--n] != '/')
                continue;
        } else if (length && !(length == 1 && *part == '.')) {
            if (n + length + 2 > REQUIREMENTS_PATH_BYTES)
                return false;
            if (n || absolute)
                ret[n++] = '/';
            memcpy(ret + n, part, length);
            n += length;
        }
        part += length + (part[length] == '/');
    }
    ret[n] = '\0';
    return n > 0;
}
