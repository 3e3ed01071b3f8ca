/* The address on which a server listens or which a client dials, as text: `unix:/run/trainyard/api.sock`,
 * `127.0.0.1:7700`, `[::1]:7700`, `controller.example:7700`. All functions are pure, except rpc_address_is_local. */
#ifndef API_RPC_ADDRESS_H
#define API_RPC_ADDRESS_H

#include "base/status.h"

#include <stdbool.h>

/* A unix socket's path may have 107 bytes, a host name 253. */
#define RPC_ADDRESS_BYTES 288

struct rpc_address {
    bool is_unix;
    char path[108]; /* unix: absolute path */
    char host[256]; /* TCP: without the brackets of an IPv6 address */
    int port;       /* TCP: 0 to 65535; 0 lets the system choose, for listening only */
    char text[RPC_ADDRESS_BYTES];
};

/* INVALID_ARGUMENT with the text and its error. */
MUST_CHECK status_t rpc_address_parse(const char *text, struct rpc_address *ret, struct err *e);

/* The servers that a client may call: addresses separated by commas, each with a port to dial. */
#define RPC_MAX_ADDRESSES   8
#define RPC_ADDRESSES_BYTES (RPC_MAX_ADDRESSES * RPC_ADDRESS_BYTES)
struct rpc_address_list {
    struct rpc_address items[RPC_MAX_ADDRESSES];
    int n;
};
/* INVALID_ARGUMENT with the text and its error; also for more than RPC_MAX_ADDRESSES. */
MUST_CHECK status_t rpc_address_list_parse(const char *text, struct rpc_address_list *ret, struct err *e);

/* *ret is true if no other machine can reach it: a unix socket, or a host with loopback addresses only. Resolves names
 * (may block for seconds); a name that does not resolve is NOT_FOUND. */
MUST_CHECK status_t rpc_address_is_local(const struct rpc_address *, bool *ret, struct err *e);

#endif
