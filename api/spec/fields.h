/* The option (field) of each field of spec.proto, and access to a spec's fields by name. Internal to this folder.
 *
 *     const Trainyard__V1__SpecField *rule = spec_field(msg->descriptor, i);     // of msg->descriptor->fields[i]
 *
 * The options come from api/codec/field_option.h. Thread-safe. */
#ifndef API_SPEC_FIELDS_H
#define API_SPEC_FIELDS_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <trainyard/v1/field.pb-c.h>

/* Never NULL: a field without the option has an empty one. desc is JobSpec's or that of a message inside it. */
const Trainyard__V1__SpecField *spec_field(const ProtobufCMessageDescriptor *desc, unsigned i);

/* The member that is set in a message which is a choice (model, data, optimizer, schedule); NULL if none is, or choice
 * is NULL. */
const ProtobufCFieldDescriptor *spec_member(const ProtobufCMessage *choice);
/* The option of that member. */
const Trainyard__V1__SpecField *spec_member_rule(const ProtobufCMessage *choice);
/* The message of that member. */
const ProtobufCMessage *spec_member_message(const ProtobufCMessage *choice);

/* The value of a field by its name; NULL if the message has no such field, or the field has presence and is not set.
 * The caller knows the type. */
const void *spec_value(const ProtobufCMessage *msg, const char *name);

/* True if the field `unless` of the rule is given, which replaces the rule's own field. */
bool spec_replaced(const ProtobufCMessage *msg, const Trainyard__V1__SpecField *rule);

#endif
