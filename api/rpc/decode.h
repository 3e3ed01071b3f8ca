/* Decodes a peer's bytes into a message, or returns an error for the peer. Pure; does not use gRPC. */
#ifndef API_RPC_DECODE_H
#define API_RPC_DECODE_H

#include "api/rpc/arena.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* Checks the bytes with wire_check, then unpacks them into the arena. INVALID_ARGUMENT for bytes that are not such a
 * message, RESOURCE_EXHAUSTED if the message needs more than the arena's limit. */
MUST_CHECK status_t decode_message(const ProtobufCMessageDescriptor *, const uint8_t *data, size_t n, struct arena *,
                                   ProtobufCMessage **ret, struct err *e);

/* The same into malloc'ed memory, at most `limit` bytes: free with protobuf_c_message_free_unpacked(m, NULL). */
MUST_CHECK status_t decode_message_owned(const ProtobufCMessageDescriptor *, const uint8_t *data, size_t n,
                                         size_t limit, ProtobufCMessage **ret, struct err *e);

#endif
