/* gRPC writes a log to stderr by default. Statuses contain all errors, so this function makes gRPC drop its lines.
 * It is called before each grpc_init; only the first call in a process has an effect. */
#ifndef API_RPC_LOG_H
#define API_RPC_LOG_H

void rpc_log_own(void);

#endif
