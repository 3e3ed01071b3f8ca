/* Access to the fields of a message by their descriptors.
 *
 * A descriptor gives the offset of a field's value in the message struct. A second offset, the quantifier, leads to the
 * number of elements (repeated fields) or to the id of the member that is set (oneofs). Only this file computes
 * addresses from these offsets.
 *
 * Every value is a separate allocation, as protobuf-c's decoder makes them, so that protobuf_c_message_free_unpacked
 * frees a message that was changed here. protobuf-c has no flag for maps, `auto` words and choices; field_is_map,
 * field_auto and message_is_choice recognise them by names and shape. */
#include "api/codec/message.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <assert.h>
#include <google/protobuf/timestamp.pb-c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ProtobufCMessage *message_new(const ProtobufCMessageDescriptor *desc) {
    ProtobufCMessage *msg = alloc_zeroed(1, desc->sizeof_message);
    protobuf_c_message_init(desc, msg);
    return msg;
}

/* Packing and unpacking is the only copy that protobuf-c offers. */
status_t message_copy(const ProtobufCMessage *msg, void *ret_copy, struct err *e) {
    const size_t n = protobuf_c_message_get_packed_size(msg);
    CLEANUP(freep) uint8_t *packed = malloc(n + 1);
    ProtobufCMessage *copy = NULL;
    if (packed) {
        copy = protobuf_c_message_unpack(msg->descriptor, NULL, protobuf_c_message_pack(msg, packed), packed);
        explicit_bzero(packed, n); /* it may have a secret */
    }
    if (!copy)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory to copy a %s of %zu bytes", msg->descriptor->short_name, n);
    memcpy(ret_copy, &copy, sizeof copy);
    return ST_OK;
}

void message_freep(void *pointer_to_message) {
    ProtobufCMessage *msg;
    memcpy(&msg, pointer_to_message, sizeof msg);
    if (msg)
        protobuf_c_message_free_unpacked(msg, NULL);
}

bool field_is_repeated(const ProtobufCFieldDescriptor *f) { return f->label == PROTOBUF_C_LABEL_REPEATED; }

bool field_is_oneof(const ProtobufCFieldDescriptor *f) { return (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0; }

bool field_is_timestamp(const ProtobufCFieldDescriptor *f) {
    return f->type == PROTOBUF_C_TYPE_MESSAGE && f->descriptor == &google__protobuf__timestamp__descriptor;
}

/* A map is a repeated message "<Field>Entry" of two fields, key = 1 and value = 2: the descriptor has no flag for it.
 */
bool field_is_map(const ProtobufCFieldDescriptor *f) {
    if (!field_is_repeated(f) || f->type != PROTOBUF_C_TYPE_MESSAGE)
        return false;
    const ProtobufCMessageDescriptor *entry = f->descriptor;
    size_t n = strlen(entry->short_name);
    return entry->n_fields == 2 && n > 5 && strcmp(entry->short_name + n - 5, "Entry") == 0 &&
           strcmp(entry->fields[0].name, "key") == 0 && entry->fields[0].id == 1 &&
           strcmp(entry->fields[1].name, "value") == 0 && entry->fields[1].id == 2;
}

bool field_has_presence(const ProtobufCFieldDescriptor *f) {
    return !field_is_repeated(f) && (field_is_oneof(f) || f->type == PROTOBUF_C_TYPE_MESSAGE);
}

size_t field_element_bytes(const ProtobufCFieldDescriptor *f) {
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE: return 8;
    case PROTOBUF_C_TYPE_BOOL: return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_STRING: return sizeof(char *);
    case PROTOBUF_C_TYPE_BYTES: return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_MESSAGE: return sizeof(ProtobufCMessage *);
    default: return 4;
    }
}

void *field_value(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f) { return (char *)msg + f->offset; }

static void *quantifier(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f) {
    return (char *)msg + f->quantifier_offset;
}

void *field_elements(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f, size_t *ret_n) {
    *ret_n = *(size_t *)quantifier(msg, f);
    return *(void **)field_value(msg, f);
}

uint32_t oneof_case(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f) {
    return *(uint32_t *)quantifier(msg, f);
}

void oneof_set_case(ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f) {
    *(uint32_t *)quantifier(msg, f) = f->id;
}

bool field_is_set(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f) {
    if (field_is_oneof(f))
        return oneof_case(msg, f) == f->id;
    return *(ProtobufCMessage **)field_value(msg, f) != NULL;
}

/* Arrays have no spare capacity, because those from protobuf-c's decoder have none. */
void *field_append(ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f, size_t more) {
    size_t size = field_element_bytes(f);
    size_t *n = quantifier(msg, f);
    void **elements = field_value(msg, f);
    *elements = alloc_resize(*elements, *n + more, size);
    void *added = (char *)*elements + *n * size;
    memset(added, 0, more * size);
    *n += more;
    return added;
}

const ProtobufCFieldDescriptor *message_repeated_field(const ProtobufCMessageDescriptor *desc) {
    const ProtobufCFieldDescriptor *f = desc->fields;
    while (!field_is_repeated(f))
        f++;
    assert(f < desc->fields + desc->n_fields);
    return f;
}

static void value_free(const ProtobufCFieldDescriptor *f, void *at) {
    if (f->type == PROTOBUF_C_TYPE_STRING) {
        char *s = *(char **)at;
        if (s != protobuf_c_empty_string && s != f->default_value)
            free(s);
    } else if (f->type == PROTOBUF_C_TYPE_BYTES) {
        free(((ProtobufCBinaryData *)at)->data);
    } else if (f->type == PROTOBUF_C_TYPE_MESSAGE && *(ProtobufCMessage **)at) {
        protobuf_c_message_free_unpacked(*(ProtobufCMessage **)at, NULL);
    }
}

static const ProtobufCFieldDescriptor *oneof_member_set(ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f) {
    uint32_t id = oneof_case(msg, f);
    return id ? protobuf_c_message_descriptor_get_field(msg->descriptor, id) : NULL;
}

void field_clear(ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f) {
    if (field_is_repeated(f)) {
        size_t n, size = field_element_bytes(f);
        char *elements = field_elements(msg, f, &n);
        for (size_t i = 0; i < n; i++)
            value_free(f, elements + i * size);
        free(elements);
        *(size_t *)quantifier(msg, f) = 0;
        *(void **)field_value(msg, f) = NULL;
        return;
    }
    const ProtobufCFieldDescriptor *set = field_is_oneof(f) ? oneof_member_set(msg, f) : f;
    if (set)
        value_free(set, field_value(msg, set));
    if (field_is_oneof(f))
        *(uint32_t *)quantifier(msg, f) = 0;
    memset(field_value(msg, f), 0, field_element_bytes(f));
    if (f->type == PROTOBUF_C_TYPE_STRING)
        *(char **)field_value(msg, f) = (char *)f->default_value;
}

const ProtobufCFieldDescriptor *field_auto(const ProtobufCMessageDescriptor *desc, const ProtobufCFieldDescriptor *f) {
    char name[80];
    if (field_is_repeated(f) || (f->type != PROTOBUF_C_TYPE_INT32 && f->type != PROTOBUF_C_TYPE_INT64))
        return NULL;
    snprintf(name, sizeof name, "%s_auto", f->name);
    const ProtobufCFieldDescriptor *word = protobuf_c_message_descriptor_get_field_by_name(desc, name);
    return word && word->type == PROTOBUF_C_TYPE_BOOL ? word : NULL;
}

bool field_is_member(const ProtobufCMessageDescriptor *desc, const ProtobufCFieldDescriptor *f) {
    return field_is_oneof(f) && f->quantifier_offset == desc->fields[0].quantifier_offset;
}

bool message_is_choice(const ProtobufCMessageDescriptor *desc) {
    unsigned members = 0;
    for (unsigned i = 0; i < desc->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &desc->fields[i];
        const bool message = f->type == PROTOBUF_C_TYPE_MESSAGE && !field_is_timestamp(f);
        if (field_is_member(desc, f) ? !message : message || field_is_repeated(f))
            return false;
        members += field_is_member(desc, f);
    }
    return members > 1;
}

void oneof_member_names(const ProtobufCMessageDescriptor *desc, const ProtobufCFieldDescriptor *f, char *ret,
                        size_t cap) {
    size_t used = 0;
    ret[0] = '\0';
    for (unsigned i = 0; i < desc->n_fields && used < cap; i++) {
        const ProtobufCFieldDescriptor *member = &desc->fields[i];
        if (field_is_oneof(member) && member->quantifier_offset == f->quantifier_offset)
            used += (size_t)snprintf(ret + used, cap - used, "%s%s", used ? ", " : "", member->name);
    }
}
