/* Access to a message's fields by descriptor: what protobuf-c's own decoder knows and does not offer.
 *
 * A field's value stands at `offset`; beside it, at `quantifier_offset`, the number of elements (repeated), or the id
 * of the member that is set (oneof, and `optional`, which is a oneof with one member). Values of strings, bytes and
 * messages are malloc'ed, so that protobuf_c_message_free_unpacked(msg, NULL) frees them. For this folder and
 * api/spec. */
#ifndef API_CODEC_MESSAGE_H
#define API_CODEC_MESSAGE_H

#include "base/status.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

/* A new message with nothing set; RESOURCE_EXHAUSTED without memory. */
MUST_CHECK status_t message_new(const ProtobufCMessageDescriptor *desc, ProtobufCMessage **ret, struct err *e);

bool field_is_repeated(const ProtobufCFieldDescriptor *f); /* also for maps */
bool field_is_map(const ProtobufCFieldDescriptor *f);
bool field_is_oneof(const ProtobufCFieldDescriptor *f); /* also for `optional` */
bool field_is_timestamp(const ProtobufCFieldDescriptor *f);
/* Unset and default differ: messages, `optional` fields, members of a oneof. */
bool field_has_presence(const ProtobufCFieldDescriptor *f);

size_t field_element_bytes(const ProtobufCFieldDescriptor *f); /* of one value */
void *field_value(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f);
/* Repeated fields: the elements and their number. */
void *field_elements(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f, size_t *ret_n);
/* For fields with presence. */
bool field_is_set(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f);
/* The id in the oneof's case, 0 = none. */
uint32_t oneof_case(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f);
/* Says that this member is the one that is set. */
void oneof_set_case(ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f);

/* Room for `more` elements (at least 1) behind those of a repeated field, zeroed; the count is already raised. */
MUST_CHECK status_t field_append(ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f, size_t more, void **ret,
                                 struct err *e);

/* Frees what the field holds and unsets it; for a oneof, whichever member is set. */
void field_clear(ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f);

/* Where an integer may also be the word `auto`: the bool `<name>_auto` of the same message, which the word sets; NULL
 * for every other field. */
const ProtobufCFieldDescriptor *field_auto(const ProtobufCMessageDescriptor *desc, const ProtobufCFieldDescriptor *f);

/* "a, b, c" of the members of f's oneof, cut at cap. */
void oneof_member_names(const ProtobufCMessageDescriptor *desc, const ProtobufCFieldDescriptor *f, char *ret,
                        size_t cap);

#endif
