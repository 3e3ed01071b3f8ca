/* Messages as text: YAML and JSON in, proto3 JSON and YAML out, driven by protobuf-c descriptors.
 *
 * Reading. libyaml reads both formats (JSON is the flow style of YAML, and YAML knows the escapes of JSON strings).
 * Field names are the names of the proto, in snake_case. These are refused, with the path and one sentence:
 *
 *   unknown fields      model.gpt.widht: unknown field; did you mean width?
 *   misplaced fields    train.zero: unknown field; did you mean parallel.zero?
 *   wrong types         train.steps: expected an integer, found 'many'
 *   duplicate keys      train.seed: given twice
 *   oneof conflicts     learning_rate_schedule: give exactly one of cosine, constant, linear
 *   enum names          state: 'READY' is not one of: QUEUED, STARTING, ...
 *   map keys above 128 bytes, maps of more than 1024 entries
 *   anchors, aliases, tags and more than one document; text that is not UTF-8; deeper or longer than the limits
 *
 * Short forms. If a message is only a choice (all its fields are messages of one oneof), the name of a member means
 * that member without content: "optimizer: sgd" is "optimizer: {sgd: {}}".
 *
 * Rules for values:
 *   - Numbers may be in quotes (proto3 JSON does so for 64 bits). An integer field takes no fraction (1e3 is 1000) and
 *     no leading zero. A double also takes NaN, Infinity, -Infinity. bool is true or false.
 *   - A string field takes any scalar except an unquoted null. bytes are base64. A Timestamp is RFC 3339 in UTC or with
 *     an offset.
 *   - An unquoted null or an empty value means "not given". For a message an empty value is an empty message
 *     ("constant:" is a schedule), but not in JSON, where a name in quotes needs a value.
 *   - If a message has the bool `x_auto` beside an integer `x`, x takes the word auto, which sets x_auto.
 *   - If the option (field) of a field has `mapping: "y"`, a mapping that is given for the field is the message y, and
 *     y is written under the name of that field.
 *
 * Writing follows proto3 JSON with snake_case names: 64-bit integers as strings, enums by name, Timestamps as RFC 3339,
 * doubles in the fewest digits that read back the same ("NaN" and "Infinity" as strings), maps as objects, bytes as
 * base64. Fields with presence (messages, `optional`, oneofs) are left out if they are not set. Scalars without
 * presence, repeated fields and maps are always written, also if they are zero or empty, so that scripts may rely on
 * the keys.
 *
 * Memory: each part of a message is allocated with malloc, exactly as by protobuf_c_message_unpack. So the caller may
 * change a message from either source, and frees it with protobuf_c_message_free_unpacked(msg, NULL). A text of n bytes
 * decodes into at most about 100 n bytes.
 *
 * All functions are pure and thread-safe. */
#ifndef API_CODEC_TEXT_H
#define API_CODEC_TEXT_H

#include "base/bytes.h"
#include "base/status.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

/* Returns a hint for an unknown field name: "the learning rate is ...". NULL: no hint. */
typedef const char *codec_advice(const char *name);

/* Options for reading a text. Each may be left out (0 or NULL), and so may the whole struct (NULL). */
struct codec_options {
    size_t text_bytes; /* the most bytes of the text; 0 = LIMIT_SPEC_BYTES */
    int depth;         /* the most levels of nested mappings and sequences; 0 = LIMIT_SPEC_DEPTH */
    codec_advice *advice;
};

/* Reads one YAML or JSON document of n bytes into a new message. An empty document is an empty message.
 * INVALID_ARGUMENT names the path ("train.steps: ...") or the line of a syntax error ("line 3: ...");
 * RESOURCE_EXHAUSTED for a text over its limits. */
MUST_CHECK status_t codec_parse(const ProtobufCMessageDescriptor *desc, const char *text, size_t n,
                                const struct codec_options *options, ProtobufCMessage **ret, struct err *e);

/* Sets one field by its path, as `--set key.path=value` does: "train.steps" "200", "labels.team" "research",
 * "data.text.files" "[a, b]" (the value of a field that is not text is read as YAML). Missing messages on the way are
 * created. Setting a member of a oneof unsets the other. An empty value unsets the field. A message, list or map is
 * replaced as a whole. INVALID_ARGUMENT as for codec_parse; msg is then unchanged, except for empty messages created on
 * the way. */
MUST_CHECK status_t codec_set_path(ProtobufCMessage *msg, const char *path, const char *value,
                                   const struct codec_options *options, struct err *e);

/* Appends the message, without a newline at the end. indent: spaces for each level; 0 = all on one line. Fails only
 * past the limit of ret. Bytes of a string that are not UTF-8 (from a peer) are replaced by U+FFFD. */
MUST_CHECK status_t codec_print_json(const ProtobufCMessage *msg, int indent, struct bytes *ret, struct err *e);

/* Appends the message as block-style YAML that codec_parse reads back, with a newline at the end. */
MUST_CHECK status_t codec_print_yaml(const ProtobufCMessage *msg, struct bytes *ret, struct err *e);

/* Writes a double in the fewest digits that read back the same: "0.1", "1e-08", "NaN". ret has at least 32 bytes. */
void codec_double_text(double value, char ret[32]);

/* Appends s as a JSON string in quotes. */
MUST_CHECK status_t codec_json_string(const char *s, size_t n, struct bytes *ret, struct err *e);

#endif
