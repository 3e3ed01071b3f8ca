#include "executor/worker/spec_read.h"

#include "api/codec/text.h"
#include "api/spec/spec.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/limits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool spec_changes_add(struct spec_changes *c, const char *change) {
    if (c->n == SPEC_CHANGES_MOST)
        return false;
    c->items[c->n++] = change;
    return true;
}

static status_t read_stdin(struct bytes *ret, struct err *e) {
    for (;;) {
        TRY(bytes_reserve(ret, 4096, e));
        ssize_t n = read(STDIN_FILENO, ret->data + ret->len, 4096);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(e, "standard input");
        if (n == 0)
            return ST_OK;
        ret->len += (size_t)n;
    }
}

static status_t parse(const char *file, ProtobufCMessage **ret, struct err *e) {
    struct bytes text;
    bytes_init(&text, LIMIT_SPEC_BYTES + 4096); /* codec_parse says by how much it is too long */
    status_t st = strcmp(file, "-") == 0 ? read_stdin(&text, e) : file_read(file, &text, e);
    if (st == ST_OK)
        st = codec_parse(&trainyard__v1__job_spec__descriptor, text.data ? text.data : "", text.len, NULL, ret, e);
    bytes_done(&text);
    return st;
}

static status_t apply(ProtobufCMessage *spec, const char *change, struct err *e) {
    CLEANUP(freep) char *path = strdup(change);
    char *equals = path ? strchr(path, '=') : NULL;
    if (!equals)
        return err_set(e, ST_INVALID_ARGUMENT, "--set %s: give KEY.PATH=VALUE", change);
    *equals = '\0';
    return codec_set_path(spec, path, equals + 1, e);
}

static status_t resolve(const ProtobufCMessage *given, Trainyard__V1__JobSpec **ret, struct err *e) {
    struct spec_problems problems = { 0 };
    status_t st = spec_resolve((const Trainyard__V1__JobSpec *)given, ret, &problems, e);
    for (size_t i = 1; i < problems.n; i++)
        fprintf(stderr, "trainyard-train: %s\n", problems.lines[i]);
    spec_problems_done(&problems);
    return st;
}

status_t spec_read(const char *file, const struct spec_changes *changes, Trainyard__V1__JobSpec **ret, struct err *e) {
    ProtobufCMessage *given = NULL;
    TRY(parse(file, &given, e));
    status_t st = ST_OK;
    for (int i = 0; i < changes->n && st == ST_OK; i++)
        st = apply(given, changes->items[i], e);
    if (st == ST_OK)
        st = resolve(given, ret, e);
    protobuf_c_message_free_unpacked(given, NULL);
    return st;
}
