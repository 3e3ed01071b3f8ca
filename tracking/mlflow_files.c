#include "tracking/mlflow_files.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The rest of the line behind "KEY:" and its spaces; NULL: the text has no such key. */
static const char *value_find(const char *text, const char *key) {
    const size_t n = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, n) == 0 && line[n] == ':')
            return line + n + 1 + strspn(line + n + 1, " ");
    }
    return NULL;
}

/* The escapes of double quotes that stand for one byte; others stay as they are. */
static char escaped(char c) {
    switch (c) {
    case 'n': return '\n';
    case 't': return '\t';
    case 'r': return '\r';
    default: return c;
    }
}

bool mlflow_meta_value(const char *text, const char *key, char *ret, size_t capacity) {
    const char *at = value_find(text, key);
    size_t n = 0;
    if (!at)
        return false;
    const char quote = *at == '"' || *at == '\'' ? *at++ : '\0';
    for (; *at && *at != '\n' && n + 1 < capacity; at++) {
        if (quote && *at == quote && !(quote == '\'' && at[1] == quote))
            break;
        const bool escape = quote == '"' && *at == '\\' && at[1] && at[1] != '\n';
        if (escape || (quote == '\'' && *at == quote)) /* two single quotes stand for one */
            at++;
        ret[n++] = escape ? escaped(*at) : *at;
    }
    while (!quote && n > 0 && isspace((unsigned char)ret[n - 1]))
        n--;
    ret[n] = '\0';
    return quote || (n > 0 && strcmp(ret, "null") != 0 && strcmp(ret, "~") != 0);
}

static bool integer(const char **at, int64_t *ret) {
    char *end;
    errno = 0;
    *ret = strtoll(*at, &end, 10);
    const bool good = end > *at && errno == 0 && (*end == ' ' || *end == '\0');
    *at = end;
    return good;
}

bool mlflow_metric_line(const char *line, struct mlflow_point *ret) {
    char *end;
    ret->step = 0;
    if (!integer(&line, &ret->time_ms) || *line != ' ')
        return false;
    ret->value = strtod(++line, &end);
    if (end == line || (*end != ' ' && *end != '\0'))
        return false;
    line = end;
    return *line == '\0' || (line++, integer(&line, &ret->step));
}
