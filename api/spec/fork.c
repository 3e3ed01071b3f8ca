#include "api/spec/fork.h"

#include "api/codec/message.h"
#include "api/codec/text.h"
#include "api/spec/problems.h"
#include "api/spec/spec.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 128, VALUE_BYTES = 96 };

struct comparison {
    struct spec_problems *problems;
    int64_t job;
    const char *part; /* "model" or "data" */
};

static void add_difference(const struct comparison *c, const char *path, const char *ours, const char *theirs) {
    problem_add(c->problems, "%s: %s, but job %" PRId64 " has %s: a fork keeps the %s of its origin", path, ours,
                c->job, theirs, c->part);
}

/* One value of a field that is not a message. */
static void print_value(const ProtobufCFieldDescriptor *f, const void *at, char ret[VALUE_BYTES]) {
    switch (f->type) {
    case PROTOBUF_C_TYPE_STRING: snprintf(ret, VALUE_BYTES, "'%.80s'", *(char *const *)at); break;
    case PROTOBUF_C_TYPE_DOUBLE: codec_double_text(*(const double *)at, ret); break;
    case PROTOBUF_C_TYPE_INT64: snprintf(ret, VALUE_BYTES, "%" PRId64, *(const int64_t *)at); break;
    case PROTOBUF_C_TYPE_BOOL:
        snprintf(ret, VALUE_BYTES, "%s", *(const protobuf_c_boolean *)at ? "true" : "false");
        break;
    default: snprintf(ret, VALUE_BYTES, "%" PRId32, *(const int32_t *)at); break;
    }
}

static bool same_value(const ProtobufCFieldDescriptor *f, const void *a, const void *b) {
    if (f->type == PROTOBUF_C_TYPE_STRING)
        return strcmp(*(char *const *)a, *(char *const *)b) == 0;
    return memcmp(a, b, field_element_bytes(f)) == 0;
}

static void compare_value(const struct comparison *c, const ProtobufCFieldDescriptor *f, const char *path,
                          const void *ours, const void *theirs) {
    char mine[VALUE_BYTES], other[VALUE_BYTES];
    if (same_value(f, ours, theirs))
        return;
    print_value(f, ours, mine);
    print_value(f, theirs, other);
    add_difference(c, path, mine, other);
}

static void compare_messages(const struct comparison *c, const char *path, const ProtobufCMessage *ours,
                             const ProtobufCMessage *theirs);

/* Entries of a map, which is sorted by its keys. */
static void compare_entries(const struct comparison *c, const char *path, const ProtobufCMessage *ours,
                            const ProtobufCMessage *theirs) {
    const ProtobufCFieldDescriptor *key = &ours->descriptor->fields[0], *value = &ours->descriptor->fields[1];
    const char *mine = *(char *const *)field_value(ours, key), *other = *(char *const *)field_value(theirs, key);
    const void *a = field_value(ours, value), *b = field_value(theirs, value);
    char element[PATH_BYTES + 64];
    if (strcmp(mine, other) != 0) {
        add_difference(c, path, mine, other);
        return;
    }
    snprintf(element, sizeof element, "%s.%.60s", path, mine);
    if (value->type == PROTOBUF_C_TYPE_MESSAGE)
        compare_messages(c, element, *(ProtobufCMessage *const *)a, *(ProtobufCMessage *const *)b);
    else
        compare_value(c, value, element, a, b);
}

static void compare_element(const struct comparison *c, const ProtobufCFieldDescriptor *f, const char *path, size_t i,
                            const void *ours, const void *theirs) {
    char element[PATH_BYTES + 24];
    snprintf(element, sizeof element, "%s[%zu]", path, i);
    if (field_is_map(f))
        compare_entries(c, path, *(ProtobufCMessage *const *)ours, *(ProtobufCMessage *const *)theirs);
    else if (f->type == PROTOBUF_C_TYPE_MESSAGE)
        compare_messages(c, element, *(ProtobufCMessage *const *)ours, *(ProtobufCMessage *const *)theirs);
    else
        compare_value(c, f, element, ours, theirs);
}

static void compare_list(const struct comparison *c, const ProtobufCFieldDescriptor *f, const char *path,
                         const ProtobufCMessage *ours, const ProtobufCMessage *theirs) {
    size_t n, m, bytes = field_element_bytes(f);
    const char *a = field_elements(ours, f, &n), *b = field_elements(theirs, f, &m);
    if (n != m) {
        char mine[VALUE_BYTES], other[VALUE_BYTES];
        snprintf(mine, sizeof mine, "%zu value%s", n, n == 1 ? "" : "s");
        snprintf(other, sizeof other, "%zu", m);
        add_difference(c, path, mine, other);
        return;
    }
    for (size_t i = 0; i < n; i++)
        compare_element(c, f, path, i, a + i * bytes, b + i * bytes);
}

/* In a oneof the member that is set in the fork is compared. */
static void compare_presence(const struct comparison *c, const ProtobufCFieldDescriptor *f, const char *path,
                             const char *whole, const ProtobufCMessage *ours, const ProtobufCMessage *theirs) {
    const bool choice = field_is_oneof(f) && oneof_case(ours, f) && oneof_case(theirs, f);
    const ProtobufCFieldDescriptor *other = choice ? protobuf_c_message_descriptor_get_field(ours->descriptor,
                                                                                             oneof_case(theirs, f))
                                                   : NULL;
    if (other && field_is_set(ours, f))
        add_difference(c, whole, f->name, other->name);
    else if (!other)
        add_difference(c, path, field_is_set(ours, f) ? "is given" : "is not given",
                       field_is_set(theirs, f) ? "a value" : "none");
}

static void compare_field(const struct comparison *c, const ProtobufCFieldDescriptor *f, const char *whole,
                          const ProtobufCMessage *ours, const ProtobufCMessage *theirs) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s.%s", whole, f->name);
    if (field_is_repeated(f))
        compare_list(c, f, path, ours, theirs);
    else if (field_has_presence(f) && field_is_set(ours, f) != field_is_set(theirs, f))
        compare_presence(c, f, path, whole, ours, theirs);
    else if (field_has_presence(f) && !field_is_set(ours, f))
        return;
    else if (f->type == PROTOBUF_C_TYPE_MESSAGE)
        compare_messages(c, path, *(ProtobufCMessage *const *)field_value(ours, f),
                         *(ProtobufCMessage *const *)field_value(theirs, f));
    else
        compare_value(c, f, path, field_value(ours, f), field_value(theirs, f));
}

static void compare_messages(const struct comparison *c, const char *path, const ProtobufCMessage *ours,
                             const ProtobufCMessage *theirs) {
    for (unsigned i = 0; i < ours->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &ours->descriptor->fields[i];
        if (strcmp(f->name, "dropout") != 0) /* it has no weights, so the engine lets it change */
            compare_field(c, f, path, ours, theirs);
    }
}

void spec_check_fork(const Trainyard__V1__JobSpec *spec, const struct spec_origin *origin, struct spec_problems *p) {
    const Trainyard__V1__JobSpec *theirs = origin->spec;
    if (spec_is_program(spec) && spec_is_program(theirs)) /* what it can load is the program's to know */
        return;
    if (spec_is_program(spec) || spec_is_program(theirs)) {
        problem_add(p, "fork: job %" PRId64 " and its fork must both have a model, or both a program", origin->job);
        return;
    }
    const struct comparison model = { p, origin->job, "model" }, data = { p, origin->job, "data" };
    compare_messages(&model, "model", &spec->model->base, &theirs->model->base);
    if (!spec_may_change_data(spec))
        compare_messages(&data, "data", &spec->data->base, &theirs->data->base);
    if (spec->train->steps <= origin->step)
        problem_add(p, "train.steps: %" PRId64 " is not above the step %" PRId64 " that the fork begins at",
                    spec->train->steps, origin->step);
}
