#include "api/rpc/credentials.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/file.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
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

/* ---- a server's certificates ---- */

/* Before each handshake gRPC asks for new certificates (fetch), and takes those that a reload has left. */
struct certificates {
    struct rpc_tls tls;
    pthread_mutex_t lock;
    grpc_ssl_server_certificate_config *fresh; /* NULL: gRPC has the newest */
};

static grpc_ssl_certificate_config_reload_status fetch(void *certificates, grpc_ssl_server_certificate_config **ret) {
    struct certificates *c = certificates;
    pthread_mutex_lock(&c->lock);
    *ret = c->fresh;
    c->fresh = NULL;
    pthread_mutex_unlock(&c->lock);
    return *ret ? GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW : GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
}

/* gRPC refuses a key that does not belong to the certificate only at the next handshake, in its log. */
static status_t check_pair(const struct rpc_tls *tls, const struct pem *pem, struct err *e) {
    BIO *cert_bio = BIO_new_mem_buf(pem->cert.data, -1), *key_bio = BIO_new_mem_buf(pem->key.data, -1);
    X509 *cert = cert_bio ? PEM_read_bio_X509(cert_bio, NULL, NULL, NULL) : NULL;
    EVP_PKEY *key = key_bio ? PEM_read_bio_PrivateKey(key_bio, NULL, NULL, NULL) : NULL;
    const bool match = cert && key && X509_check_private_key(cert, key) == 1;
    EVP_PKEY_free(key);
    X509_free(cert);
    BIO_free(key_bio);
    BIO_free(cert_bio);
    ERR_clear_error();
    return match ? ST_OK
                 : err_set(e, ST_INVALID_ARGUMENT, "the certificate '%s' and the key '%s' do not belong together",
                           tls->cert, tls->key);
}

status_t certificates_reload(struct certificates *c, struct err *e) {
    CLEANUP(pem_done) struct pem pem;
    TRY(pem_read(&c->tls, &pem, e));
    TRY(check_pair(&c->tls, &pem, e));
    if (c->tls.for_new)
        TRY(bytes_append(&pem.cert, pem.ca.data, pem.ca.len, e));
    const grpc_ssl_pem_key_cert_pair pair = { .private_key = pem.key.data, .cert_chain = pem.cert.data };
    /* gRPC aborts without roots, also if no client is asked for a certificate. */
    const char *roots = pem.ca.data ? pem.ca.data : pem.cert.data;
    grpc_ssl_server_certificate_config *fresh = grpc_ssl_server_certificate_config_create(roots, &pair, 1);
    pthread_mutex_lock(&c->lock);
    grpc_ssl_server_certificate_config *unused = c->fresh;
    c->fresh = fresh;
    pthread_mutex_unlock(&c->lock);
    if (unused)
        grpc_ssl_server_certificate_config_destroy(unused);
    return ST_OK;
}

struct certificates *certificates_close(struct certificates *c) {
    if (!c)
        return NULL;
    if (c->fresh)
        grpc_ssl_server_certificate_config_destroy(c->fresh);
    pthread_mutex_destroy(&c->lock);
    free((void *)(uintptr_t)c->tls.cert);
    free((void *)(uintptr_t)c->tls.key);
    free((void *)(uintptr_t)c->tls.ca);
    free(c);
    return NULL;
}

status_t credentials_server(const struct rpc_tls *tls, grpc_server_credentials **ret,
                            struct certificates **ret_certificates, struct err *e) {
    *ret_certificates = NULL;
    if (!tls || !given(tls->cert)) {
        if (tls && (given(tls->key) || given(tls->ca)))
            return err_set(e, ST_INVALID_ARGUMENT, "TLS needs a certificate together with its key");
        *ret = grpc_insecure_server_credentials_create();
        return ST_OK;
    }
    CLEANUP(certificates_closep) struct certificates *c = alloc_zeroed(1, sizeof *c);
    c->tls = (struct rpc_tls){ .cert = alloc_copy_text(tls->cert),
                               .key = given(tls->key) ? alloc_copy_text(tls->key) : NULL,
                               .ca = given(tls->ca) ? alloc_copy_text(tls->ca) : NULL,
                               .for_new = tls->for_new };
    pthread_mutex_init(&c->lock, NULL);
    TRY(certificates_reload(c, e));
    *ret = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            given(tls->ca) && !tls->for_new ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                            : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
            fetch, c));
    *ret_certificates = take_ptr(&c);
    return ST_OK;
}

/* ---- a client's ---- */

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
