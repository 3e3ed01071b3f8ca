#include "cli/join/identity.h"

#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum { PEM_BYTES = 64 << 10 };

static status_t token_make(struct join_identity *i, struct err *e) {
    uint8_t random[SECRET_TOKEN_DIGITS / 2];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return err_errno(e, "random bytes for a token");
    size_t used = (size_t)sprintf(i->token, "%s", SECRET_TOKEN_PREFIX);
    for (size_t k = 0; k < sizeof random; k++)
        used += (size_t)sprintf(i->token + used, "%02x", random[k]);
    explicit_bzero(random, sizeof random);
    sha256_of(i->token, strlen(i->token), i->token_digest);
    return ST_OK;
}

static bool take_memory(BIO *memory, struct bytes *ret, struct err *e) {
    char *text;
    const long n = BIO_get_mem_data(memory, &text);
    return n > 0 && bytes_append(ret, text, (size_t)n, e) == ST_OK;
}

static bool key_write(EVP_PKEY *key, struct bytes *ret, struct err *e) {
    BIO *memory = BIO_new(BIO_s_secmem());
    const bool written = memory && PEM_write_bio_PrivateKey(memory, key, NULL, NULL, 0, NULL, NULL) == 1 &&
                         take_memory(memory, ret, e);
    BIO_free(memory);
    return written;
}

/* The controller names the certificate; the request proves that this host has the key. */
static bool request_write(EVP_PKEY *key, struct bytes *ret, struct err *e) {
    X509_REQ *request = X509_REQ_new();
    BIO *memory = BIO_new(BIO_s_mem());
    const bool written = request && memory && X509_REQ_set_pubkey(request, key) == 1 &&
                         X509_REQ_sign(request, key, EVP_sha256()) > 0 && i2d_X509_REQ_bio(memory, request) == 1 &&
                         take_memory(memory, ret, e);
    BIO_free(memory);
    X509_REQ_free(request);
    return written;
}

status_t join_identity_make(struct join_identity *ret, struct err *e) {
    bytes_init(&ret->key, PEM_BYTES);
    bytes_init(&ret->request, PEM_BYTES);
    TRY(token_make(ret, e));
    EVP_PKEY *key = EVP_EC_gen("P-256");
    const bool made = key && key_write(key, &ret->key, e) && request_write(key, &ret->request, e);
    EVP_PKEY_free(key);
    return made ? ST_OK : err_set(e, ST_INTERNAL, "no key for a certificate can be made");
}

void join_identity_done(struct join_identity *i) {
    if (i->key.data)
        explicit_bzero(i->key.data, i->key.len);
    explicit_bzero(i->token, sizeof i->token);
    bytes_done(&i->key);
    bytes_done(&i->request);
}
