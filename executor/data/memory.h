/* The memory of libcurl: overwritten when it is freed, because it holds keys and tokens, and this process lives as long
 * as the attempt. */
#ifndef EXECUTOR_DATA_MEMORY_H
#define EXECUTOR_DATA_MEMORY_H

#include "base/status.h"

/* Before the first thread and the first handle of libcurl. */
MUST_CHECK status_t memory_init(struct err *e);

#endif
