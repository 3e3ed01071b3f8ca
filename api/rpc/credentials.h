/* Makes gRPC credentials from the files of TLS. */
#ifndef API_RPC_CREDENTIALS_H
#define API_RPC_CREDENTIALS_H

#include "api/rpc/core.h"
#include "api/rpc/tls.h"
#include "base/cleanup.h"
#include "base/status.h"

/* The certificates of a server's address, which can be read again while it serves. */
struct certificates;

/* If tls is NULL, the credentials are plain, and *ret_certificates NULL. The caller releases the credentials, and
 * closes the certificates after the server. */
MUST_CHECK status_t credentials_server(const struct rpc_tls *, grpc_server_credentials **ret,
                                       struct certificates **ret_certificates, struct err *e);
/* Reads the files again. Handshakes use them from now on; connections stay. On an error the old ones stay in use. */
MUST_CHECK status_t certificates_reload(struct certificates *, struct err *e);
struct certificates *certificates_close(struct certificates *);
CLEANUP_DEFINE(struct certificates *, certificates_close)

MUST_CHECK status_t credentials_client(const struct rpc_tls *, grpc_channel_credentials **ret, struct err *e);

#endif
