/* Converts a job's state between its row and the scheduler. */
#ifndef SERVICE_CONTROLLER_ROW_STATE_H
#define SERVICE_CONTROLLER_ROW_STATE_H

#include "service/scheduler/job_state.h"
#include "service/store/state.h"

enum job_state row_state_read(enum store_job_state state);
enum store_job_state row_state_write(enum job_state state);

/* True for the row states SUCCEEDED, FAILED and CANCELLED. */
bool row_state_final(enum store_job_state state);

#endif
