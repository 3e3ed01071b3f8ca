/* Checks that protobuf-c does not make before it decodes: walks a message's bytes, guided by its descriptor.
 *
 * Refused, each with the path of the field ("spec.data.text.files[1]: the text is not valid UTF-8"): strings that are
 * not UTF-8 or contain a NUL (C code would silently end them there), nesting deeper than RPC_MAX_NESTING (the decoder
 * recurses without a limit), a field with a wrong wire type, groups, and truncated data. Unknown fields are accepted.
 * Pure. */
#ifndef API_RPC_WIRE_H
#define API_RPC_WIRE_H

#include "base/status.h"

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

MUST_CHECK status_t wire_check(const ProtobufCMessageDescriptor *, const uint8_t *data, size_t n, struct err *e);

#endif
