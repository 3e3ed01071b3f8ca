/* JobService.WatchJob as events of a server stream. The table is in job.c. */
#ifndef SERVICE_RPC_WATCH_H
#define SERVICE_RPC_WATCH_H

#include "api/rpc/call.h"

void watch_work(struct rpc_call *call);
void watch_done(struct rpc_call *call, status_t status, const char *why);

#endif
