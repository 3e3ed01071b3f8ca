/* the token that `trainyard token create NAME --join` prints: HOST:PORT/FINGERPRINT/SECRET. */
#ifndef CLI_JOIN_TOKEN_H
#define CLI_JOIN_TOKEN_H

#include "api/rpc/address.h"
#include "base/secret.h"
#include "base/sha256.h"

struct join_token {
    struct rpc_address address;
    char fingerprint[SHA256_HEX]; /* of the CA's certificate */
    char secret[sizeof SECRET_TOKEN_PREFIX + SECRET_TOKEN_DIGITS];
};

/* INVALID_ARGUMENT if it is no such token. The error does not contain it. */
MUST_CHECK status_t join_token_parse(const char *text, struct join_token *ret, struct err *e);

#endif
