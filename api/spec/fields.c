#include "api/spec/fields.h"

#include "api/codec/field_option.h"
#include "api/codec/message.h"

#include <assert.h>
#include <trainyard/v1/spec.pb-c.h>

const Trainyard__V1__SpecField *spec_field(const ProtobufCMessageDescriptor *desc, unsigned i) {
    const Trainyard__V1__SpecField *option = field_option(desc, i);
    assert(option);
    return option;
}

const ProtobufCFieldDescriptor *spec_member(const ProtobufCMessage *choice) {
    const uint32_t id = choice ? oneof_case(choice, &choice->descriptor->fields[0]) : 0;
    return id ? protobuf_c_message_descriptor_get_field(choice->descriptor, id) : NULL;
}

const Trainyard__V1__SpecField *spec_member_rule(const ProtobufCMessage *choice) {
    return spec_field(choice->descriptor, (unsigned)(spec_member(choice) - choice->descriptor->fields));
}

const ProtobufCMessage *spec_member_message(const ProtobufCMessage *choice) {
    const ProtobufCFieldDescriptor *f = spec_member(choice);
    return f ? *(ProtobufCMessage *const *)field_value(choice, f) : NULL;
}

const void *spec_value(const ProtobufCMessage *msg, const char *name) {
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name(msg->descriptor, name);
    return f && (!field_has_presence(f) || field_is_set(msg, f)) ? field_value(msg, f) : NULL;
}

bool spec_replaced(const ProtobufCMessage *msg, const Trainyard__V1__SpecField *rule) {
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name(msg->descriptor, rule->unless);
    size_t n = 1;
    if (f && field_is_repeated(f))
        field_elements(msg, f, &n);
    return f && n && spec_value(msg, rule->unless);
}
