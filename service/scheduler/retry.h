/* How long a job waits before its next attempt. */
#ifndef SERVICE_SCHEDULER_RETRY_H
#define SERVICE_SCHEDULER_RETRY_H

#include <stdint.h>

/* The first delay is short, because most failures are those of one process. It doubles with each attempt that made no
 * checkpoint, up to a limit: by then, a person would check the job anyway. */
#define RETRY_FIRST_MS 250
#define RETRY_MAX_MS   30000
/* Of RANK_END_NO_ORDER: a person must act, and then usually starts another controller, which tries at once. */
#define RETRY_NO_ORDER_MAX_MS 600000

/* failures: attempts in a row, 1 or more, that ended before a checkpoint was committed. */
int64_t retry_delay_ms(int failures);
int64_t retry_no_order_delay_ms(int failures);

#endif
