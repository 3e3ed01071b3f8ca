/* The echo service, for servers in tests and for the program rpc_echo_server.
 *
 * Unary: text "fail" is NOT_FOUND with reason ECHO_FAILED, "left" answers the time it has, "caller" who calls, "block"
 * waits until `released` is set or the call ends, "big" answers with 5 MiB, "silent" gives no answer, anything else
 * comes back with number and blob. Count: n replies. Sum: adds numbers. Chat: echoes; "pause" stops reading for good,
 * "finish" ends with ABORTED. */
#ifndef TESTS_RPC_ECHO_H
#define TESTS_RPC_ECHO_H

#include "api/rpc/client.h"
#include "api/rpc/server.h"

#include <echo.pb-c.h>
#include <stdatomic.h>

struct echo {
    atomic_int blocked;   /* handlers that wait in "block" */
    atomic_int streams;   /* streams that are open */
    atomic_int cancelled; /* calls whose done said CANCELLED, or whose handler saw rpc_cancelled */
    atomic_int done;      /* streams whose done came */
    atomic_bool released;
    atomic_int work_at_once, work_most; /* `work` of one call never runs twice at once */
};

MUST_CHECK status_t echo_add(struct rpc_server *, struct echo *, struct err *e);
/* A server with the echo service, not yet listening. config may be NULL; its descriptors are set here. */
MUST_CHECK status_t echo_open(const struct rpc_server_config *, struct echo *, struct rpc_server **ret, struct err *e);

#endif
