/* JobService.ListJobs: pages of jobs, which PostgreSQL selects and sorts. */
#ifndef SERVICE_RPC_JOB_LIST_H
#define SERVICE_RPC_JOB_LIST_H

#include "api/rpc/server.h"

/* A method of rpc_service; service is the controller. */
MUST_CHECK status_t job_list(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e);

#endif
