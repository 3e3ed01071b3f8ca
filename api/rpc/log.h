/* gRPC writes its own log to stderr unless told otherwise. What goes wrong is in the statuses: its lines are dropped.
 * Called before each grpc_init, once per process effective. */
#ifndef API_RPC_LOG_H
#define API_RPC_LOG_H

void rpc_log_own(void);

#endif
