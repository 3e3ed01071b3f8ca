/* The problems of a spec in replies and errors. */
#ifndef SERVICE_RPC_REFUSAL_H
#define SERVICE_RPC_REFUSAL_H

#include "api/rpc/server.h"
#include "api/spec/spec.h"

/* Returns INVALID_ARGUMENT with the reason SPEC_INVALID and as many problems as fit into one sentence. The first
 * problem is cut if it is longer than the sentence may be. */
MUST_CHECK status_t refuse_spec(struct rpc_call *call, const struct spec_problems *problems, struct err *e);

/* The lines as pointers for a message, and their number. They point into p. */
size_t lines_of(const struct spec_problems *p, char *ret[SPEC_PROBLEMS]);

#endif
