/* Job specs as YAML or JSON from anybody: parsing, `--set`, resolving, and printing in both forms. What was parsed must
 * print as JSON and YAML that read back as the same message, and what resolves must resolve to itself. */
#include "api/codec/text.h"
#include "api/spec/advice.h"
#include "api/spec/spec.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const struct codec_options ADVISED = { .advice = spec_advice };

static char *json_of(const ProtobufCMessage *msg) {
    struct bytes text;
    bytes_init(&text, 64 << 20);
    assert(codec_print_json(msg, 0, &text, NULL) == ST_OK);
    return bytes_take(&text);
}

static char *yaml_of(const ProtobufCMessage *msg) {
    struct bytes text;
    bytes_init(&text, 64 << 20);
    assert(codec_print_yaml(msg, &text, NULL) == ST_OK);
    return bytes_take(&text);
}

/* Printed text may be longer than the original: every default is written out. */
static void check_reads_back(const char *text, const char *json) {
    struct codec_options wide = { .text_bytes = 64 << 20 };
    ProtobufCMessage *back = NULL;
    assert(codec_parse(&trainyard__v1__job_spec__descriptor, text, strlen(text), &wide, &back, NULL) == ST_OK);
    char *again = json_of(back);
    assert(strcmp(json, again) == 0);
    free(again);
    protobuf_c_message_free_unpacked(back, NULL);
}

static void check_resolves_to_itself(const Trainyard__V1__JobSpec *given) {
    Trainyard__V1__JobSpec *once = NULL, *twice = NULL;
    struct spec_problems problems = { 0 };
    struct err e;
    status_t st = spec_resolve(given, &once, &problems, &e);
    assert((st == ST_OK) == (problems.n == 0));
    if (st == ST_OK) {
        assert(spec_resolve(once, &twice, NULL, &e) == ST_OK);
        char *a = json_of(&once->base), *b = json_of(&twice->base);
        assert(strcmp(a, b) == 0);
        free(a);
        free(b);
    }
    spec_problems_done(&problems);
    spec_free(once);
    spec_free(twice);
}

/* The text's first line as `key.path=value`. */
static void try_set(ProtobufCMessage *msg, const uint8_t *data, size_t n) {
    char line[256];
    size_t len = 0;
    struct err e;
    for (; len < n && len < sizeof line - 1 && data[len] != '\n' && data[len] != '\0'; len++)
        line[len] = (char)data[len];
    line[len] = '\0';
    char *equals = strchr(line, '=');
    if (!equals)
        return;
    *equals = '\0';
    status_ignore(codec_set_path(msg, line, equals + 1, &ADVISED, &e));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    ProtobufCMessage *msg = NULL;
    struct err e;
    if (codec_parse(&trainyard__v1__job_spec__descriptor, (const char *)data, n, &ADVISED, &msg, &e) != ST_OK) {
        Trainyard__V1__JobSpec empty = TRAINYARD__V1__JOB_SPEC__INIT;
        uint8_t none[1];
        assert(trainyard__v1__job_spec__pack(&empty, none) == 0);
        msg = protobuf_c_message_unpack(&trainyard__v1__job_spec__descriptor, NULL, 0, none);
        try_set(msg, data, n);
    }
    char *json = json_of(msg), *yaml = yaml_of(msg);
    check_reads_back(json, json);
    check_reads_back(yaml, json);
    check_resolves_to_itself((Trainyard__V1__JobSpec *)msg);
    free(json);
    free(yaml);
    protobuf_c_message_free_unpacked(msg, NULL);
    return 0;
}
