/* YAML events into message fields. Internal to this folder: codec_parse and codec_set_path stand on it. */
#ifndef API_CODEC_PARSE_H
#define API_CODEC_PARSE_H

#include "api/codec/yaml_reader.h"
#include "base/status.h"

#include <protobuf-c/protobuf-c.h>

/* YAML takes a key of at most 1,024 characters as written; six are needed for one in its worst escape. */
enum { MAP_KEY_BYTES = 128 };

/* Where a value stands, for sentences: "model.gpt.heads", "data.text.files[1]", "labels.team". */
struct field_path {
    char text[256];
    size_t len;
};

/* Appends ".name" (or "name" at the root), control characters as '?', 64 bytes of it at most; returns what to give to
 * path_pop to come back. */
size_t path_push(struct field_path *p, const char *name, size_t n);
size_t path_push_index(struct field_path *p, size_t index);
void path_pop(struct field_path *p, size_t mark);
/* "<path>: <sentence>"; the sentence alone at the root. */
MUST_CHECK status_t path_err(const struct field_path *p, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The field, or a sentence with the nearest name. */
MUST_CHECK status_t field_find(const ProtobufCMessageDescriptor *desc, const char *name, size_t n, struct field_path *p,
                               const ProtobufCFieldDescriptor **ret, struct err *e);

/* The current event begins the value. Afterwards the current event is the value's last one. On failure msg holds only
 * whole values and may be freed. */
MUST_CHECK status_t parse_field(struct yaml_reader *r, ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f,
                                struct field_path *p, struct err *e);
/* The current event is the mapping's start; the fields are put into msg. */
MUST_CHECK status_t parse_message(struct yaml_reader *r, ProtobufCMessage *msg, struct field_path *p, struct err *e);

#endif
