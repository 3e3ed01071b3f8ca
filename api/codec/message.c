#include "api/codec/message.h"

#include <google/protobuf/timestamp.pb-c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

status_t message_new(const ProtobufCMessageDescriptor *desc, ProtobufCMessage **ret, struct err *e) {
    ProtobufCMessage *msg = malloc(desc->sizeof_message);
    if (!msg)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a %s", desc->name);
    protobuf_c_message_init(desc, msg);
    *ret = msg;
    return ST_OK;
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

/* No spare room is kept: an array from protobuf-c's decoder has none to rely on. */
status_t field_append(ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f, size_t more, void **ret,
                      struct err *e) {
    size_t size = field_element_bytes(f);
    size_t *n = quantifier(msg, f);
    void **elements = field_value(msg, f);
    void *grown = reallocarray(*elements, *n + more, size);
    if (!grown)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for %zu elements of %s", *n + more, f->name);
    *elements = grown;
    *ret = (char *)grown + *n * size;
    memset(*ret, 0, more * size);
    *n += more;
    return ST_OK;
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
    const ProtobufCFieldDescriptor *held = field_is_oneof(f) ? oneof_member_set(msg, f) : f;
    if (held)
        value_free(held, field_value(msg, held));
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
