/* Makes gRPC credentials from the files of TLS. */
#ifndef API_RPC_CREDENTIALS_H
#define API_RPC_CREDENTIALS_H

#include "api/rpc/core.h"
#include "api/rpc/tls.h"
#include "base/status.h"

/* If tls is NULL, the credentials are plain. The caller releases them. */
MUST_CHECK status_t credentials_server(const struct rpc_tls *, grpc_server_credentials **ret, struct err *e);
MUST_CHECK status_t credentials_client(const struct rpc_tls *, grpc_channel_credentials **ret, struct err *e);

#endif
