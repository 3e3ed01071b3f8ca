#include "api/spec/file.h"

#include "api/codec/text.h"
#include "api/spec/advice.h"
#include "api/spec/sweep.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/limits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct codec_options READING = { .advice = spec_advice };

const char *spec_file_name(const char *file) { return strcmp(file, "-") == 0 ? "standard input" : file; }

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

static status_t set_change(ProtobufCMessage *spec, const char *change, struct err *e) {
    char path[256];
    const char *equals = strchr(change, '=');
    if (!equals || equals == change || (size_t)(equals - change) >= sizeof path)
        return err_set(e, ST_INVALID_ARGUMENT, "--set: '%.80s' is not of the form key.path=value", change);
    memcpy(path, change, (size_t)(equals - change));
    path[equals - change] = '\0';
    status_t st = codec_set_path(spec, path, equals + 1, &READING, e);
    return st == ST_OK ? ST_OK : err_prefix(e, st, "--set: ");
}

/* As a job spec (job true) or a sweep. */
static status_t parse_text(bool job, const struct bytes *text, ProtobufCMessage **ret, struct err *e) {
    const char *data = text->data ? text->data : "";
    if (strspn(data, " \t\r\n") == text->len)
        return err_set(e, ST_INVALID_ARGUMENT, "it is empty; %s",
                       job ? "a spec has at least a name, a model, data and train"
                           : "a sweep has at least a name, a job and parameters");
    return codec_parse(job ? &trainyard__v1__job_spec__descriptor : &trainyard__v1__sweep_spec__descriptor, data,
                       text->len, &READING, ret, e);
}

static status_t read_text(const char *file, struct bytes *ret, struct err *e) {
    bool standard = strcmp(file, "-") == 0;
    status_t st = standard ? read_stdin(ret, e) : file_read(file, ret, e);
    if (st == ST_RESOURCE_EXHAUSTED || (st == ST_OK && ret->len > LIMIT_SPEC_BYTES))
        return err_set(e, ST_INVALID_ARGUMENT, "%s: a spec has at most %d KiB, and this one has more",
                       spec_file_name(file), LIMIT_SPEC_BYTES >> 10);
    return st == ST_OK ? ST_OK : ST_INVALID_ARGUMENT;
}

status_t spec_change(Trainyard__V1__JobSpec *spec, const char *const *changes, size_t n, struct err *e) {
    for (size_t i = 0; i < n; i++)
        TRY(set_change(&spec->base, changes[i], e));
    return ST_OK;
}

static status_t file_message(const char *file, bool job, ProtobufCMessage **ret, struct err *e) {
    struct bytes text;
    ProtobufCMessage *spec = NULL;
    bytes_init(&text, LIMIT_SPEC_BYTES + 4096); /* a last read of standard input may begin at the limit */
    status_t st = read_text(file, &text, e);
    if (st == ST_OK && (st = parse_text(job, &text, &spec, e)) != ST_OK)
        st = err_prefix(e, ST_INVALID_ARGUMENT, "%s: ", spec_file_name(file)); /* also if it nests too deep */
    bytes_done(&text);
    *ret = spec;
    return st;
}

status_t spec_file_read(const char *file, Trainyard__V1__JobSpec **ret, struct err *e) {
    ProtobufCMessage *spec = NULL;
    status_t st = file_message(file, true, &spec, e);
    *ret = (Trainyard__V1__JobSpec *)spec;
    return st;
}

/* Reads the file that `job` names, which is relative to the folder of the sweep's file. */
static status_t read_job(const char *file, Trainyard__V1__SweepSpec *sweep, char ret_job_file[SWEEP_FILE_BYTES],
                         struct err *e) {
    const char *slash = strcmp(file, "-") == 0 || *sweep->job == '/' ? NULL : strrchr(file, '/');
    const int folder = slash ? (int)(slash - file) + 1 : 0;
    if (!*sweep->job)
        return ST_OK;
    if (snprintf(ret_job_file, SWEEP_FILE_BYTES, "%.*s%s", folder, file, sweep->job) >= SWEEP_FILE_BYTES)
        return err_set(e, ST_INVALID_ARGUMENT, "job: the path of the file is too long");
    sweep->spec = spec_free(sweep->spec);
    TRY(spec_file_read(ret_job_file, &sweep->spec, e));
    free(sweep->job);
    sweep->job = alloc_copy_text("");
    return ST_OK;
}

/* The job is read before the changes, which may change its fields, and again if they name another file. */
status_t sweep_file_read(const char *file, const char *const *changes, size_t n, Trainyard__V1__SweepSpec **ret,
                         char ret_job_file[SWEEP_FILE_BYTES], struct err *e) {
    ProtobufCMessage *message = NULL;
    TRY(file_message(file, false, &message, e));
    CLEANUP(sweep_freep) Trainyard__V1__SweepSpec *sweep = (Trainyard__V1__SweepSpec *)message;
    snprintf(ret_job_file, SWEEP_FILE_BYTES, "%s", file);
    TRY(read_job(file, sweep, ret_job_file, e));
    for (size_t i = 0; i < n; i++)
        TRY(set_change(&sweep->base, changes[i], e));
    TRY(read_job(file, sweep, ret_job_file, e));
    *ret = take_ptr(&sweep);
    return ST_OK;
}
