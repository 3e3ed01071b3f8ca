/* Gets the certificate of the CA from a server that is not trusted yet. */
#ifndef CLI_JOIN_CA_H
#define CLI_JOIN_CA_H

#include "base/bytes.h"
#include "cli/join/token.h"

/* Appends the certificate (PEM) whose fingerprint the join token has to ret. Sends nothing. The server is not verified:
 * a connection that trusts this CA alone does that. UNAVAILABLE: no server answers with TLS within ten seconds.
 * FAILED_PRECONDITION: it shows no such certificate. */
MUST_CHECK status_t join_ca_fetch(const struct join_token *token, struct bytes *ret, struct err *e);

#endif
