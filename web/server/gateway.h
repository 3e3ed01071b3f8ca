/* Calls of the page: JSON in, one call of the controller, JSON out.
 *
 * A call is `Service/Method`, as in JobService/ListJobs. Only the methods in gateway.c's table can be called. The
 * controller checks the caller's rights. Thread-safe. */
#ifndef WEB_SERVER_GATEWAY_H
#define WEB_SERVER_GATEWAY_H

#include "api/rpc/client.h"
#include "base/bytes.h"

#define GATEWAY_REQUEST_BYTES ((size_t)1 << 20)
#define GATEWAY_ANSWER_BYTES  ((size_t)64 << 20)
#define GATEWAY_LINES         64 /* the most requests of gateway_call_lines */

/* Makes the call and appends the answer to ret, whose limit is GATEWAY_ANSWER_BYTES: the reply as JSON, or
 * {"status": "NOT_FOUND", "message": "...", "reason": "..."}. A method that streams answers with {"messages": [...],
 * "more": false}; `more` is true if the stream was left after about 1 MiB of text. Returns the status of
 * HTTP. */
unsigned gateway_call(struct rpc_channel *channel, const char *call, const char *request, size_t n, struct bytes *ret);

/* The same for several requests of one method, each on a line of its own: one after the other, because a browser spends
 * more time on a call than the controller. The answer is an array of the replies, in the order of the lines. If a call
 * fails, its failure is the answer to all, and no further call is made. */
unsigned gateway_call_lines(struct rpc_channel *channel, const char *call, const char *requests, size_t n,
                            struct bytes *ret);

#endif
