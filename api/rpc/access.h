/* Which callers may call which methods of a server. The protos define the rules: every method has an option, an
 * extension of google.protobuf.MethodOptions, whose value is the method's rule. A callback of the server's owner
 * decides whether a caller satisfies a rule:
 *
 *     static const struct rpc_access access = { .rule_option = 51700, .rule_reflection = VIEWER, .check = check };
 *     struct rpc_server_config config = { .access = &access, ... };
 *
 * rpc_server_add refuses a method without a rule. Health needs no token, because load balancers have none. Its calls
 * are refused when half of the server's `calls` are taken: the rest is for callers with a token.
 *
 * Every call is checked. An address that other machines can reach requires TLS. A call over a unix socket without a
 * token is checked by its user, whom the kernel names; the first token is made there.
 *
 * A token is sent as `authorization: Bearer TOKEN`. Only its SHA-256 leaves api/rpc, so no message and no log can
 * contain the token. A call is checked before its request is read. Streams are checked again in rpc_server_review. */
#ifndef API_RPC_ACCESS_H
#define API_RPC_ACCESS_H

#include "base/sha256.h"
#include "base/status.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <sys/types.h>

#define RPC_CALLER_BYTES 72
#define RPC_SCOPE_BYTES  64

struct rpc_server;
struct rpc_call;

/* What the connection itself proves about the peer. names: the common name of the peer's certificate and the
 * alternative names of all kinds. Names beyond RPC_PEER_NAMES, and names of RPC_PEER_NAME_BYTES or more, are left
 * out. */
enum { RPC_PEER_NAMES = 16, RPC_PEER_NAME_BYTES = 256 };
struct rpc_peer {
    bool tls;
    int n_names; /* 0 without a certificate */
    char names[RPC_PEER_NAMES][RPC_PEER_NAME_BYTES];
};

struct rpc_access {
    unsigned rule_option; /* the extension's number; the rules are above 0 */
    int rule_reflection;  /* the rule of server reflection, whose protos have no such option */
    int rule_reads;       /* the rule of methods that only read; 0: none (rpc_server_config.readers) */
    /* Checks whether the owner of the token with this SHA-256 (NULL: no token was sent) may call a method of this rule.
     * UNAUTHENTICATED or PERMISSION_DENIED if not, with a sentence. ret_caller gets the caller's name, for people, also
     * if a known caller is refused. Runs on a worker thread and may block. */
    status_t (*check)(void *ctx, const uint8_t token[SHA256_BYTES], const struct rpc_peer *peer, int rule,
                      const char *method, char ret_caller[RPC_CALLER_BYTES], struct err *e);
    /* The same for a user of this machine who calls over a unix socket and has sent no token. Must not block. NULL:
     * such a call is checked like any other. */
    status_t (*check_user)(void *ctx, uid_t uid, int rule, const char *method, char ret_caller[RPC_CALLER_BYTES],
                           struct err *e);
    /* Checks what an admitted call with a token asks for, once its request has arrived and before the handler runs (of
     * a stream of answers: before its first `work`); not called for a stream of requests. ret_scope is "" at first, and
     * names for the handler what the call is limited to. PERMISSION_DENIED if the caller may not ask for that; any
     * failure ends the call. Runs on a worker thread and may block. NULL: requests are not checked. */
    status_t (*check_request)(void *ctx, const uint8_t token[SHA256_BYTES], const char *service, const char *method,
                              const ProtobufCMessage *request, char ret_scope[RPC_SCOPE_BYTES], struct err *e);
    void *ctx;
};

/* Checks the streams that were admitted by a token again, and ends those whose callers are no longer allowed. Blocks as
 * long as the checks take. Do not call it after rpc_server_stop. */
void rpc_server_review(struct rpc_server *);

/* For handlers: the name of the caller, "" on a server without an access check. */
const char *rpc_caller(const struct rpc_call *);
/* For handlers: whether the caller is the owner of a token. */
bool rpc_has_token(const struct rpc_call *);
/* For handlers: what check_request has limited the call to; "": it is not limited. */
const char *rpc_scope(const struct rpc_call *);

#endif
