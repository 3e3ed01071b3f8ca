/* A server's grpc-status-details-bin, as the client reads it. */
#include "api/rpc/details.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    char reason[RPC_REASON_BYTES];
    memset(reason, 'x', sizeof reason);
    details_read(data, n, reason);
    if (!memchr(reason, '\0', sizeof reason))
        __builtin_trap();
    return 0;
}
