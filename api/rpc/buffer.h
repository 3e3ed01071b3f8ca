/* Messages in gRPC's byte buffers. */
#ifndef API_RPC_BUFFER_H
#define API_RPC_BUFFER_H

#include "api/rpc/arena.h"
#include "base/status.h"

#include <grpc/byte_buffer.h>

/* The packed message; *ret_bytes is its length. The caller destroys it. */
grpc_byte_buffer *buffer_pack(const ProtobufCMessage *, size_t *ret_bytes);

/* Like decode_message and decode_message_owned (limit LIMIT_RPC_DECODE_BYTES), for a received buffer, which the caller
 * still owns. gRPC has decompressed it already. */
MUST_CHECK status_t buffer_decode(grpc_byte_buffer *, const ProtobufCMessageDescriptor *, struct arena *,
                                  ProtobufCMessage **ret, struct err *e);
MUST_CHECK status_t buffer_decode_owned(grpc_byte_buffer *, const ProtobufCMessageDescriptor *, ProtobufCMessage **ret,
                                        struct err *e);

#endif
