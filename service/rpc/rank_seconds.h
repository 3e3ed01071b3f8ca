/* JobService.GetRankSeconds: where the time of a job's ranks went (service/store/rank_seconds.h). The table of methods
 * is in job.c. */
#ifndef SERVICE_RPC_RANK_SECONDS_H
#define SERVICE_RPC_RANK_SECONDS_H

#include "api/rpc/server.h"
#include "base/status.h"

/* service: the controller. */
MUST_CHECK status_t rank_seconds_get(void *service, struct rpc_call *call, const ProtobufCMessage *request,
                                     struct err *e);

#endif
