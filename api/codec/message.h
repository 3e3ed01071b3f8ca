/* Access to a message's fields by descriptor: operations that protobuf-c's decoder has internally but does not offer.
 *
 * The value of a field is at `offset`. At `quantifier_offset` is the number of elements (repeated), or the id of the
 * member that is set (oneof, and `optional`, which is a oneof with one member). Values of strings, bytes and messages
 * are malloc'ed, so that protobuf_c_message_free_unpacked(msg, NULL) frees them. Code that visits a message field by
 * field uses this header. */
#ifndef API_CODEC_MESSAGE_H
#define API_CODEC_MESSAGE_H

#include "base/status.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

/* A new message without any field set, for protobuf_c_message_free_unpacked(msg, NULL). */
ProtobufCMessage *message_new(const ProtobufCMessageDescriptor *desc);

/* A copy with everything below it, for protobuf_c_message_free_unpacked(copy, NULL). *ret_copy: a pointer to the
 * message's struct. RESOURCE_EXHAUSTED without memory. */
MUST_CHECK status_t message_copy(const ProtobufCMessage *msg, void *ret_copy, struct err *e);

/* For CLEANUP of a pointer to a message's struct, which may be NULL. */
void message_freep(void *pointer_to_message);

bool field_is_repeated(const ProtobufCFieldDescriptor *f); /* also for maps */
bool field_is_map(const ProtobufCFieldDescriptor *f);
bool field_is_oneof(const ProtobufCFieldDescriptor *f); /* also for `optional` */
bool field_is_timestamp(const ProtobufCFieldDescriptor *f);
/* Unset and default are different: messages, `optional` fields, members of a oneof. */
bool field_has_presence(const ProtobufCFieldDescriptor *f);

size_t field_element_bytes(const ProtobufCFieldDescriptor *f); /* bytes of one value */
void *field_value(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f);
/* For repeated fields: the elements and their number. */
void *field_elements(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f, size_t *ret_n);
/* For fields with presence. */
bool field_is_set(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f);
/* The id of the member that is set; 0 = none. */
uint32_t oneof_case(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f);
/* Records that this member is the one that is set. */
void oneof_set_case(ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f);

/* Appends space for `more` elements (at least 1) to a repeated field, zeroed, and returns the first. The count already
 * includes them. A message from text is as small as its text, which has a limit (base/alloc.h). */
void *field_append(ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f, size_t more);

/* The first repeated field of a message type, which has one. */
const ProtobufCFieldDescriptor *message_repeated_field(const ProtobufCMessageDescriptor *desc);

/* Frees the value of the field and unsets it. For a oneof, any member that is set. */
void field_clear(ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f);

/* For an integer that may also be the word `auto`: the bool `<name>_auto` of the same message, which the word sets.
 * NULL for every other field. */
const ProtobufCFieldDescriptor *field_auto(const ProtobufCMessageDescriptor *desc, const ProtobufCFieldDescriptor *f);

/* Whether the field is in the same oneof as the first field of its message, which is a choice. */
bool field_is_member(const ProtobufCMessageDescriptor *desc, const ProtobufCFieldDescriptor *f);

/* Whether the message is a choice: its first field is one of at least two messages of one oneof. Its other fields are
 * scalars. They hold for each of the choices. */
bool message_is_choice(const ProtobufCMessageDescriptor *desc);

/* Writes the names of the members of f's oneof as "a, b, c", cut at cap bytes. */
void oneof_member_names(const ProtobufCMessageDescriptor *desc, const ProtobufCFieldDescriptor *f, char *ret,
                        size_t cap);

#endif
