#include "api/spec/file.h"

#include "api/codec/text.h"
#include "api/spec/advice.h"
#include "base/file.h"
#include "base/limits.h"

#include <errno.h>
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

static status_t parse_text(const struct bytes *text, ProtobufCMessage **ret, struct err *e) {
    const char *data = text->data ? text->data : "";
    if (strspn(data, " \t\r\n") == text->len)
        return err_set(e, ST_INVALID_ARGUMENT, "it is empty; a spec has at least a name, a model, data and train");
    return codec_parse(&trainyard__v1__job_spec__descriptor, data, text->len, &READING, ret, e);
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

status_t spec_file_read(const char *file, Trainyard__V1__JobSpec **ret, struct err *e) {
    struct bytes text;
    ProtobufCMessage *spec = NULL;
    bytes_init(&text, LIMIT_SPEC_BYTES + 4096); /* a last read of standard input may begin at the limit */
    status_t st = read_text(file, &text, e);
    if (st == ST_OK && (st = parse_text(&text, &spec, e)) != ST_OK)
        st = err_prefix(e, ST_INVALID_ARGUMENT, "%s: ", spec_file_name(file)); /* also if it nests too deep */
    bytes_done(&text);
    *ret = (Trainyard__V1__JobSpec *)spec;
    return st;
}
