/* Single values as text: the words that YAML and JSON scalars hold. Internal to this folder. Pure. */
#ifndef API_CODEC_SCALAR_H
#define API_CODEC_SCALAR_H

#include "base/bytes.h"
#include "base/status.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

/* Reads text of n bytes as f's type into the C value at `at` (field_element_bytes(f) bytes; strings and bytes become
 * malloc'ed copies). Not for messages. The error says what was expected and what was found, without the path. */
MUST_CHECK status_t scalar_parse(const ProtobufCFieldDescriptor *f, const char *text, size_t n, void *at,
                                 struct err *e);

/* What a person is told to write: "an integer", "text", "one of: QUEUED, ...". */
const char *scalar_expected(const ProtobufCFieldDescriptor *f);

/* text in single quotes for a sentence: at most 40 bytes of it, control characters as '?'. */
void scalar_quote(const char *text, size_t n, char ret[64]);

/* The name of an enum's value, or NULL for one that this version does not know. */
const char *enum_name(const ProtobufCFieldDescriptor *f, int value);

MUST_CHECK status_t base64_print(const uint8_t *data, size_t n, struct bytes *ret, struct err *e);

#endif
