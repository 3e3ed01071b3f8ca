/* Printing a message as JSON or YAML.
 *
 * The message is visited field by field, in the order of its descriptor. Each value goes to the operations of a writer
 * (writer.h), which decide the syntax: json_writer.c or yaml_writer.c. Fields with presence are left out if they are
 * not set; all other fields are always printed. Timestamps are printed as RFC 3339, enums by name, bytes as base64. */
#include "api/codec/field_option.h"
#include "api/codec/message.h"
#include "api/codec/scalar.h"
#include "api/codec/text.h"
#include "api/codec/timestamp.h"
#include "api/codec/writer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static status_t print_message(struct writer *w, const ProtobufCMessage *msg, struct err *e);

static status_t print_bytes(struct writer *w, const ProtobufCBinaryData *data, struct err *e) {
    struct bytes text;
    bytes_init(&text, data->len / 3 * 4 + 8);
    status_t st = base64_print(data->data, data->len, &text, e);
    if (st == ST_OK)
        st = w->ops->string(w, text.data ? text.data : "", text.len, e);
    bytes_done(&text);
    return st;
}

static status_t print_timestamp(struct writer *w, const Google__Protobuf__Timestamp *t, struct err *e) {
    char text[TIMESTAMP_TEXT];
    if (timestamp_print(t, text, NULL) != ST_OK) /* a bad time must not hide the rest of the message */
        return w->ops->word(w, "null", e);
    return w->ops->string(w, text, strlen(text), e);
}

static status_t print_enum(struct writer *w, const ProtobufCFieldDescriptor *f, int value, struct err *e) {
    char digits[16];
    const char *name = enum_name(f, value);
    if (name)
        return w->ops->string(w, name, strlen(name), e);
    snprintf(digits, sizeof digits, "%d", value);
    return w->ops->word(w, digits, e);
}

static status_t print_value(struct writer *w, const ProtobufCFieldDescriptor *f, const void *at, struct err *e) {
    char digits[32];
    switch (f->type) {
    case PROTOBUF_C_TYPE_STRING: {
        const char *s = *(char *const *)at ? *(char *const *)at : "";
        return w->ops->string(w, s, strlen(s), e);
    }
    case PROTOBUF_C_TYPE_BYTES: return print_bytes(w, at, e);
    case PROTOBUF_C_TYPE_ENUM: return print_enum(w, f, *(const int *)at, e);
    case PROTOBUF_C_TYPE_BOOL: return w->ops->word(w, *(const protobuf_c_boolean *)at ? "true" : "false", e);
    case PROTOBUF_C_TYPE_DOUBLE: return w->ops->real(w, *(const double *)at, e);
    case PROTOBUF_C_TYPE_FLOAT: return w->ops->real(w, (double)*(const float *)at, e);
    case PROTOBUF_C_TYPE_MESSAGE:
        if (field_is_timestamp(f))
            return print_timestamp(w, *(Google__Protobuf__Timestamp *const *)at, e);
        return print_message(w, *(ProtobufCMessage *const *)at, e);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        snprintf(digits, sizeof digits, "%" PRId64, *(const int64_t *)at);
        return w->ops->integer64(w, digits, e);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        snprintf(digits, sizeof digits, "%" PRIu64, *(const uint64_t *)at);
        return w->ops->integer64(w, digits, e);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32: snprintf(digits, sizeof digits, "%" PRIu32, *(const uint32_t *)at); break;
    default: snprintf(digits, sizeof digits, "%" PRId32, *(const int32_t *)at); break;
    }
    return w->ops->word(w, digits, e);
}

static status_t print_list(struct writer *w, const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f,
                           struct err *e) {
    size_t n, size = field_element_bytes(f);
    const char *elements = field_elements(msg, f, &n);
    TRY(w->ops->open(w, true, n == 0, e));
    for (size_t i = 0; i < n; i++) {
        TRY(w->ops->item(w, i == 0, e));
        TRY(print_value(w, f, elements + i * size, e));
    }
    return w->ops->close(w, true, n == 0, e);
}

/* Map keys of every type are text in JSON. */
static status_t print_map_key(struct writer *w, const ProtobufCMessage *entry, bool first, struct err *e) {
    const ProtobufCFieldDescriptor *f = &entry->descriptor->fields[0];
    const void *at = field_value(entry, f);
    char digits[32];
    if (f->type == PROTOBUF_C_TYPE_STRING)
        return w->ops->key(w, *(char *const *)at, first, e);
    if (f->type == PROTOBUF_C_TYPE_BOOL)
        snprintf(digits, sizeof digits, "%s", *(const protobuf_c_boolean *)at ? "true" : "false");
    else if (field_element_bytes(f) == 8)
        snprintf(digits, sizeof digits, "%" PRId64, *(const int64_t *)at);
    else
        snprintf(digits, sizeof digits, "%" PRId32, *(const int32_t *)at);
    return w->ops->key(w, digits, first, e);
}

static status_t print_map(struct writer *w, const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f,
                          struct err *e) {
    size_t n;
    ProtobufCMessage **entries = field_elements(msg, f, &n);
    TRY(w->ops->open(w, false, n == 0, e));
    for (size_t i = 0; i < n; i++) {
        const ProtobufCFieldDescriptor *value = &entries[i]->descriptor->fields[1];
        TRY(print_map_key(w, entries[i], i == 0, e));
        TRY(print_value(w, value, field_value(entries[i], value), e));
    }
    return w->ops->close(w, false, n == 0, e);
}

static bool is_printed(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f) {
    return !field_has_presence(f) || field_is_set(msg, f);
}

/* The name under which a text has the field. */
static const char *name_of(const ProtobufCMessageDescriptor *desc, const ProtobufCFieldDescriptor *f) {
    const ProtobufCFieldDescriptor *mapped = field_mapped(desc, f);
    return mapped ? mapped->name : f->name;
}

static status_t print_message(struct writer *w, const ProtobufCMessage *msg, struct err *e) {
    const ProtobufCMessageDescriptor *desc = msg->descriptor;
    bool first = true, empty = true;
    for (unsigned i = 0; i < desc->n_fields; i++)
        empty = empty && !is_printed(msg, &desc->fields[i]);
    TRY(w->ops->open(w, false, empty, e));
    for (unsigned i = 0; i < desc->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &desc->fields[i];
        if (!is_printed(msg, f))
            continue;
        TRY(w->ops->key(w, name_of(desc, f), first, e));
        first = false;
        if (field_is_map(f))
            TRY(print_map(w, msg, f, e));
        else if (field_is_repeated(f))
            TRY(print_list(w, msg, f, e));
        else
            TRY(print_value(w, f, field_value(msg, f), e));
    }
    return w->ops->close(w, false, empty, e);
}

status_t codec_print_json(const ProtobufCMessage *msg, int indent, struct bytes *ret, struct err *e) {
    struct writer w = { .ops = &json_writer_ops, .out = ret, .indent = indent };
    return print_message(&w, msg, e);
}

status_t codec_print_yaml(const ProtobufCMessage *msg, struct bytes *ret, struct err *e) {
    struct writer w = { .ops = &yaml_writer_ops, .out = ret, .indent = 2 };
    TRY(print_message(&w, msg, e));
    return bytes_append(ret, "\n", 1, e);
}
