/* Rows of jobs, attempts and events as messages. Strings stay where the store put them: a message lives no longer than
 * the arena and the store's memory. Where the arena is refused memory, they are NULL or have holes: arena_status. */
#ifndef SERVICE_RPC_CONVERT_JOB_H
#define SERVICE_RPC_CONVERT_JOB_H

#include "service/rpc/arena.h"
#include "service/store/attempt.h"
#include "service/store/event.h"
#include "service/store/job.h"

#include <trainyard/v1/job.pb-c.h>

/* NULL also for 0: "there is none". */
Google__Protobuf__Timestamp *convert_timestamp(struct arena *a, int64_t time_us);
Trainyard__V1__Job *convert_job(struct arena *a, const struct store_job *row);
/* Of what convert_job has made of the job, which is there, as is convert_origin's. */
void convert_attempts(struct arena *a, int64_t job, const struct store_attempt *rows, size_t n,
                      Trainyard__V1__Job *ret);
/* What the job began with; step: of the checkpoint. */
void convert_origin(struct arena *a, const struct store_origin *origin, int64_t step, Trainyard__V1__Job *ret);
Trainyard__V1__Event *convert_event(struct arena *a, const struct store_event *row);

#endif
