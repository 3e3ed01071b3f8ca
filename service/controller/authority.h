/* Signs the certificates of hosts that join, with the key of the CA whose certificates clients must show.
 *
 *     TRY(authority_open(&tls, "ca.key", &a, e));
 *     authority_set_ports(a, 7702, 7700);                 // when JoinService is served
 *     TRY(authority_sign(a, der, der_len, "gpu-7", &pem, e));
 *
 * A certificate that it signs is good for clients only (extended key usage): a host cannot pretend to be a controller,
 * whatever its name. */
#ifndef SERVICE_CONTROLLER_AUTHORITY_H
#define SERVICE_CONTROLLER_AUTHORITY_H

#include "api/rpc/tls.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/sha256.h"

#define AUTHORITY_DAYS          825 /* how long a certificate is valid */
#define AUTHORITY_REQUEST_BYTES 4096
#define AUTHORITY_HOST_BYTES    256

struct authority;

/* tls: the server's own files; ca must be the certificate of ca_key, and the only one in its file. cert must have a DNS
 * name or an address, by which hosts dial. PERMISSION_DENIED if others than its owner may read ca_key. */
MUST_CHECK status_t authority_open(const struct rpc_tls *tls, const char *ca_key, struct authority **ret,
                                   struct err *e);
struct authority *authority_close(struct authority *a); /* NULL is fine; returns NULL */
CLEANUP_DEFINE(struct authority *, authority_close)

/* The ports of JoinService and of all others, once hosts can join there. Any thread. */
void authority_set_ports(struct authority *a, int join, int others);
/* Where hosts join, and where executors connect: "controller.example:7702". ret has AUTHORITY_HOST_BYTES + 8.
 * UNAVAILABLE before authority_set_ports. */
MUST_CHECK status_t authority_join_address(const struct authority *a, char *ret, struct err *e);
void authority_address(const struct authority *a, char *ret);
/* The SHA-256 of the CA's certificate (DER), in hexadecimal digits. */
const char *authority_fingerprint(const struct authority *a);

/* Signs the public key of a PKCS #10 request (DER) under `name`; names in the request are ignored. Appends the
 * certificate (PEM) to ret. INVALID_ARGUMENT: not such a request, not signed with its key, or no EC key on P-256. Any
 * thread. */
MUST_CHECK status_t authority_sign(const struct authority *a, const void *der, size_t len, const char *name,
                                   struct bytes *ret, struct err *e);

#endif
