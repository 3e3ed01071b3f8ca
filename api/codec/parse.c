/* From YAML or JSON events to a message.
 *
 * A mapping is a message: each key is found among the fields of the descriptor, and its value is parsed by the kind of
 * the field (scalar, message, map, list, timestamp). A oneof member without fields may be given by its name alone. The
 * path of the current field is kept for error sentences. */
#include "api/codec/parse.h"

#include "api/codec/field_option.h"
#include "api/codec/message.h"
#include "api/codec/scalar.h"
#include "api/codec/text.h"
#include "api/codec/timestamp.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The most entries of one map: each key is compared with all earlier keys. */
enum { MAP_ENTRIES = 1024 };
/* The most fields of one message: parse_message keeps one bit for each field that it has seen. */
enum { MESSAGE_FIELDS = 256 };

static status_t not_what(struct yaml_reader *r, const char *expected, struct field_path *p, struct err *e) {
    char found[64];
    yaml_reader_found(r, found);
    return path_err(p, e, "expected %s, found %s", expected, found);
}

static status_t parse_scalar(struct yaml_reader *r, const ProtobufCFieldDescriptor *f, void *at, struct field_path *p,
                             struct err *e) {
    if (r->event.type != YAML_SCALAR_EVENT || yaml_reader_at_null(r))
        return not_what(r, scalar_expected(f), p, e);
    status_t st = scalar_parse(f, (const char *)r->event.data.scalar.value, r->event.data.scalar.length, at, e);
    return st == ST_OK || p->len == 0 ? st : err_prefix(e, st, "%s: ", p->text);
}

static status_t parse_timestamp(struct yaml_reader *r, ProtobufCMessage *msg, struct field_path *p, struct err *e) {
    Google__Protobuf__Timestamp *t = (Google__Protobuf__Timestamp *)msg;
    if (r->event.type != YAML_SCALAR_EVENT)
        return not_what(r, "a time", p, e);
    status_t st = timestamp_parse((const char *)r->event.data.scalar.value, &t->seconds, &t->nanos, e);
    return st == ST_OK || p->len == 0 ? st : err_prefix(e, st, "%s: ", p->text);
}

/* "optimizer: sgd": the name of a member means an empty message of that member. */
static status_t parse_choice(struct yaml_reader *r, ProtobufCMessage *msg, struct field_path *p, struct err *e) {
    const char *name = (const char *)r->event.data.scalar.value;
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name(msg->descriptor, name);
    if (!f || !field_is_member(msg->descriptor, f) || strlen(name) != r->event.data.scalar.length) {
        char found[64], names[200];
        yaml_reader_found(r, found);
        oneof_member_names(msg->descriptor, &msg->descriptor->fields[0], names, sizeof names);
        return path_err(p, e, "expected a mapping or one of: %s; found %s", names, found);
    }
    ProtobufCMessage *member = message_new(f->descriptor);
    *(ProtobufCMessage **)field_value(msg, f) = member;
    oneof_set_case(msg, f);
    return ST_OK;
}

static status_t parse_submessage(struct yaml_reader *r, const ProtobufCFieldDescriptor *f, ProtobufCMessage **at,
                                 struct field_path *p, struct err *e) {
    ProtobufCMessage *msg = message_new(f->descriptor);
    status_t st;
    if (field_is_timestamp(f))
        st = parse_timestamp(r, msg, p, e);
    else if (yaml_reader_at_empty(r))
        st = ST_OK; /* "constant:" without a value: all defaults */
    else if (r->event.type == YAML_MAPPING_START_EVENT)
        st = parse_message(r, msg, p, e);
    else if (r->event.type == YAML_SCALAR_EVENT && message_is_choice(msg->descriptor))
        st = parse_choice(r, msg, p, e);
    else
        st = not_what(r, "a mapping", p, e);
    if (st != ST_OK) {
        protobuf_c_message_free_unpacked(msg, NULL);
        return st;
    }
    *at = msg;
    return ST_OK;
}

/* Parses one value of f's type into `at`: a field, an element of a list or a value of a map. */
static status_t parse_value(struct yaml_reader *r, const ProtobufCFieldDescriptor *f, void *at, struct field_path *p,
                            struct err *e) {
    if (f->type == PROTOBUF_C_TYPE_MESSAGE)
        return parse_submessage(r, f, at, p, e);
    return parse_scalar(r, f, at, p, e);
}

/* A value is parsed into a local buffer first, so that an error leaves only whole elements in the list. */
static status_t parse_list(struct yaml_reader *r, ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f,
                           struct field_path *p, struct err *e) {
    if (r->event.type != YAML_SEQUENCE_START_EVENT)
        return not_what(r, "a list", p, e);
    for (size_t i = 0;; i++) {
        TRY(yaml_reader_next(r, e));
        if (r->event.type == YAML_SEQUENCE_END_EVENT)
            return ST_OK;
        size_t mark = path_push_index(p, i);
        uint64_t value[2] = { 0 }; /* the largest value is a ProtobufCBinaryData */
        _Static_assert(sizeof value >= sizeof(ProtobufCBinaryData), "a value fits");
        TRY(parse_value(r, f, value, p, e));
        memcpy(field_append(msg, f, 1), value, field_element_bytes(f));
        path_pop(p, mark);
    }
}

static bool map_has_key(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f, const ProtobufCMessage *entry) {
    const ProtobufCFieldDescriptor *key = &entry->descriptor->fields[0];
    size_t n;
    ProtobufCMessage **entries = field_elements(msg, f, &n);
    for (size_t i = 0; i < n; i++) {
        const void *a = field_value(entries[i], key), *b = field_value(entry, key);
        bool same = key->type == PROTOBUF_C_TYPE_STRING ? strcmp(*(char *const *)a, *(char *const *)b) == 0
                                                        : memcmp(a, b, field_element_bytes(key)) == 0;
        if (same)
            return true;
    }
    return false;
}

/* The current event is the entry's key. */
static status_t parse_map_entry(struct yaml_reader *r, ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f,
                                ProtobufCMessage *entry, struct field_path *p, struct err *e) {
    const ProtobufCFieldDescriptor *key = &entry->descriptor->fields[0], *value = &entry->descriptor->fields[1];
    if (r->event.type != YAML_SCALAR_EVENT)
        return not_what(r, "a key", p, e);
    size_t mark = path_push(p, (const char *)r->event.data.scalar.value, r->event.data.scalar.length);
    if (r->event.data.scalar.length > MAP_KEY_BYTES)
        return path_err(p, e, "a key has at most %d bytes", MAP_KEY_BYTES);
    TRY(scalar_parse(key, (const char *)r->event.data.scalar.value, r->event.data.scalar.length,
                     field_value(entry, key), e));
    if (map_has_key(msg, f, entry))
        return path_err(p, e, "given twice");
    TRY(yaml_reader_next(r, e));
    TRY(parse_value(r, value, field_value(entry, value), p, e));
    path_pop(p, mark);
    return ST_OK;
}

static status_t parse_map(struct yaml_reader *r, ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f,
                          struct field_path *p, struct err *e) {
    if (r->event.type != YAML_MAPPING_START_EVENT)
        return not_what(r, "a mapping", p, e);
    for (size_t i = 0;; i++) {
        TRY(yaml_reader_next(r, e));
        if (r->event.type == YAML_MAPPING_END_EVENT)
            return ST_OK;
        if (i == MAP_ENTRIES)
            return path_err(p, e, "more than %d entries", MAP_ENTRIES);
        ProtobufCMessage *entry = message_new(f->descriptor);
        status_t st = parse_map_entry(r, msg, f, entry, p, e);
        if (st != ST_OK) {
            protobuf_c_message_free_unpacked(entry, NULL);
            return st;
        }
        *(ProtobufCMessage **)field_append(msg, f, 1) = entry;
    }
}

static status_t oneof_conflict(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f, struct field_path *p,
                               size_t parent, struct err *e) {
    char names[200];
    oneof_member_names(msg->descriptor, f, names, sizeof names);
    path_pop(p, parent);
    return path_err(p, e, "give exactly one of %s", names);
}

/* `micro_batch: auto` sets micro_batch_auto and leaves micro_batch absent. */
static bool take_auto(const struct yaml_reader *r, ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f) {
    const ProtobufCFieldDescriptor *word = field_auto(msg->descriptor, f);
    if (!word || r->event.type != YAML_SCALAR_EVENT || r->event.data.scalar.length != 4 ||
        memcmp(r->event.data.scalar.value, "auto", 4) != 0)
        return false;
    *(protobuf_c_boolean *)field_value(msg, word) = true;
    return true;
}

/* The path p already contains the field; `parent` is the mark of its parent. */
static status_t parse_singular(struct yaml_reader *r, ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f,
                               struct field_path *p, size_t parent, struct err *e) {
    if (field_is_oneof(f) && oneof_case(msg, f) != 0)
        return oneof_conflict(msg, f, p, parent, e);
    if (take_auto(r, msg, f))
        return ST_OK;
    TRY(parse_value(r, f, field_value(msg, f), p, e));
    if (field_is_oneof(f))
        oneof_set_case(msg, f);
    return ST_OK;
}

/* `data: {min: 2, max: 8}` sets the message that the option `mapping` of the field names. */
static const ProtobufCFieldDescriptor *take_mapping(const struct yaml_reader *r, const ProtobufCMessage *msg,
                                                    const ProtobufCFieldDescriptor *f) {
    const ProtobufCFieldDescriptor *mapping = r->event.type == YAML_MAPPING_START_EVENT
                                                  ? field_mapping(msg->descriptor, f)
                                                  : NULL;
    return mapping ? mapping : f;
}

status_t parse_field(struct yaml_reader *r, ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f,
                     struct field_path *p, struct err *e) {
    size_t mark = path_push(p, f->name, strlen(f->name));
    f = take_mapping(r, msg, f);
    bool message = f->type == PROTOBUF_C_TYPE_MESSAGE && !field_is_repeated(f) && !field_is_timestamp(f);
    bool absent = yaml_reader_at_null(r) && !(message && yaml_reader_at_empty(r));
    status_t st = absent                 ? ST_OK
                  : field_is_map(f)      ? parse_map(r, msg, f, p, e)
                  : field_is_repeated(f) ? parse_list(r, msg, f, p, e)
                                         : parse_singular(r, msg, f, p, mark, e);
    path_pop(p, mark);
    return st;
}

status_t parse_message(struct yaml_reader *r, ProtobufCMessage *msg, struct field_path *p, struct err *e) {
    uint64_t seen[MESSAGE_FIELDS / 64] = { 0 };
    assert(msg->descriptor->n_fields <= MESSAGE_FIELDS);
    for (;;) {
        TRY(yaml_reader_next(r, e));
        if (r->event.type == YAML_MAPPING_END_EVENT)
            return ST_OK;
        if (r->event.type != YAML_SCALAR_EVENT)
            return not_what(r, "a field's name", p, e);
        const ProtobufCFieldDescriptor *f = NULL;
        TRY(field_find(msg->descriptor, (const char *)r->event.data.scalar.value, r->event.data.scalar.length, p, &f,
                       e));
        size_t i = (size_t)(f - msg->descriptor->fields);
        if (seen[i / 64] >> (i % 64) & 1) {
            (void)path_push(p, f->name, strlen(f->name));
            return path_err(p, e, "given twice");
        }
        seen[i / 64] |= (uint64_t)1 << (i % 64);
        bool quoted = r->event.data.scalar.style == YAML_DOUBLE_QUOTED_SCALAR_STYLE;
        TRY(yaml_reader_next(r, e));
        if (quoted && r->json && yaml_reader_at_empty(r)) {
            (void)path_push(p, f->name, strlen(f->name));
            return path_err(p, e, "its value is missing in line %zu", r->event.start_mark.line + 1);
        }
        TRY(parse_field(r, msg, f, p, e));
    }
}

static status_t parse_document(struct yaml_reader *r, ProtobufCMessage *msg, codec_advice *advice, struct err *e) {
    struct field_path p = { .root = msg->descriptor, .advice = advice };
    if (r->event.type == YAML_STREAM_END_EVENT)
        return ST_OK;
    if (r->event.type == YAML_MAPPING_START_EVENT)
        TRY(parse_message(r, msg, &p, e));
    else if (!yaml_reader_at_null(r))
        return not_what(r, "a mapping", &p, e);
    return yaml_reader_finish(r, e);
}

status_t codec_parse(const ProtobufCMessageDescriptor *desc, const char *text, size_t n,
                     const struct codec_options *options, ProtobufCMessage **ret, struct err *e) {
    struct yaml_reader r;
    TRY(yaml_reader_open(&r, text, n, options, e));
    ProtobufCMessage *msg = message_new(desc);
    status_t st = parse_document(&r, msg, options ? options->advice : NULL, e);
    yaml_reader_close(&r);
    if (st != ST_OK) {
        protobuf_c_message_free_unpacked(msg, NULL);
        return st;
    }
    *ret = msg;
    return ST_OK;
}
