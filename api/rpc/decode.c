#include "api/rpc/decode.h"

#include "api/rpc/wire.h"

static status_t unpack(const ProtobufCMessageDescriptor *message, const uint8_t *data, size_t n, ProtobufCAllocator *a,
                       const bool *exhausted, size_t limit, ProtobufCMessage **ret, struct err *e) {
    TRY(wire_check(message, data, n, e));
    ProtobufCMessage *m = protobuf_c_message_unpack(message, a, n, n ? data : (const uint8_t *)"");
    if (!m && *exhausted)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "decoding %s of %zu bytes needs more than %zu bytes of memory",
                       message->name, n, limit);
    if (!m)
        return err_set(e, ST_INVALID_ARGUMENT, "the message is not a valid %s", message->name);
    *ret = m;
    return ST_OK;
}

status_t decode_message(const ProtobufCMessageDescriptor *message, const uint8_t *data, size_t n, struct arena *arena,
                        ProtobufCMessage **ret, struct err *e) {
    ProtobufCAllocator a = arena_allocator(arena);
    return unpack(message, data, n, &a, &arena->exhausted, arena->limit, ret, e);
}

status_t decode_message_owned(const ProtobufCMessageDescriptor *message, const uint8_t *data, size_t n, size_t limit,
                              ProtobufCMessage **ret, struct err *e) {
    struct budget budget = { .left = limit };
    ProtobufCAllocator a = budget_allocator(&budget);
    return unpack(message, data, n, &a, &budget.exhausted, limit, ret, e);
}
