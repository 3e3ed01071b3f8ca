/* GetProfile: what a job's ranks measured, read from the folder beside their checkpoints. */
#ifndef SERVICE_RPC_PROFILE_H
#define SERVICE_RPC_PROFILE_H

#include "api/rpc/call.h"

void profile_work(struct rpc_call *call);
void profile_done(struct rpc_call *call, status_t status, const char *why);

#endif
