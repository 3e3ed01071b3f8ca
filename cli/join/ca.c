/* A server of JoinService sends its CA with its own certificate. Whoever else answers may send the same bytes, but has
 * no certificate that the CA has signed, so only the next connection, which verifies, carries the secret. */
#include "cli/join/ca.h"

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <string.h>

enum { TIMEOUT_S = 10, PAUSE_MS = 20 };
static const unsigned char HTTP2[] = "\x02h2";

static bool has_fingerprint(X509 *certificate, const char *fingerprint) {
    uint8_t *der = NULL, digest[SHA256_BYTES];
    char hex[SHA256_HEX];
    const int n = i2d_X509(certificate, &der);
    if (n <= 0)
        return false;
    sha256_of(der, (size_t)n, digest);
    sha256_hex(digest, hex);
    OPENSSL_free(der);
    return strcmp(hex, fingerprint) == 0;
}

static status_t write_pem(X509 *certificate, struct bytes *ret, struct err *e) {
    char *text;
    BIO *memory = BIO_new(BIO_s_mem());
    const long n = memory && PEM_write_bio_X509(memory, certificate) == 1 ? BIO_get_mem_data(memory, &text) : 0;
    const status_t st = n > 0 ? bytes_append(ret, text, (size_t)n, e)
                              : err_set(e, ST_INTERNAL, "the certificate of the CA cannot be encoded");
    BIO_free(memory);
    return st;
}

static status_t find(SSL *ssl, const struct join_token *token, struct bytes *ret, struct err *e) {
    STACK_OF(X509) *chain = SSL_get_peer_cert_chain(ssl);
    for (int i = 0; i < sk_X509_num(chain); i++)
        if (has_fingerprint(sk_X509_value(chain, i), token->fingerprint))
            return write_pem(sk_X509_value(chain, i), ret, e);
    return err_set(e, ST_FAILED_PRECONDITION,
                   "%s does not show the CA that the join token names by its fingerprint: another server answers, or "
                   "the join token "
                   "is damaged; nothing was sent",
                   token->address.text);
}

status_t join_ca_fetch(const struct join_token *token, struct bytes *ret, struct err *e) {
    SSL *ssl = NULL;
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    BIO *connection = context ? BIO_new_ssl_connect(context) : NULL;
    status_t st = err_set(e, ST_UNAVAILABLE, "the controller at %s cannot be reached, or does not use TLS",
                          token->address.text);
    if (connection) {
        BIO_get_ssl(connection, &ssl);
        SSL_set_alpn_protos(ssl, HTTP2, sizeof HTTP2 - 1);
        SSL_set_tlsext_host_name(ssl, token->address.host);
        BIO_set_conn_hostname(connection, token->address.text);
        if (BIO_do_connect_retry(connection, TIMEOUT_S, PAUSE_MS) == 1)
            st = find(ssl, token, ret, e);
    }
    BIO_free_all(connection);
    SSL_CTX_free(context);
    return st;
}
