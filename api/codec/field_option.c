/* The embedded FileDescriptorSet of spec.proto and sweep_spec.proto is decoded once. protobuf-c does not know
 * extensions: to its decoder the option (field) is an unknown field of google.protobuf.FieldOptions, which it keeps.
 * The table has one row for each message below SweepSpec, which contains JobSpec: its protobuf-c descriptor, and the
 * decoded options in the order of that descriptor's fields, so that a lookup is a search among some fifty pointers. */
#include "api/codec/field_option.h"

#include "api/codec/message.h"
#include "base/alloc.h"

#include <assert.h>
#include <google/protobuf/descriptor.pb-c.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/spec_descriptors.h>
#include <trainyard/v1/sweep_spec.pb-c.h>

enum {
    OPTION_FIELD = 51701, /* of field.proto; protobuf-c generates nothing for an extension */
    MESSAGES = 96,
};

static struct row {
    const ProtobufCMessageDescriptor *message;
    Trainyard__V1__SpecField **options; /* [message->n_fields] */
} rows[MESSAGES];
static int n_rows;
static pthread_once_t loaded = PTHREAD_ONCE_INIT;

static Trainyard__V1__SpecField *decode(const Google__Protobuf__FieldOptions *options) {
    for (unsigned i = 0; options && i < options->base.n_unknown_fields; i++) {
        const ProtobufCMessageUnknownField *f = &options->base.unknown_fields[i];
        if (f->tag != OPTION_FIELD)
            continue;
        size_t prefix = 0; /* the length, a varint */
        while (f->data[prefix++] & 0x80)
            continue;
        return trainyard__v1__spec_field__unpack(NULL, f->len - prefix, f->data + prefix);
    }
    Trainyard__V1__SpecField *none = alloc_zeroed(1, sizeof *none);
    trainyard__v1__spec_field__init(none);
    return none;
}

static const Google__Protobuf__DescriptorProto *find_message(const Google__Protobuf__FileDescriptorSet *set,
                                                             const char *name) {
    for (size_t i = 0; i < set->n_file; i++)
        for (size_t k = 0; k < set->file[i]->n_message_type; k++)
            if (strcmp(set->file[i]->message_type[k]->name, name) == 0)
                return set->file[i]->message_type[k];
    return NULL;
}

static void add_message(const Google__Protobuf__FileDescriptorSet *set, const ProtobufCMessageDescriptor *message) {
    for (int i = 0; i < n_rows; i++)
        if (rows[i].message == message)
            return;
    const Google__Protobuf__DescriptorProto *descriptor = find_message(set, message->short_name);
    assert(n_rows < MESSAGES && descriptor);
    struct row *row = &rows[n_rows++];
    *row = (struct row){ message, alloc_zeroed(message->n_fields, sizeof *row->options) };
    for (size_t k = 0; k < descriptor->n_field; k++) {
        const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field(
            message, (unsigned)descriptor->field[k]->number);
        row->options[f - message->fields] = decode(descriptor->field[k]->options);
    }
    for (unsigned i = 0; i < message->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &message->fields[i];
        if (field_is_map(f))
            f = &((const ProtobufCMessageDescriptor *)f->descriptor)->fields[1];
        if (f->type == PROTOBUF_C_TYPE_MESSAGE)
            add_message(set, f->descriptor);
    }
}

static void load(void) {
    Google__Protobuf__FileDescriptorSet *set = google__protobuf__file_descriptor_set__unpack(NULL, spec_descriptors_len,
                                                                                             spec_descriptors);
    if (!set)
        alloc_refused(spec_descriptors_len);
    add_message(set, &trainyard__v1__sweep_spec__descriptor);
    google__protobuf__file_descriptor_set__free_unpacked(set, NULL);
}

const Trainyard__V1__SpecField *field_option(const ProtobufCMessageDescriptor *desc, unsigned i) {
    pthread_once(&loaded, load);
    for (int row = 0; row < n_rows; row++)
        if (rows[row].message == desc)
            return rows[row].options[i];
    return NULL;
}

const ProtobufCFieldDescriptor *field_mapping(const ProtobufCMessageDescriptor *desc,
                                              const ProtobufCFieldDescriptor *f) {
    const Trainyard__V1__SpecField *option = field_option(desc, (unsigned)(f - desc->fields));
    return option && *option->mapping ? protobuf_c_message_descriptor_get_field_by_name(desc, option->mapping) : NULL;
}

const ProtobufCFieldDescriptor *field_mapped(const ProtobufCMessageDescriptor *desc,
                                             const ProtobufCFieldDescriptor *mapping) {
    if (mapping->type != PROTOBUF_C_TYPE_MESSAGE || field_is_repeated(mapping))
        return NULL;
    for (unsigned i = 0; i < desc->n_fields; i++)
        if (field_mapping(desc, &desc->fields[i]) == mapping)
            return &desc->fields[i];
    return NULL;
}
