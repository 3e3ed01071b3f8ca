/* JobService.GetProfile as events of a server stream: sends the profile files of a job's ranks from the folder beside
 * their checkpoints. The table is in job.c. */
#ifndef SERVICE_RPC_PROFILE_H
#define SERVICE_RPC_PROFILE_H

#include "api/rpc/call.h"

void profile_work(struct rpc_call *call);
void profile_done(struct rpc_call *call, status_t status, const char *why);

#endif
