/* One rank's work, from the agent's first command to the last word. */
#ifndef EXECUTOR_WORKER_RANK_H
#define EXECUTOR_WORKER_RANK_H

#include "executor/worker/control.h"
#include "executor/worker/emit.h"

/* How the rank ended: what WorkerEnd says. */
struct rank_end {
    Trainyard__V1__WorkerEnd__Cause cause;
    struct err why; /* one sentence; "" with FINISHED */
    int64_t step;
    char weights_sha256[65];
};

/* Meets the other ranks, trains to the end or to a stop, and reports on the way. */
void rank_train(const Trainyard__V1__WorkerStart *start, struct control *control, struct emitter *emitter,
                struct rank_end *ret);

/* Writes text from a checkpoint as SampleText records. */
void rank_sample(const Trainyard__V1__WorkerSample *sample, struct control *control, struct emitter *emitter,
                 struct rank_end *ret);

#endif
