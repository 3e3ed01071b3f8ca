#include "service/rpc/convert_state.h"

#define SAME(kind, message, name)                                                                                      \
    _Static_assert((int)STORE_##kind##_##name == (int)TRAINYARD__V1__##message##__STATE__##name, #kind " " #name)
SAME(JOB, JOB, QUEUED);
SAME(JOB, JOB, STARTING);
SAME(JOB, JOB, RUNNING);
SAME(JOB, JOB, RESTARTING);
SAME(JOB, JOB, PREEMPTING);
SAME(JOB, JOB, PAUSING);
SAME(JOB, JOB, PAUSED);
SAME(JOB, JOB, CANCELLING);
SAME(JOB, JOB, SUCCEEDED);
SAME(JOB, JOB, FAILED);
SAME(JOB, JOB, CANCELLED);
SAME(ATTEMPT, ATTEMPT, STARTING);
SAME(ATTEMPT, ATTEMPT, RUNNING);
SAME(ATTEMPT, ATTEMPT, ENDING);
SAME(ATTEMPT, ATTEMPT, ENDED);
SAME(CHECKPOINT, CHECKPOINT, WRITING);
SAME(CHECKPOINT, CHECKPOINT, COMMITTED);
SAME(CHECKPOINT, CHECKPOINT, CORRUPT);
SAME(CHECKPOINT, CHECKPOINT, DELETING);
SAME(CHECKPOINT, CHECKPOINT, DELETED);
SAME(CHECKPOINT, CHECKPOINT, MISSING);
SAME(EXECUTOR, EXECUTOR, ATTACHED);
SAME(EXECUTOR, EXECUTOR, LOST);
SAME(SWEEP, SWEEP, RUNNING);
SAME(SWEEP, SWEEP, CANCELLING);
SAME(SWEEP, SWEEP, SUCCEEDED);
SAME(SWEEP, SWEEP, FAILED);
SAME(SWEEP, SWEEP, CANCELLED);

Trainyard__V1__Job__State convert_job_state(enum store_job_state state) { return (Trainyard__V1__Job__State)state; }

Trainyard__V1__Attempt__State convert_attempt_state(enum store_attempt_state state) {
    return (Trainyard__V1__Attempt__State)state;
}

Trainyard__V1__Checkpoint__State convert_checkpoint_state(enum store_checkpoint_state state) {
    return (Trainyard__V1__Checkpoint__State)state;
}

Trainyard__V1__Executor__State convert_executor_state(enum store_executor_state state) {
    return (Trainyard__V1__Executor__State)state;
}

int convert_job_state_filter(Trainyard__V1__Job__State state) { return (int)state; }

Trainyard__V1__Sweep__State convert_sweep_state(enum store_sweep_state state) {
    return (Trainyard__V1__Sweep__State)state;
}
