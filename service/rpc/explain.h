/* JobService.ExplainJob: the scheduler's explanation of a job, completed from rows: which jobs hold the slots and since
 * when, the reasons that executors report about themselves, the failure that caused a backoff, an origin that no longer
 * exists. */
#ifndef SERVICE_RPC_EXPLAIN_H
#define SERVICE_RPC_EXPLAIN_H

#include "api/rpc/server.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* service: the controller. */
MUST_CHECK status_t explain_job(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e);

/* The time at which an attempt ends if its speed does not change. It began at start_us with from_step, and is at `step`
 * of `steps` now. 0 if there is no estimate, for example before its first step. All times in microseconds. */
int64_t explain_end_estimate_us(int64_t start_us, int64_t now_us, int64_t from_step, int64_t step, int64_t steps);

/* The time at which `lacking` more slots are free, if each holder gives back its n slots at ends_us (0 = not known). 0
 * if the holders with a known end do not have enough slots. Also 0 if `others` hold slots and are not listed, because
 * any of these may end sooner. */
struct explain_slots {
    int64_t ends_us;
    int n;
};
int64_t explain_start_estimate_us(struct explain_slots *holders /* reordered */, size_t n, bool others, int lacking);

#endif
