/* Specs as text, for the tests of api/spec. */
#ifndef TESTS_UNIT_SPEC_TEXT_H
#define TESTS_UNIT_SPEC_TEXT_H

#include "api/codec/text.h"
#include "api/spec/spec.h"
#include "base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A file of tests/unit/specs. */
static inline void read_table(const char *name, struct bytes *ret) {
    char path[512];
    struct err e = { "" };
    const char *source = getenv("TRAINYARD_SOURCE");
    snprintf(path, sizeof path, "%s/tests/unit/specs/%s", source ? source : ".", name);
    bytes_init(ret, 1 << 20);
    if (file_read(path, ret, &e) != ST_OK)
        fail_msg("%s", e.msg);
}

static inline Trainyard__V1__JobSpec *parse(const char *text) {
    ProtobufCMessage *msg = NULL;
    struct err e = { "" };
    if (codec_parse(&trainyard__v1__job_spec__descriptor, text, strlen(text), NULL, &msg, &e) != ST_OK)
        fail_msg("%s: %s", text, e.msg);
    return (Trainyard__V1__JobSpec *)msg;
}

static inline Trainyard__V1__JobSpec *resolve(const char *text) {
    Trainyard__V1__JobSpec *given = parse(text), *spec = NULL;
    struct err e = { "" };
    if (spec_resolve(given, &spec, NULL, &e) != ST_OK)
        fail_msg("refused: %s", e.msg);
    spec_free(given);
    return spec;
}

#endif
