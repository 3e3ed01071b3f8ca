/* JobService.ExplainJob: what the scheduler says of a job, with what the rows add: who holds the slots and since when,
 * what executors say of themselves, the failure behind a backoff, an origin that is gone. */
#ifndef SERVICE_RPC_EXPLAIN_H
#define SERVICE_RPC_EXPLAIN_H

#include "api/rpc/server.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* service: the controller. */
MUST_CHECK status_t explain_job(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e);

/* When an attempt that began at start_us with from_step, and is at `step` of `steps` now, ends if it goes on as it did;
 * 0 when that cannot be told: it has done no step yet. */
int64_t explain_end_estimate_us(int64_t start_us, int64_t now_us, int64_t from_step, int64_t step, int64_t steps);

/* When so many slots are free that their holders, each to end at ends_us (0 = not known), have given back `lacking`; 0
 * when those whose end is known do not suffice, and where there are others, any of which may end sooner. */
struct explain_slots {
    int64_t ends_us;
    int n;
};
int64_t explain_start_estimate_us(struct explain_slots *holders /* reordered */, size_t n, bool others, int lacking);

#endif
