/* Who submits or imports a job. */
#ifndef SERVICE_RPC_SUBMITTER_H
#define SERVICE_RPC_SUBMITTER_H

#include "api/rpc/access.h"

/* The name of the call's token; without a token, the name that the request gives. The string is that of the call or the
 * request. INVALID_ARGUMENT: the given name is not UTF-8 of at most 128 bytes. */
MUST_CHECK status_t submitter_name(const struct rpc_call *call, const char *given, const char **ret, struct err *e);

#endif
