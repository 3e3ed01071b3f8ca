/* A caller's `authorization` header, as the server reads it before it knows who calls. */
#include "api/rpc/bearer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const uint8_t *token;
    size_t bytes;
    if (!bearer_read(data, n, &token, &bytes))
        return 0;
    if (token < data || bytes == 0 || bytes > MAX_BEARER_BYTES || token + bytes != data + n)
        __builtin_trap();
    for (size_t i = 0; i < bytes; i++)
        if (token[i] <= ' ' || token[i] >= 127)
            __builtin_trap();
    return 0;
}
