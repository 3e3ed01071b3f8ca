/* Parts of an agent's messages, converted to rows of the store and to the scheduler's structs. The results borrow the
 * message's strings. */
#ifndef SERVICE_CONTROLLER_CONVERT_AGENT_H
#define SERVICE_CONTROLLER_CONVERT_AGENT_H

#include "service/scheduler/failure.h"
#include "service/store/attempt.h"
#include "service/store/executor.h"

#include <stdbool.h>
#include <trainyard/v1/dispatch.pb-c.h>

/* Device rows. The caller calls device_rows_done. Without memory, n is 0. */
struct device_rows {
    struct store_device *items;
    size_t n;
};
struct device_rows device_rows_of(Trainyard__V1__Device *const *devices, size_t n);
void device_rows_done(struct device_rows *rows);

bool device_quarantined(const Trainyard__V1__Device *d);
/* Counts the CUDA devices that are quarantined, or those that are not. */
int devices_cuda(Trainyard__V1__Device *const *devices, size_t n, bool quarantined);

/* The row of an executor that attaches. *ret_devices backs ret->devices: the caller calls device_rows_done. */
void executor_row_of(const Trainyard__V1__AgentHello *h, struct store_executor *ret, struct device_rows *ret_devices);

struct rank_end rank_end_of(const Trainyard__V1__RankEnd *m);
struct store_rank_end rank_end_row_of(const Trainyard__V1__RankEnd *m);

/* 0 for a number of threads that no host can have. */
int threads_of(int32_t reported);

#endif
