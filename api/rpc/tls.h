/* The files of TLS, all PEM. Read when a server listens or a channel opens, and by rpc_server_reload_tls.
 *
 *   server  cert + key                 the server proves its identity
 *           cert + key + ca            also, every client must have a certificate signed by ca (mutual TLS)
 *           the same + for_new    no client needs a certificate, and the ca is sent with cert, for clients that have
 *                                 only its fingerprint yet
 *   client  ca                         the server's certificate must be signed by ca and name the dialled host
 *           ca + cert + key            also, the client sends its own certificate
 */
#ifndef API_RPC_TLS_H
#define API_RPC_TLS_H

#include <stdbool.h>

struct rpc_tls {
    const char *cert, *key, *ca; /* paths; NULL or "" for none */
    bool for_new;
};

#endif
