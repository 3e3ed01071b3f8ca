/* The check of a request by check_request of access.h. Internal to api/rpc. */
#ifndef API_RPC_REQUEST_CHECK_H
#define API_RPC_REQUEST_CHECK_H

#include "base/status.h"

#include <stdbool.h>

struct rpc_call;

/* Whether the request must be checked before the handler runs: it was not accepted yet. */
bool request_check_due(const struct rpc_call *);
/* On a worker thread, once the request has arrived: the result of the check, which is kept if it is ST_OK. */
MUST_CHECK status_t request_check(struct rpc_call *, struct err *e);

#endif
