/* Converts rows of jobs, attempts and events to messages. Strings are not copied: a message is valid as long as both
 * the arena and the store_memory of the row. */
#ifndef SERVICE_RPC_CONVERT_JOB_H
#define SERVICE_RPC_CONVERT_JOB_H

#include "service/rpc/arena.h"
#include "service/store/attempt.h"
#include "service/store/event.h"
#include "service/store/job.h"

#include <trainyard/v1/job.pb-c.h>

/* NULL for 0, which means "no time". */
Google__Protobuf__Timestamp *convert_timestamp(struct arena *a, int64_t time_us);
Trainyard__V1__Job *convert_job(struct arena *a, const struct store_job *row);
/* Adds the attempts to the message that convert_job has made. ret is not NULL, here and in convert_origin. */
void convert_attempts(struct arena *a, int64_t job, const struct store_attempt *rows, size_t n,
                      Trainyard__V1__Job *ret);
/* Adds the origin of the job, if it has one; step: the step of that checkpoint. */
void convert_origin(struct arena *a, const struct store_origin *origin, int64_t step, Trainyard__V1__Job *ret);
Trainyard__V1__Event *convert_event(struct arena *a, const struct store_event *row);

#endif
