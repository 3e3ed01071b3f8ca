/* The checks before a sweep is stored, and of ValidateSweep. */
#ifndef SERVICE_RPC_SWEEP_JUDGE_H
#define SERVICE_RPC_SWEEP_JUDGE_H

#include "api/spec/sweep.h"
#include "service/rpc/submission.h"

struct sweep_request {
    const Trainyard__V1__SweepSpec *spec;
    bool wait_for_hosts, skip_check; /* of the first trial's job, as for CreateJob */
    int from, to;                    /* the trials whose specs are resolved; to 0: up to the last one */
    deadline_ms_t deadline;
    const struct rpc_call *call; /* the judgement ends with the call; NULL: only with the deadline */
};
struct sweep_judgement {
    Trainyard__V1__SweepSpec *spec; /* resolved; NULL if a field of the sweep is invalid */
    struct spec_problems problems;  /* one line each */
    struct submission first;        /* the checks of the first trial's job, with `unchecked` */
};

/* Resolves the sweep, then the specs of the trials, then makes the checks of CreateJob for the first trial: slots,
 * folders, secrets, a host. Returns ST_OK even if there are problems. UNAVAILABLE: this controller does not lead, or
 * SPEC_CHECK_MAX_CALLERS other specs are being checked. DEADLINE_EXCEEDED, CANCELLED: the call is over.
 * Always call sweep_judgement_done. */
MUST_CHECK status_t sweep_judge(struct controller *c, const struct sweep_request *request, struct sweep_judgement *ret,
                                struct err *e);
void sweep_judgement_done(struct sweep_judgement *j);

#endif
