/* The echo service, for servers in tests and for the program rpc_echo_server.
 *
 * Unary replies with the text, number and blob of its request, except for some texts. "fail" returns NOT_FOUND with
 * reason ECHO_FAILED, "left" returns the time left, "caller" the caller's name, "block" waits until `released` is set
 * or the call ends, "big" returns 5 MiB, "silent" sends no reply, "away" returns UNAVAILABLE, "block, away" after it
 * has waited as "block" does. Count sends n replies. Sum adds numbers. Chat echoes; there "pause" ends reading, and
 * "finish" ends the call with ABORTED. */
#ifndef TESTS_RPC_ECHO_H
#define TESTS_RPC_ECHO_H

#include "api/rpc/client.h"
#include "api/rpc/server.h"

#include <echo.pb-c.h>
#include <stdatomic.h>

struct echo {
    atomic_int calls;     /* unary calls that its handler has run */
    atomic_int blocked;   /* handlers that wait in "block" */
    atomic_int streams;   /* open streams */
    atomic_int cancelled; /* calls that ended with CANCELLED, or whose handler saw rpc_cancelled */
    atomic_int done;      /* streams whose done callback ran */
    atomic_bool released;
    atomic_int work_at_once, work_most; /* `work` of one call never runs twice at the same time */
};

MUST_CHECK status_t echo_add(struct rpc_server *, struct echo *, struct err *e);
/* Opens a server with the echo service that does not listen yet. config may be NULL. Its descriptors are replaced by
 * echo's. */
MUST_CHECK status_t echo_open(const struct rpc_server_config *, struct echo *, struct rpc_server **ret, struct err *e);

#endif
