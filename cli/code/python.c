#include "cli/code/python.h"

#include "api/code/requirements.h"
#include "base/bytes.h"
#include "base/file.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { FILES_MAX = 64, FILE_MAX_BYTES = 16 << 20 };

struct files {
    char names[FILES_MAX][REQUIREMENTS_PATH_BYTES];
    size_t n;
};

static status_t add(struct files *f, const char *name, struct err *e) {
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->names[i], name) == 0)
            return ST_OK;
    if (f->n == FILES_MAX || strlen(name) >= sizeof f->names[0])
        return err_set(e, ST_INVALID_ARGUMENT, "it includes more than %d files, or a path that is too long", FILES_MAX);
    snprintf(f->names[f->n++], sizeof f->names[0], "%s", name);
    return ST_OK;
}

static status_t lines_check(struct files *f, const char *name, const struct bytes *text, struct err *e) {
    const char *at = text->data ? text->data : "", *end = at + text->len;
    struct requirements_line line;
    char joined[REQUIREMENTS_PATH_BYTES];
    bool over = false;
    int number = 0;
    while (!over) {
        TRY(requirements_next(&at, end, &number, &line, &over, e));
        if (!*line.include)
            continue;
        if (*line.include == '/' || !requirements_join(name, line.include, joined))
            return err_set(e, ST_INVALID_ARGUMENT, "line %d: includes '%.100s', which is outside of the folder",
                           line.number, line.include);
        TRY(add(f, joined, e));
    }
    return ST_OK;
}

static status_t file_check(struct files *f, const char *name, const char *folder, const struct code_list *list,
                           struct err *e) {
    char path[PATH_MAX];
    struct bytes text;
    if (!code_list_find(list, name))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "is not among the %zu files of '%.120s' that were packed (files that git or .trainyardignore "
                       "ignores are not)",
                       list->n, folder);
    if (requirements_kind(f->names[0]) != REQUIREMENTS_PIP)
        return ST_OK;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return err_set(e, ST_INVALID_ARGUMENT, "the path is too long");
    bytes_init(&text, FILE_MAX_BYTES);
    status_t st = file_read(path, &text, e);
    if (st == ST_OK)
        st = lines_check(f, name, &text, e);
    bytes_done(&text);
    return st;
}

status_t code_python_check(const Trainyard__V1__PythonSpec *python, const char *folder, const struct code_list *list,
                           struct err *e) {
    static struct files f; /* one thread (cli/command.h) */
    char lock_of[REQUIREMENTS_PATH_BYTES];
    f.n = 0;
    TRY(add(&f, python->requirements ? python->requirements : "", e));
    if (requirements_kind(f.names[0]) == REQUIREMENTS_UV_LOCK &&
        requirements_join(f.names[0], "pyproject.toml", lock_of))
        TRY(add(&f, lock_of, e));
    for (size_t i = 0; i < f.n; i++) {
        struct err why;
        if (file_check(&f, f.names[i], folder, list, &why) != ST_OK)
            return err_set(e, ST_INVALID_ARGUMENT, "program.python.requirements: '%.100s': %s", f.names[i], why.msg);
    }
    return ST_OK;
}
