#include "service/rpc/submitter.h"

#include "base/utf8.h"

#include <string.h>

enum { NAME_BYTES_MAX = 128 }; /* as documented in the proto */

status_t submitter_name(const struct rpc_call *call, const char *given, const char **ret, struct err *e) {
    const size_t n = strlen(given);
    if (n > NAME_BYTES_MAX || !utf8_valid(given, n))
        return err_set(e, ST_INVALID_ARGUMENT, "user: is not UTF-8 of at most %d bytes", NAME_BYTES_MAX);
    *ret = *rpc_caller(call) ? rpc_caller(call) : given;
    return ST_OK;
}
