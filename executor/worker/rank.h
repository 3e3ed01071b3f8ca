/* One rank's work, from the agent's first command to its exit reason. */
#ifndef EXECUTOR_WORKER_RANK_H
#define EXECUTOR_WORKER_RANK_H

#include "executor/worker/control.h"
#include "executor/worker/emit.h"

/* The exit reason, as WorkerEnd reports it. */
struct rank_end {
    Trainyard__V1__WorkerEnd__Cause cause;
    struct err why; /* one sentence; "" with FINISHED */
    int64_t step;
    char weights_sha256[65];
};

/* Joins the other ranks, trains to the end or to a stop, and reports. */
void rank_train(const Trainyard__V1__WorkerStart *start, struct control *control, struct emitter *emitter,
                struct rank_end *ret);

/* Before a check, and before a sandbox forbids it: the process lowers its priority, limits itself to 4 GiB, and is the
 * first that the kernel kills when memory runs short. */
void rank_check_prepare(void);
/* Checks whether a job could run here (check.h) and reports CheckFinding records. INTERNAL: the check did not
 * finish. */
void rank_check(const Trainyard__V1__WorkerCheck *check, struct emitter *emitter, struct rank_end *ret);

/* Encodes a text into the token cache of this host, and reports it as TextEncoded records. */
void rank_encode(const Trainyard__V1__WorkerEncode *encode, struct emitter *emitter, struct rank_end *ret);

/* Writes text from a checkpoint as SampleText records, or verifies its bytes. */
void rank_sample(const Trainyard__V1__WorkerSample *sample, struct control *control, struct emitter *emitter,
                 struct rank_end *ret);

#endif
