/* The files of TLS, all PEM. Read once, when a server listens or a channel opens.
 *
 *   server  cert + key                 the server proves who it is
 *           cert + key + ca            and every client must show a certificate signed by ca (mutual TLS)
 *   client  ca                         the server's certificate must be signed by ca and name the host that was dialled
 *           ca + cert + key            and we show ours
 */
#ifndef API_RPC_TLS_H
#define API_RPC_TLS_H

struct rpc_tls {
    const char *cert, *key, *ca; /* paths; NULL or "" for none */
};

#endif
