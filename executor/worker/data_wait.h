/* A rank's wait for the copies of its remote data, which trainyard-data makes for all ranks of the host. */
#ifndef EXECUTOR_WORKER_DATA_WAIT_H
#define EXECUTOR_WORKER_DATA_WAIT_H

#include "executor/worker/control.h"
#include "executor/worker/data_list.h"
#include "executor/worker/emit.h"

/* Waits for the last report, and fills the list. What trainyard-data reports meanwhile becomes events and log lines.
 * After a failure *ret_cause is the cause of the rank's end. CANCELLED: the rank was asked to stop. */
MUST_CHECK status_t data_wait(const Trainyard__V1__JobSpec *spec, struct control *control, struct emitter *emitter,
                              struct data_list *list, Trainyard__V1__WorkerEnd__Cause *ret_cause, struct err *e);

#endif
