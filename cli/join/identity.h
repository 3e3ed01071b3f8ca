/* What makes a host an executor: a key, a certificate, and a token, whose secrets never leave the host. */
#ifndef CLI_JOIN_IDENTITY_H
#define CLI_JOIN_IDENTITY_H

#include "base/bytes.h"
#include "base/secret.h"
#include "base/sha256.h"

struct join_identity {
    struct bytes key;     /* PEM */
    struct bytes request; /* PKCS #10, DER */
    char token[sizeof SECRET_TOKEN_PREFIX + SECRET_TOKEN_DIGITS];
    uint8_t token_digest[SHA256_BYTES];
};

/* Draws a key on P-256 and a token. */
MUST_CHECK status_t join_identity_make(struct join_identity *ret, struct err *e);
void join_identity_done(struct join_identity *i); /* overwrites both secrets */

#endif
