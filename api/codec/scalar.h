/* Single values as text: the words of YAML and JSON scalars. Internal to this folder. Pure. */
#ifndef API_CODEC_SCALAR_H
#define API_CODEC_SCALAR_H

#include "base/bytes.h"
#include "base/status.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

/* Parses text of n bytes as f's type into the C value at `at` (field_element_bytes(f) bytes; strings and bytes become
 * malloc'ed copies). Not for messages. The error names the expected and the found value, without the path. */
MUST_CHECK status_t scalar_parse(const ProtobufCFieldDescriptor *f, const char *text, size_t n, void *at,
                                 struct err *e);

/* The expected type of value, for error messages: "an integer", "text", "a name". */
const char *scalar_expected(const ProtobufCFieldDescriptor *f);

/* Writes text in single quotes, for error messages: at most 40 bytes of it, with control characters as '?'. */
void scalar_quote(const char *text, size_t n, char ret[64]);

/* The name of an enum value, or NULL if this version does not know the value. */
const char *enum_name(const ProtobufCFieldDescriptor *f, int value);

MUST_CHECK status_t base64_print(const uint8_t *data, size_t n, struct bytes *ret, struct err *e);

#endif
