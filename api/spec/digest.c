#include "api/spec/digest.h"

#include "api/codec/message.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The text of an entry of a map: field 0 is its key, field 1 its value. */
static const char *entry_text(const ProtobufCMessage *entry, unsigned field) {
    return *(char *const *)field_value(entry, &entry->descriptor->fields[field]);
}

static int by_key(const void *a, const void *b) {
    const ProtobufCMessage *x = *(ProtobufCMessage *const *)a, *y = *(ProtobufCMessage *const *)b;
    const int order = strcmp(entry_text(x, 0), entry_text(y, 0));
    return order ? order : strcmp(entry_text(x, 1), entry_text(y, 1));
}

/* A sorted copy of the pointers to a map's entries; the caller frees it. */
static void *sort_entries(const void *entries, size_t n) {
    ProtobufCMessage **sorted = alloc_zeroed(n, sizeof *sorted);
    if (n)
        memcpy(sorted, entries, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_key);
    return sorted;
}

static void digest_packed(const Trainyard__V1__JobSpec *spec, const char *more, uint8_t ret[SHA256_BYTES]) {
    CLEANUP(freep) uint8_t *packed = alloc_zeroed(trainyard__v1__job_spec__get_packed_size(spec), 1);
    struct sha256 s;
    sha256_begin(&s);
    sha256_update(&s, packed, trainyard__v1__job_spec__pack(spec, packed));
    sha256_update(&s, "", 1);
    sha256_update(&s, more, strlen(more));
    sha256_final(&s, ret);
}

void spec_digest(const Trainyard__V1__JobSpec *spec, const char *more, uint8_t ret[SHA256_BYTES]) {
    Trainyard__V1__JobSpec sorted = *spec; /* shallow: only the order of the maps' entries is the copy's own */
    Trainyard__V1__ProgramSpec program = TRAINYARD__V1__PROGRAM_SPEC__INIT;
    CLEANUP(freep) void *labels = sort_entries(spec->labels, spec->n_labels);
    CLEANUP(freep) void *environment = NULL;
    sorted.labels = labels;
    if (spec->program) {
        program = *spec->program;
        program.environment = environment = sort_entries(program.environment, program.n_environment);
        sorted.program = &program;
    }
    digest_packed(&sorted, more, ret);
}

/* What a change of the training's course, but not of a rank's size, changes is left out. */
static Trainyard__V1__TrainSpec checked_part(const Trainyard__V1__TrainSpec *train) {
    Trainyard__V1__TrainSpec part = *train; /* shallow: fields are left out, none is changed */
    part.steps = part.seed = 0;
    part.learning_rate_schedule = NULL;
    part.optimizer = NULL; /* only its kind changes sizes */
    part.profile = NULL;
    part.inspect = NULL;
    part.eval = NULL;
    return part;
}

void spec_digest_checked(const Trainyard__V1__JobSpec *spec, const char *more, uint8_t ret[SHA256_BYTES]) {
    Trainyard__V1__JobSpec part = *spec; /* shallow, too */
    Trainyard__V1__TrainSpec train;
    Trainyard__V1__ProgramSpec program;
    Trainyard__V1__CodeSpec code = TRAINYARD__V1__CODE_SPEC__INIT;
    uint8_t digest[SHA256_BYTES];
    char kind[16] = "program\n";
    part.name = (char *)(uintptr_t)protobuf_c_empty_string;
    part.queue = (char *)(uintptr_t)protobuf_c_empty_string;
    part.n_labels = 0;
    part.priority = 0;
    part.retry = NULL;
    if (spec->program && spec->program->code) { /* a host looks for the command, not into the archive */
        program = *spec->program;
        program.code = &code;
        part.program = &program;
    }
    if (spec->train) {
        train = checked_part(spec->train);
        part.train = &train;
        snprintf(kind, sizeof kind, "%d\n", (int)spec->train->optimizer->kind_case);
    }
    digest_packed(&part, more, digest);
    struct sha256 s;
    sha256_begin(&s);
    sha256_update(&s, digest, sizeof digest);
    sha256_update(&s, kind, strlen(kind));
    sha256_final(&s, ret);
}
