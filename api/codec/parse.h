/* YAML events into message fields. Internal to this folder: codec_parse and codec_set_path use it. */
#ifndef API_CODEC_PARSE_H
#define API_CODEC_PARSE_H

#include "api/codec/yaml_reader.h"
#include "base/status.h"

#include <protobuf-c/protobuf-c.h>

/* The most bytes of a map key. YAML reads a key of at most 1,024 characters, counted as written, and one character
 * takes up to six in its longest escape. */
enum { MAP_KEY_BYTES = 128 };

/* The position of a value, for error messages: "model.gpt.heads", "data.text.files[1]", "labels.team". */
struct field_path {
    char text[256];
    size_t len;
    const ProtobufCMessageDescriptor *root; /* the message at which the path begins */
    codec_advice *advice;                   /* or NULL */
};

/* Appends ".name" (or "name" at the root), at most 64 bytes of it, with control characters as '?'. Returns a mark;
 * path_pop(p, mark) restores the path. */
size_t path_push(struct field_path *p, const char *name, size_t n);
size_t path_push_index(struct field_path *p, size_t index);
void path_pop(struct field_path *p, size_t mark);
/* Sets the error "<path>: <sentence>", or the sentence alone at the root. */
MUST_CHECK status_t path_err(const struct field_path *p, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Finds the field. If no field has the name, the error contains the hint that field_hint gives. */
MUST_CHECK status_t field_find(const ProtobufCMessageDescriptor *desc, const char *name, size_t n, struct field_path *p,
                               const ProtobufCFieldDescriptor **ret, struct err *e);

/* hint.c: writes a hint for a name that desc does not have, at path p: advice, the nearest name, another place where a
 * field has this name, or the known names. */
void field_hint(const ProtobufCMessageDescriptor *desc, const char *name, size_t n, const struct field_path *p,
                char *ret, size_t cap);

/* Parses the value that the current event begins. Afterwards the current event is the last one of the value. After an
 * error msg contains only whole values and may be freed. */
MUST_CHECK status_t parse_field(struct yaml_reader *r, ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f,
                                struct field_path *p, struct err *e);
/* Parses a mapping into msg. The current event is the start of the mapping. */
MUST_CHECK status_t parse_message(struct yaml_reader *r, ProtobufCMessage *msg, struct field_path *p, struct err *e);

#endif
