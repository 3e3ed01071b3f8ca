#include "api/rpc/buffer.h"

#include "api/rpc/decode.h"
#include "base/limits.h"

#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>

grpc_byte_buffer *buffer_pack(const ProtobufCMessage *message, size_t *ret_bytes) {
    size_t n = protobuf_c_message_get_packed_size(message);
    grpc_slice slice = grpc_slice_malloc(n);
    protobuf_c_message_pack(message, GRPC_SLICE_START_PTR(slice));
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    *ret_bytes = n;
    return buffer;
}

/* Returns the message as one slice: a message in several slices is joined. A small slice stores its bytes in the
 * struct. */
static status_t buffer_join(grpc_byte_buffer *buffer, grpc_slice *ret, struct err *e) {
    grpc_byte_buffer_reader reader;
    if (!grpc_byte_buffer_reader_init(&reader, buffer))
        return err_set(e, ST_INVALID_ARGUMENT, "the message cannot be decompressed");
    grpc_slice first;
    if (grpc_byte_buffer_reader_next(&reader, &first)) {
        if (GRPC_SLICE_LENGTH(first) == grpc_byte_buffer_length(buffer)) {
            *ret = first;
            grpc_byte_buffer_reader_destroy(&reader);
            return ST_OK;
        }
        grpc_slice_unref(first);
    }
    grpc_byte_buffer_reader_destroy(&reader);
    if (!grpc_byte_buffer_reader_init(&reader, buffer))
        return err_set(e, ST_INVALID_ARGUMENT, "the message cannot be decompressed");
    *ret = grpc_byte_buffer_reader_readall(&reader);
    grpc_byte_buffer_reader_destroy(&reader);
    return ST_OK;
}

status_t buffer_decode(grpc_byte_buffer *buffer, const ProtobufCMessageDescriptor *message, struct arena *arena,
                       ProtobufCMessage **ret, struct err *e) {
    grpc_slice bytes;
    TRY(buffer_join(buffer, &bytes, e));
    status_t st = decode_message(message, GRPC_SLICE_START_PTR(bytes), GRPC_SLICE_LENGTH(bytes), arena, ret, e);
    grpc_slice_unref(bytes);
    return st;
}

status_t buffer_decode_owned(grpc_byte_buffer *buffer, const ProtobufCMessageDescriptor *message,
                             ProtobufCMessage **ret, struct err *e) {
    grpc_slice bytes;
    TRY(buffer_join(buffer, &bytes, e));
    status_t st = decode_message_owned(message, GRPC_SLICE_START_PTR(bytes), GRPC_SLICE_LENGTH(bytes),
                                       LIMIT_RPC_DECODE_BYTES, ret, e);
    grpc_slice_unref(bytes);
    return st;
}
