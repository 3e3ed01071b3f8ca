/* A child of the builder's user reads the files: a job may name any path, and only what that user may read can be
 * required. The child writes one line about the files, "ok DIGEST HASHED LOCAL SOURCES", "spec SENTENCE" or
 * "host SENTENCE", and becomes the interpreter, which writes its path, version and platform. */
#include "executor/environment/key.h"

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    FILES_MAX = 64,
    FILE_MAX_BYTES = 16 << 20,
    OUTPUT_BYTES = 16 << 10,
    READ_MS = 60 * 1000,
};

/* Changes when environments are built in another way. */
#define KEY_FORMAT "trainyard environment 2"

/* -I: neither the user's packages nor variables. */
static const char python_facts[] =
    "import os, sys; print(os.path.realpath(sys.executable)); print(sys.version.replace('\\n', ' ')); "
    "print(sys.platform, os.uname().machine, os.confstr('CS_GNU_LIBC_VERSION'))";

struct files {
    const Trainyard__V1__EnvironmentBuild *order;
    char names[FILES_MAX][REQUIREMENTS_PATH_BYTES]; /* relative to the code, or absolute */
    size_t n;
    struct sha256 digest;
    bool hashed, local, sources;
};

static status_t files_add(struct files *f, const char *name, struct err *e) {
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->names[i], name) == 0)
            return ST_OK;
    if (f->n == FILES_MAX || strlen(name) >= sizeof f->names[0])
        return err_set(e, ST_INVALID_ARGUMENT, "includes more than %d files, or a path that is too long", FILES_MAX);
    snprintf(f->names[f->n++], sizeof f->names[0], "%s", name);
    return ST_OK;
}

static status_t path_of(const struct files *f, const char *name, char ret[PATH_MAX], struct err *e) {
    const bool in_code = *f->order->code && *name != '/';
    if (snprintf(ret, PATH_MAX, "%s%s%s", in_code ? f->order->code : "", in_code ? "/" : "", name) >= PATH_MAX)
        return err_set(e, ST_INVALID_ARGUMENT, "the path is too long");
    return ST_OK;
}

static status_t includes_add(struct files *f, const char *name, const struct bytes *text, struct err *e) {
    const char *at = text->data ? text->data : "", *end = at + text->len;
    struct requirements_line line;
    char joined[REQUIREMENTS_PATH_BYTES];
    bool over = false;
    int number = 0;
    while (!over) {
        TRY(requirements_next(&at, end, &number, &line, &over, e));
        f->hashed |= line.hashed;
        f->local |= line.local;
        f->sources |= line.sources;
        if (!*line.include)
            continue;
        if (*f->order->code && *line.include == '/')
            return err_set(e, ST_INVALID_ARGUMENT, "line %d: includes '%.100s', which is not in the code", line.number,
                           line.include);
        if (!requirements_join(name, line.include, joined))
            return err_set(e, ST_INVALID_ARGUMENT, "line %d: includes '%.100s', which is outside of the folder",
                           line.number, line.include);
        TRY(files_add(f, joined, e));
    }
    return ST_OK;
}

static status_t file_take(struct files *f, const char *name, struct err *e) {
    char path[PATH_MAX];
    struct bytes text;
    TRY(path_of(f, name, path, e));
    bytes_init(&text, FILE_MAX_BYTES);
    status_t st = file_read(path, &text, e);
    if (st == ST_OK) {
        const uint64_t n = text.len;
        sha256_update(&f->digest, name, strlen(name) + 1);
        sha256_update(&f->digest, &n, sizeof n);
        if (n)
            sha256_update(&f->digest, text.data, n);
        if (requirements_kind(f->names[0]) == REQUIREMENTS_PIP) {
            struct err why;
            st = includes_add(f, name, &text, &why);
            if (st != ST_OK)
                st = err_set(e, st, "%.200s: %s", name, why.msg);
        }
    }
    bytes_done(&text);
    return st;
}

/* A lock says nothing without the project that it was made for, and uv reads its settings beside it. A lock also names
 * folders, and uv reads settings above it: all files of the code count. */
static status_t project_add(struct files *f, struct err *e) {
    char joined[REQUIREMENTS_PATH_BYTES], path[PATH_MAX];
    const bool uv = requirements_kind(f->names[0]) == REQUIREMENTS_UV_LOCK;
    if (uv && requirements_join(f->names[0], "pyproject.toml", joined))
        TRY(files_add(f, joined, e));
    if (uv && requirements_join(f->names[0], "uv.toml", joined)) {
        TRY(path_of(f, joined, path, e));
        if (access(path, F_OK) == 0)
            TRY(files_add(f, joined, e));
    }
    f->local |= uv || f->order->python->project;
    f->sources |= uv || f->order->python->project;
    return ST_OK;
}

static status_t files_read(struct files *f, char ret[SHA256_HEX], struct err *e) {
    uint8_t digest[SHA256_BYTES];
    sha256_begin(&f->digest);
    TRY(files_add(f, f->order->python->requirements, e));
    TRY(project_add(f, e));
    for (size_t i = 0; i < f->n; i++)
        TRY(file_take(f, f->names[i], e));
    if (f->local)
        sha256_update(&f->digest, f->order->archive, strlen(f->order->archive) + 1);
    sha256_final(&f->digest, digest);
    sha256_hex(digest, ret);
    return ST_OK;
}

/* The code is the same on every host, a path of the host is not. */
static bool child_read(void *ctx) {
    struct files *f = ctx;
    char digest[SHA256_HEX];
    struct err why = { "" };
    const status_t st = files_read(f, digest, &why);
    if (st == ST_OK)
        printf("ok %s %d %d %d\n", digest, f->hashed, f->local, f->sources);
    else
        printf("%s %s\n", st == ST_INVALID_ARGUMENT || (*f->order->code && st == ST_NOT_FOUND) ? "spec" : "host",
               why.msg);
    return st == ST_OK;
}

/* ---- in the parent ---- */

struct reply {
    char text[OUTPUT_BYTES];
    size_t n;
};

static void on_output(void *ctx, const char *data, size_t n) {
    struct reply *r = ctx;
    const size_t space = sizeof r->text - 1 - r->n;
    memcpy(r->text + r->n, data, n < space ? n : space);
    r->n += n < space ? n : space;
    r->text[r->n] = '\0';
}

static void variables_update(struct sha256 *s, const Trainyard__V1__EnvironmentBuild *order) {
    for (size_t i = 0; i < order->n_variables; i++)
        if (strncmp(order->variables[i], "PIP_", 4) == 0 || strncmp(order->variables[i], "UV_", 3) == 0)
            sha256_update(s, order->variables[i], strlen(order->variables[i]) + 1);
}

static void id_make(const Trainyard__V1__EnvironmentBuild *order, const char *facts, char ret[KEY_BYTES]) {
    struct sha256 s;
    uint8_t digest[SHA256_BYTES];
    char hex[SHA256_HEX];
    sha256_begin(&s);
    sha256_update(&s, KEY_FORMAT, sizeof KEY_FORMAT);
    sha256_update(&s, facts, strlen(facts) + 1);
    sha256_update(&s, order->python->project ? "project" : "", order->python->project ? 7 : 0);
    variables_update(&s, order);
    sha256_final(&s, digest);
    sha256_hex(digest, hex);
    snprintf(ret, KEY_BYTES, "%.32s", hex);
}

static status_t reply_take(const Trainyard__V1__EnvironmentBuild *order, char *reply, struct environment_key *ret,
                           bool *ret_refused, struct err *e) {
    char *line_end = strchr(reply, '\n'), *python = line_end ? line_end + 1 : reply;
    char *python_end = strchr(python, '\n');
    if (line_end && strncmp(reply, "ok ", 3) != 0) {
        const bool known = strncmp(reply, "spec ", 5) == 0 || strncmp(reply, "host ", 5) == 0;
        *line_end = '\0';
        *ret_refused = strncmp(reply, "spec ", 5) == 0;
        return err_set(e, ST_FAILED_PRECONDITION, "requirements: %.400s", reply + (known ? 5 : 0));
    }
    if (!line_end || !python_end || *python != '/' || python_end - python >= PATH_MAX) {
        python[strcspn(python, "\n")] = '\0';
        return err_set(e, ST_FAILED_PRECONDITION, "the host's Python does not start: %.300s", python);
    }
    ret->hashed = line_end[-5] == '1';
    ret->local = line_end[-3] == '1';
    ret->sources = line_end[-1] == '1';
    id_make(order, reply, ret->id);
    snprintf(ret->python, sizeof ret->python, "%.*s", (int)(python_end - python), python);
    return ST_OK;
}

status_t environment_key_find(const struct builder *b, const Trainyard__V1__EnvironmentBuild *order,
                              struct environment_key *ret, bool *ret_refused, struct err *e) {
    static struct files files;
    static struct reply reply;
    char interpreter[32];
    int status = 0;
    snprintf(interpreter, sizeof interpreter, "python%s", order->python->version ? order->python->version : "3");
    const char *const argv[] = { interpreter, "-I", "-S", "-c", python_facts, NULL };
    const struct builder_order run = { .directory = "/",
                                       .before = child_read,
                                       .ctx = &files,
                                       .argv = argv,
                                       .until = deadline_in(READ_MS),
                                       .output = on_output,
                                       .owner = &reply };
    files.order = order;
    *ret = (struct environment_key){ .kind = requirements_kind(order->python->requirements) };
    *ret_refused = false;
    TRY(path_of(&files, order->python->requirements, ret->file, e));
    TRY(builder_run(b, &run, &status, e));
    return reply_take(order, reply.text, ret, ret_refused, e);
}
