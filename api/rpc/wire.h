/* What protobuf-c does not check before it decodes: a message's bytes are walked by their descriptor.
 *
 * Refused, each with the path of the field ("spec.data.text.files[1]: the text is not valid UTF-8"): strings that are
 * not UTF-8 or hold a NUL (they would end there silently), nesting deeper than RPC_NESTING_MOST (the decoder recurses
 * without a limit), a field of another wire type than its own, groups, and anything cut short. Unknown fields pass.
 * Pure. */
#ifndef API_RPC_WIRE_H
#define API_RPC_WIRE_H

#include "base/status.h"

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

MUST_CHECK status_t wire_check(const ProtobufCMessageDescriptor *, const uint8_t *data, size_t n, struct err *e);

#endif
