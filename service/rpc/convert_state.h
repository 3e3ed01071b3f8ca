/* Converts states of rows to states of messages. */
#ifndef SERVICE_RPC_CONVERT_STATE_H
#define SERVICE_RPC_CONVERT_STATE_H

#include "service/store/state.h"

#include <trainyard/v1/checkpoint.pb-c.h>
#include <trainyard/v1/executor.pb-c.h>
#include <trainyard/v1/job.pb-c.h>
#include <trainyard/v1/sweep.pb-c.h>

Trainyard__V1__Job__State convert_job_state(enum store_job_state state);
Trainyard__V1__Attempt__State convert_attempt_state(enum store_attempt_state state);
Trainyard__V1__Checkpoint__State convert_checkpoint_state(enum store_checkpoint_state state);
Trainyard__V1__Executor__State convert_executor_state(enum store_executor_state state);

Trainyard__V1__Sweep__State convert_sweep_state(enum store_sweep_state state);

/* The state of a request's filter: 0 = all jobs. A number that is not a state matches no job. */
int convert_job_state_filter(Trainyard__V1__Job__State state);

#endif
