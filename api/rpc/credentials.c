#include "api/rpc/credentials.h"

#include "base/bytes.h"
#include "base/file.h"

#include <stdbool.h>
#include <string.h>

/* A chain of certificates has a few KiB. */
enum { PEM_BYTES = 1 << 20 };

struct pem {
    struct bytes cert, key, ca;
};

static bool given(const char *path) { return path && path[0]; }

static void pem_done(struct pem *p) {
    if (p->key.data)
        explicit_bzero(p->key.data, p->key.len);
    bytes_done(&p->cert);
    bytes_done(&p->key);
    bytes_done(&p->ca);
}

/* Checks that the file contains a PEM block. gRPC accepts any file, and fails much later, when it connects or
 * listens. */
static status_t read_block(const char *path, const char *end, const char *what, struct bytes *ret, struct err *e) {
    TRY(file_read(path, ret, e));
    if (strstr(ret->data, end))
        return ST_OK;
    return err_set(e, ST_INVALID_ARGUMENT, "'%s' holds no PEM %s", path, what);
}

static status_t read_certificate(const char *path, struct bytes *ret, struct err *e) {
    return read_block(path, "CERTIFICATE-----", "certificate", ret, e);
}

static status_t pem_read(const struct rpc_tls *tls, struct pem *p, struct err *e) {
    bytes_init(&p->cert, PEM_BYTES);
    bytes_init(&p->key, PEM_BYTES);
    bytes_init(&p->ca, PEM_BYTES);
    if (given(tls->cert) != given(tls->key))
        return err_set(e, ST_INVALID_ARGUMENT, "TLS needs a certificate together with its key");
    if (given(tls->cert)) {
        TRY(read_certificate(tls->cert, &p->cert, e));
        TRY(read_block(tls->key, "PRIVATE KEY-----", "private key", &p->key, e));
    }
    if (given(tls->ca))
        TRY(read_certificate(tls->ca, &p->ca, e));
    return ST_OK;
}

status_t credentials_server(const struct rpc_tls *tls, grpc_server_credentials **ret, struct err *e) {
    if (!tls || !given(tls->cert)) {
        if (tls && (given(tls->key) || given(tls->ca)))
            return err_set(e, ST_INVALID_ARGUMENT, "TLS needs a certificate together with its key");
        *ret = grpc_insecure_server_credentials_create();
        return ST_OK;
    }
    CLEANUP(pem_done) struct pem pem;
    TRY(pem_read(tls, &pem, e));
    if (tls->for_new)
        TRY(bytes_append(&pem.cert, pem.ca.data, pem.ca.len, e));
    grpc_ssl_pem_key_cert_pair pair = { .private_key = pem.key.data, .cert_chain = pem.cert.data };
    *ret = grpc_ssl_server_credentials_create_ex(pem.ca.data, &pair, 1,
                                                 pem.ca.data && !tls->for_new
                                                     ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                                     : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
                                                 NULL);
    return ST_OK;
}

status_t credentials_client(const struct rpc_tls *tls, grpc_channel_credentials **ret, struct err *e) {
    if (!given(tls->ca)) {
        if (given(tls->cert) || given(tls->key))
            return err_set(e, ST_INVALID_ARGUMENT, "TLS needs the CA that signed the server's certificate");
        *ret = grpc_insecure_credentials_create();
        return ST_OK;
    }
    CLEANUP(pem_done) struct pem pem;
    TRY(pem_read(tls, &pem, e));
    grpc_ssl_pem_key_cert_pair pair = { .private_key = pem.key.data, .cert_chain = pem.cert.data };
    *ret = grpc_ssl_credentials_create_ex(pem.ca.data, pem.cert.data ? &pair : NULL, NULL, NULL);
    return ST_OK;
}
