/* Messages as text: YAML and JSON in, proto3 JSON and YAML out, driven by protobuf-c descriptors.
 *
 * Reading. libyaml reads both (JSON is YAML's flow style; a JSON string's escapes are YAML's too). Field names are the
 * proto's, in snake_case. Refused, with the path and one sentence:
 *
 *   unknown fields      model.gpt.widht: unknown field; did you mean width?
 *   wrong types         train.steps: expected an integer, found 'many'
 *   duplicate keys      train.seed: given twice
 *   oneof conflicts     learning_rate_schedule: give exactly one of cosine, constant, linear
 *   enum names          state: 'READY' is not one of: QUEUED, STARTING, ...
 *   map keys above 128 bytes, maps of more than 1024 entries
 *   anchors, aliases, tags and more than one document; text that is not UTF-8; deeper or longer than the limits
 *
 * Rules of values: numbers may stand in quotes (proto3 JSON does so for 64 bits); an integer field takes no fraction
 * (1e3 is 1000) and no leading zero; a double also takes NaN, Infinity, -Infinity; bool is true or false; a string
 * field takes any scalar but an unquoted null; bytes are base64; a Timestamp is RFC 3339 in UTC or with an offset. An
 * unquoted null or an empty value means "not given"; for a message an empty value is an empty message ("constant:" is a
 * schedule). Where a message has the bool `x_auto` beside an integer `x`, x takes the word auto, which sets x_auto.
 *
 * Writing follows proto3 JSON with snake_case names: 64-bit integers as strings, enums by name, Timestamps as RFC 3339,
 * doubles in the fewest digits that read back the same ("NaN" and "Infinity" as strings), maps as objects, bytes as
 * base64. Presence: what has presence (messages, `optional`, oneofs) is left out when it is not set; scalars without
 * presence, repeated fields and maps are always written, also when they are zero or empty, so that scripts may rely on
 * the keys.
 *
 * Memory: a message is allocated with malloc piece by piece, exactly as protobuf_c_message_unpack does, so it may be
 * changed and is freed by protobuf_c_message_free_unpacked(msg, NULL), whoever made it. A text of n bytes decodes into
 * at most about 100 n bytes.
 *
 * All functions are pure and thread-safe. */
#ifndef API_CODEC_TEXT_H
#define API_CODEC_TEXT_H

#include "base/bytes.h"
#include "base/status.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

struct codec_limits {
    size_t text_bytes; /* 0 = LIMIT_SPEC_BYTES */
    int depth;         /* of nested mappings and sequences; 0 = LIMIT_SPEC_DEPTH */
};

/* Reads one YAML or JSON document of n bytes into a new message. An empty document is an empty message.
 * INVALID_ARGUMENT names the path ("train.steps: ...") or the line of a syntax error ("line 3: ...");
 * RESOURCE_EXHAUSTED for a text over its limits. limits NULL: those of a job spec. */
MUST_CHECK status_t codec_parse(const ProtobufCMessageDescriptor *desc, const char *text, size_t n,
                                const struct codec_limits *limits, ProtobufCMessage **ret, struct err *e);

/* Sets one field by its path, as `--set key.path=value` does: "train.steps" "200", "labels.team" "research",
 * "data.text.files" "[a, b]" (any value is read as YAML). Messages on the way are made; setting a member of a oneof
 * unsets the other; an empty value unsets the field. A message, list or map is replaced as a whole. INVALID_ARGUMENT
 * as codec_parse, and msg is then as it was but for empty messages made on the way. */
MUST_CHECK status_t codec_set_path(ProtobufCMessage *msg, const char *path, const char *value, struct err *e);

/* Appends the message, without a newline at the end. indent: spaces a level; 0 = all on one line. Fails only past
 * ret's limit. Strings that are not UTF-8 (a peer's bytes) are written with U+FFFD in the bad places. */
MUST_CHECK status_t codec_print_json(const ProtobufCMessage *msg, int indent, struct bytes *ret, struct err *e);

/* Appends the message as block-style YAML that codec_parse reads back, with a newline at the end. */
MUST_CHECK status_t codec_print_yaml(const ProtobufCMessage *msg, struct bytes *ret, struct err *e);

/* One double in the fewest digits that read back the same: "0.1", "1e-08", "NaN". ret has at least 32 bytes. */
void codec_double_text(double value, char ret[32]);

/* Appends s as a JSON string in quotes. */
MUST_CHECK status_t codec_json_string(const char *s, size_t n, struct bytes *ret, struct err *e);

#endif
