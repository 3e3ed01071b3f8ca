/* Setting one field of a message by its path, for --set key.path=value.
 *
 * The path is followed from message to message; missing messages on the way are created. At the last field, a text
 * value is taken as it is. Every other value is parsed as YAML into a scratch message, and the field is then moved to
 * the message, so that a bad value changes nothing. Below a map of texts, the rest of the path is the key of one entry.
 * Below a map of messages, the next part is the key, and the rest is a path in that message. */
#include "api/codec/field_option.h"
#include "api/codec/message.h"
#include "api/codec/parse.h"
#include "api/codec/scalar.h"
#include "api/codec/text.h"
#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

/* Moves field f from `from` to msg and leaves `from` empty. At most the field f is set in `from`. */
static void field_move(ProtobufCMessage *msg, ProtobufCMessage *from, const ProtobufCFieldDescriptor *f) {
    const ProtobufCFieldDescriptor *word = field_auto(msg->descriptor, f);
    if (word) /* the number and the word replace each other */
        memcpy(field_value(msg, word), field_value(from, word), field_element_bytes(word));
    const ProtobufCFieldDescriptor *mapping = field_mapping(msg->descriptor, f);
    if (mapping) { /* the number and the mapping replace each other */
        field_clear(msg, mapping);
        memcpy(field_value(msg, mapping), field_value(from, mapping), field_element_bytes(mapping));
        if (field_is_set(msg, mapping)) {
            field_clear(msg, f);
            protobuf_c_message_init(msg->descriptor, from);
            return;
        }
    }
    if (field_is_oneof(f) && !oneof_case(from, f) && !field_is_set(msg, f))
        return; /* null for a member that is not set: the member that is set stays */
    field_clear(msg, f);
    if (field_is_repeated(f)) {
        memcpy(field_value(msg, f), field_value(from, f), sizeof(void *));
        memcpy((char *)msg + f->quantifier_offset, (char *)from + f->quantifier_offset, sizeof(size_t));
    } else {
        memcpy(field_value(msg, f), field_value(from, f), field_element_bytes(f));
    }
    if (field_is_oneof(f) && oneof_case(from, f))
        oneof_set_case(msg, f);
    protobuf_c_message_init(msg->descriptor, from);
}

/* Reads the value of f as YAML into a scratch message, so that a bad value leaves msg unchanged. */
static status_t set_from_yaml(ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f, const char *value,
                              struct field_path *p, struct err *e) {
    struct yaml_reader r;
    TRY(yaml_reader_open(&r, value, strlen(value), NULL, e));
    ProtobufCMessage *scratch = message_new(msg->descriptor);
    status_t st = parse_field(&r, scratch, f, p, e);
    if (st == ST_OK)
        st = yaml_reader_finish(&r, e);
    if (st == ST_OK)
        field_move(msg, scratch, f);
    protobuf_c_message_free_unpacked(scratch, NULL);
    yaml_reader_close(&r);
    return st;
}

/* Text is used as the shell passed it: "--set name=a: b" needs no second layer of quotes. */
static status_t set_text(ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f, const char *value,
                         struct field_path *p, struct err *e) {
    char *copy = NULL;
    status_t st = scalar_parse(f, value, strlen(value), &copy, e);
    if (st != ST_OK) {
        (void)path_push(p, f->name, strlen(f->name));
        return err_prefix(e, st, "%s: ", p->text);
    }
    field_clear(msg, f);
    *(char **)field_value(msg, f) = copy;
    if (field_is_oneof(f))
        oneof_set_case(msg, f);
    return ST_OK;
}

static ProtobufCMessage *map_find(ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f, const char *key) {
    const ProtobufCMessageDescriptor *entry = f->descriptor;
    size_t n;
    ProtobufCMessage **entries = field_elements(msg, f, &n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(*(char **)field_value(entries[i], &entry->fields[0]), key) == 0)
            return entries[i];
    return NULL;
}

/* labels.team=research: everything after the name of the map is the key, including dots. */
static status_t set_map_entry(ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f, const char *key,
                              const char *value, struct field_path *p, struct err *e) {
    const ProtobufCMessageDescriptor *desc = f->descriptor;
    (void)path_push(p, f->name, strlen(f->name));
    if (desc->fields[0].type != PROTOBUF_C_TYPE_STRING || desc->fields[1].type != PROTOBUF_C_TYPE_STRING)
        return path_err(p, e, "single entries can be set in maps from text to text only");
    if (strlen(key) > MAP_KEY_BYTES)
        return path_err(p, e, "a key has at most %d bytes", MAP_KEY_BYTES);
    ProtobufCMessage *entry = map_find(msg, f, key);
    if (entry)
        return set_text(entry, &desc->fields[1], value, p, e);
    entry = message_new(desc);
    status_t st = set_text(entry, &desc->fields[0], key, p, e);
    if (st == ST_OK)
        st = set_text(entry, &desc->fields[1], value, p, e);
    if (st != ST_OK) {
        protobuf_c_message_free_unpacked(entry, NULL);
        return st;
    }
    *(ProtobufCMessage **)field_append(msg, f, 1) = entry;
    return ST_OK;
}

/* Moves *msg to its submessage f, which is created if it is not set. */
static status_t enter(ProtobufCMessage **msg, const ProtobufCFieldDescriptor *f, struct field_path *p, struct err *e) {
    (void)path_push(p, f->name, strlen(f->name));
    const ProtobufCFieldDescriptor *mapping = field_mapping((*msg)->descriptor, f);
    if (mapping) { /* the members of the mapping replace the number */
        field_clear(*msg, f);
        f = mapping;
    }
    if (f->type != PROTOBUF_C_TYPE_MESSAGE || field_is_repeated(f) || field_is_timestamp(f))
        return path_err(p, e, "has no fields: it holds %s", field_is_repeated(f) ? "a list" : scalar_expected(f));
    if (!field_is_set(*msg, f)) {
        ProtobufCMessage *made = message_new(f->descriptor);
        field_clear(*msg, f);
        *(ProtobufCMessage **)field_value(*msg, f) = made;
        if (field_is_oneof(f))
            oneof_set_case(*msg, f);
    }
    *msg = *(ProtobufCMessage **)field_value(*msg, f);
    return ST_OK;
}

/* sources.web.weight=0.5: *path is behind the name of the map, and then behind the key. */
static status_t enter_map(ProtobufCMessage **msg, const ProtobufCFieldDescriptor *f, const char **path,
                          struct field_path *p, struct err *e) {
    const ProtobufCFieldDescriptor *key = &((const ProtobufCMessageDescriptor *)f->descriptor)->fields[0],
                                   *value = key + 1;
    char name[MAP_KEY_BYTES + 1];
    const size_t n = strcspn(*path, ".");
    (void)path_push(p, f->name, strlen(f->name));
    if (n == 0 || n > MAP_KEY_BYTES || (*path)[n] == '\0')
        return path_err(p, e, "name an entry, with at most %d bytes, and a field of it", MAP_KEY_BYTES);
    memcpy(name, *path, n);
    name[n] = '\0';
    (void)path_push(p, name, n);
    ProtobufCMessage *entry = map_find(*msg, f, name);
    if (!entry) {
        entry = message_new(f->descriptor);
        *(char **)field_value(entry, key) = alloc_copy_text(name);
        *(ProtobufCMessage **)field_append(*msg, f, 1) = entry;
    }
    if (!field_is_set(entry, value))
        *(ProtobufCMessage **)field_value(entry, value) = message_new(value->descriptor);
    *msg = *(ProtobufCMessage **)field_value(entry, value);
    *path += n + 1;
    return ST_OK;
}

static bool has_messages(const ProtobufCFieldDescriptor *map) {
    const ProtobufCFieldDescriptor *entry = ((const ProtobufCMessageDescriptor *)map->descriptor)->fields;
    return entry[0].type == PROTOBUF_C_TYPE_STRING && entry[1].type == PROTOBUF_C_TYPE_MESSAGE;
}

static status_t set_last(ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f, const char *value,
                         struct field_path *p, struct err *e) {
    if (*value == '\0') {
        if (!field_is_oneof(f) || field_is_set(msg, f))
            field_clear(msg, f);
        const ProtobufCFieldDescriptor *word = field_auto(msg->descriptor, f);
        if (word)
            field_clear(msg, word);
        const ProtobufCFieldDescriptor *mapping = field_mapping(msg->descriptor, f);
        if (mapping)
            field_clear(msg, mapping);
        return ST_OK;
    }
    if (f->type == PROTOBUF_C_TYPE_STRING && !field_is_repeated(f))
        return set_text(msg, f, value, p, e);
    status_t st = set_from_yaml(msg, f, value, p, e);
    bool placed = st == ST_OK || !e || strncmp(e->msg, "line ", 5) != 0;
    (void)path_push(p, f->name, strlen(f->name));
    return placed ? st : err_prefix(e, st, "%s: ", p->text); /* syntax errors of YAML have a line, but no path */
}

status_t codec_set_path(ProtobufCMessage *msg, const char *path, const char *value, const struct codec_options *options,
                        struct err *e) {
    struct field_path p = { .root = msg->descriptor, .advice = options ? options->advice : NULL };
    for (;;) {
        const ProtobufCFieldDescriptor *f = NULL;
        size_t n = strcspn(path, ".");
        TRY(field_find(msg->descriptor, path, n, &p, &f, e));
        if (path[n] == '\0')
            return set_last(msg, f, value, &p, e);
        path += n + 1;
        if (!field_is_map(f))
            TRY(enter(&msg, f, &p, e));
        else if (has_messages(f))
            TRY(enter_map(&msg, f, &path, &p, e));
        else
            return set_map_entry(msg, f, path, value, &p, e);
    }
}
