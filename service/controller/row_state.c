#include "service/controller/row_state.h"

#define SAME(name) _Static_assert((int)STORE_JOB_##name == (int)JOB_STATE_##name, #name)
SAME(QUEUED);
SAME(STARTING);
SAME(RUNNING);
SAME(RESTARTING);
SAME(PREEMPTING);
SAME(PAUSING);
SAME(PAUSED);
SAME(CANCELLING);
SAME(SUCCEEDED);
SAME(FAILED);
SAME(CANCELLED);

enum job_state row_state_read(enum store_job_state state) { return (enum job_state)state; }

enum store_job_state row_state_write(enum job_state state) { return (enum store_job_state)state; }

bool row_state_final(enum store_job_state state) { return job_state_final(row_state_read(state)); }
