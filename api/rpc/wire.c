/* Checks of a packed message before protobuf-c decodes it: nesting at most RPC_MAX_NESTING deep, strings in valid UTF-8
 * without NUL, wire types that match the fields, packed fields of whole elements.
 *
 * The check walks the bytes once, guided by the descriptors, and descends into nested messages. Each level keeps a
 * pointer to the level above and its current field. So a refusal can write the path of the field ("spec.data.path"),
 * and a valid message costs no text at all. */
#include "api/rpc/wire.h"

#include "api/rpc/call.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

enum wire_type { WIRE_VARINT, WIRE_FIXED64, WIRE_BYTES, WIRE_GROUP_START, WIRE_GROUP_END, WIRE_FIXED32 };

struct cursor {
    const uint8_t *at, *end;
};

/* One level of nesting. The levels are linked, so that the path of a field can be written if an error is found. */
struct level {
    const struct level *parent;
    const ProtobufCMessageDescriptor *message;
    const uint8_t *start;
    struct cursor rest;                    /* the bytes after the current field */
    const ProtobufCFieldDescriptor *field; /* NULL for an unknown field */
    int depth;
};

static bool read_varint(struct cursor *c, uint64_t *ret) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && c->at < c->end; shift += 7) {
        uint8_t byte = *c->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *ret = value;
            return true;
        }
    }
    return false;
}

static bool read_bytes(struct cursor *c, uint64_t n, struct cursor *ret) {
    if (n > (uint64_t)(c->end - c->at))
        return false;
    *ret = (struct cursor){ c->at, c->at + n };
    c->at += n;
    return true;
}

/* Reads a field's tag and finds its value. For WIRE_BYTES the value begins after the length. */
static bool read_field(struct cursor *c, uint32_t *ret_number, enum wire_type *ret_type, struct cursor *ret_value) {
    uint64_t tag, value;
    if (!read_varint(c, &tag) || tag >> 32 || tag >> 3 == 0)
        return false;
    *ret_number = (uint32_t)(tag >> 3);
    *ret_type = (enum wire_type)(tag & 7);
    switch (*ret_type) {
    case WIRE_VARINT: *ret_value = (struct cursor){ c->at, c->at }; return read_varint(c, &value);
    case WIRE_FIXED64: return read_bytes(c, 8, ret_value);
    case WIRE_FIXED32: return read_bytes(c, 4, ret_value);
    case WIRE_BYTES: return read_varint(c, &value) && read_bytes(c, value, ret_value);
    default: return false;
    }
}

static enum wire_type type_of(const ProtobufCFieldDescriptor *field) {
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE: return WIRE_BYTES;
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FLOAT: return WIRE_FIXED32;
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_DOUBLE: return WIRE_FIXED64;
    default: return WIRE_VARINT;
    }
}

/* Counts the elements of the level's field before the current one. */
static size_t element_index(const struct level *level) {
    struct cursor c = { level->start, level->rest.at }, value;
    uint32_t number;
    enum wire_type type;
    size_t seen = 0;
    while (c.at < c.end && read_field(&c, &number, &type, &value))
        seen += number == level->field->id;
    return seen ? seen - 1 : 0;
}

static size_t write_path(const struct level *level, char *ret, size_t n) {
    size_t used = level->parent ? write_path(level->parent, ret, n) : 0;
    if (!level->field || used >= n)
        return used;
    used += (size_t)snprintf(ret + used, n - used, "%s%s", used ? "." : "", level->field->name);
    if (level->field->label == PROTOBUF_C_LABEL_REPEATED && used < n)
        used += (size_t)snprintf(ret + used, n - used, "[%zu]", element_index(level));
    return used;
}

static status_t refuse(const struct level *level, struct err *e, const char *what) {
    char path[256] = "";
    write_path(level, path, sizeof path);
    if (!path[0])
        return err_set(e, ST_INVALID_ARGUMENT, "the message is not a valid %s: %s", level->message->name, what);
    return err_set(e, ST_INVALID_ARGUMENT, "%s: %s", path, what);
}

static status_t check_message(struct level *level, struct err *e);

static status_t check_value(const struct level *level, struct cursor value, struct err *e) {
    size_t n = (size_t)(value.end - value.at);
    switch (level->field->type) {
    case PROTOBUF_C_TYPE_STRING:
        if (!utf8_valid((const char *)value.at, n))
            return refuse(level, e, "the text is not valid UTF-8");
        if (n && memchr(value.at, '\0', n))
            return refuse(level, e, "the text holds a NUL");
        return ST_OK;
    case PROTOBUF_C_TYPE_MESSAGE: {
        if (level->depth == RPC_MAX_NESTING)
            return refuse(level, e, "messages are nested too deeply");
        struct level below = { .parent = level,
                               .message = level->field->descriptor,
                               .start = value.at,
                               .rest = value,
                               .depth = level->depth + 1 };
        return check_message(&below, e);
    }
    default: return ST_OK;
    }
}

/* The elements of a packed field, which have no tags. */
static status_t check_packed(const struct level *level, struct cursor value, struct err *e) {
    const enum wire_type type = type_of(level->field);
    const size_t n = (size_t)(value.end - value.at);
    bool whole = n % (type == WIRE_FIXED64 ? 8 : type == WIRE_FIXED32 ? 4 : 1) == 0;
    for (uint64_t element; whole && type == WIRE_VARINT && value.at < value.end;)
        whole = read_varint(&value, &element);
    return whole ? ST_OK : refuse(level, e, "the last packed element is cut short");
}

static status_t check_message(struct level *level, struct err *e) {
    while (level->rest.at < level->rest.end) {
        uint32_t number;
        enum wire_type type;
        struct cursor value;
        level->field = NULL;
        if (!read_field(&level->rest, &number, &type, &value))
            return refuse(level, e, "a field is cut short or malformed");
        level->field = protobuf_c_message_descriptor_get_field(level->message, number);
        if (!level->field)
            continue;
        if (type == type_of(level->field))
            TRY(check_value(level, value, e));
        else if (type == WIRE_BYTES && level->field->label == PROTOBUF_C_LABEL_REPEATED)
            TRY(check_packed(level, value, e));
        else
            return refuse(level, e, "the value is of another type");
    }
    return ST_OK;
}

status_t wire_check(const ProtobufCMessageDescriptor *message, const uint8_t *data, size_t n, struct err *e) {
    if (n == 0)
        return ST_OK;
    struct level top = { .message = message, .start = data, .rest = { data, data + n }, .depth = 1 };
    return check_message(&top, e);
}
