/* Who may call what on a server. The protos say it: every method carries an option, an extension of
 * google.protobuf.MethodOptions, whose value is the method's rule. The server's owner says who a caller is:
 *
 *     static const struct rpc_access access = { .rule_option = 51700, .rule_reflection = VIEWER, .check = check };
 *     struct rpc_server_config config = { .access = &access, ... };
 *
 * rpc_server_add refuses a method without a rule. Health needs no token: who balances a load has none. So its calls are
 * refused from half of the server's `calls` on: the rest is for those who have one.
 *
 * What comes over TLS is always checked; so nothing that other machines reach goes unchecked, since such an address
 * needs TLS. A plain call comes from this machine and is taken for its owner's, unless plain_too. A call by a unix
 * socket is never checked: the socket's mode (0600) has done that, and there the first token is made.
 *
 * A token comes as `authorization: Bearer TOKEN`. Only its SHA-256 goes on from here: no message and no log can have
 * the token. A call is checked before anything of it is read; streams again whenever rpc_server_review is called. */
#ifndef API_RPC_ACCESS_H
#define API_RPC_ACCESS_H

#include "base/sha256.h"
#include "base/status.h"

#include <stdbool.h>

#define RPC_CALLER_BYTES 72

struct rpc_server;
struct rpc_call;

struct rpc_access {
    unsigned rule_option; /* the extension's number; the rules are above 0 */
    int rule_reflection;  /* of server reflection, whose protos are not ours */
    bool plain_too;       /* plain TCP is checked as well */
    /* Whether the owner of the token with this SHA-256 (NULL: none came) may call a method of this rule:
     * UNAUTHENTICATED or PERMISSION_DENIED, with a sentence. ret_caller gets a name for people. On a worker thread; may
     * block. */
    status_t (*check)(void *ctx, const uint8_t token[SHA256_BYTES], int rule, const char *method,
                      char ret_caller[RPC_CALLER_BYTES], struct err *e);
    void *ctx;
};

/* Checks the streams that were admitted by a token once more, and ends those whose callers may not go on. Blocks as
 * long as the checks do. Not after rpc_server_stop. */
void rpc_server_review(struct rpc_server *);

/* Within a handler: the name of the caller, "" for one that was not checked. */
const char *rpc_caller(const struct rpc_call *);

#endif
