/* Certificates by OpenSSL. A certificate has a random serial number, the host's name as common name and as DNS name,
 * and the extended key usage clientAuth. It begins an hour ago, because the clocks of hosts differ.
 *
 * The key of the CA is read once. Whoever has it can make certificates of any name, so its file has the same rule as a
 * key for secrets: nobody but its owner may read it. */
#include "service/controller/authority.h"

#include "base/alloc.h"
#include "base/file.h"

#include <openssl/ec.h>
#include <openssl/obj_mac.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <arpa/inet.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PEM_BYTES = 1 << 20, SERIAL_BITS = 127, BACK_S = 3600 };

struct authority {
    X509 *ca;
    EVP_PKEY *key;
    char host[AUTHORITY_HOST_BYTES], fingerprint[SHA256_HEX];
    atomic_int join_port, port;
};

/* ---- open ---- */

static status_t certificate_read(const char *path, X509 **ret, struct err *e) {
    FILE *f = fopen(path, "re");
    if (!f)
        return err_errno(e, "open '%s'", path);
    *ret = PEM_read_X509(f, NULL, NULL, NULL);
    fclose(f);
    return *ret ? ST_OK : err_set(e, ST_INVALID_ARGUMENT, "'%s' holds no PEM certificate", path);
}

static int no_passphrase(char *buffer, int size, int writes, void *ctx) {
    (void)buffer, (void)size, (void)writes, (void)ctx;
    return -1;
}

static status_t key_read(const char *path, EVP_PKEY **ret, struct err *e) {
    struct stat st;
    FILE *f = fopen(path, "re");
    if (!f)
        return err_errno(e, "open '%s'", path);
    const bool open_to_others = fstat(fileno(f), &st) == 0 && (st.st_mode & (S_IRWXG | S_IRWXO));
    if (!open_to_others)
        *ret = PEM_read_PrivateKey(f, NULL, no_passphrase, NULL);
    fclose(f);
    if (open_to_others)
        return err_set(e, ST_PERMISSION_DENIED,
                       "'%s' has the mode %04o: others than its owner may use the key; run chmod 600 '%s'", path,
                       (unsigned)(st.st_mode & 07777), path);
    return *ret ? ST_OK : err_set(e, ST_INVALID_ARGUMENT, "'%s' holds no PEM private key without a passphrase", path);
}

/* The first DNS name of the certificate, else its first address. */
static bool host_find(X509 *server, char ret[AUTHORITY_HOST_BYTES]) {
    GENERAL_NAMES *names = X509_get_ext_d2i(server, NID_subject_alt_name, NULL, NULL);
    for (int want = 0; want < 2 && !ret[0]; want++)
        for (int i = 0; i < sk_GENERAL_NAME_num(names) && !ret[0]; i++) {
            const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
            char text[INET6_ADDRSTRLEN] = "";
            if (want == 0 && name->type == GEN_DNS && name->d.dNSName->length < AUTHORITY_HOST_BYTES)
                snprintf(ret, AUTHORITY_HOST_BYTES, "%.*s", name->d.dNSName->length,
                         (const char *)name->d.dNSName->data);
            if (want == 1 && name->type == GEN_IPADD)
                inet_ntop(name->d.iPAddress->length == 4 ? AF_INET : AF_INET6, name->d.iPAddress->data, text,
                          sizeof text);
            if (text[0])
                snprintf(ret, AUTHORITY_HOST_BYTES, strchr(text, ':') ? "[%s]" : "%s", text);
        }
    GENERAL_NAMES_free(names);
    return ret[0];
}

static status_t fingerprint_make(X509 *ca, char ret[SHA256_HEX], struct err *e) {
    uint8_t *der = NULL, digest[SHA256_BYTES];
    const int n = i2d_X509(ca, &der);
    if (n <= 0)
        return err_set(e, ST_INTERNAL, "the certificate of the CA cannot be encoded");
    sha256_of(der, (size_t)n, digest);
    sha256_hex(digest, ret);
    OPENSSL_free(der);
    return ST_OK;
}

status_t authority_open(const struct rpc_tls *tls, const char *ca_key, struct authority **ret, struct err *e) {
    CLEANUP(authority_closep) struct authority *a = alloc_zeroed(1, sizeof *a);
    X509 *server = NULL;
    TRY(certificate_read(tls->ca, &a->ca, e));
    TRY(key_read(ca_key, &a->key, e));
    if (X509_check_private_key(a->ca, a->key) != 1)
        return err_set(e, ST_INVALID_ARGUMENT, "'%s' is not the key of the certificate '%s'", ca_key, tls->ca);
    TRY(fingerprint_make(a->ca, a->fingerprint, e));
    TRY(certificate_read(tls->cert, &server, e));
    const bool named = host_find(server, a->host);
    X509_free(server);
    if (!named)
        return err_set(e, ST_INVALID_ARGUMENT, "'%s' has no DNS name and no address, by which hosts could join",
                       tls->cert);
    *ret = take_ptr(&a);
    return ST_OK;
}

struct authority *authority_close(struct authority *a) {
    if (a) {
        X509_free(a->ca);
        EVP_PKEY_free(a->key);
    }
    free(a);
    return NULL;
}

void authority_set_ports(struct authority *a, int join, int others) {
    atomic_store(&a->port, others);
    atomic_store(&a->join_port, join);
}

status_t authority_join_address(const struct authority *a, char *ret, struct err *e) {
    const int port = atomic_load(&a->join_port);
    if (!port)
        return err_set(e, ST_UNAVAILABLE, "no host can join yet: the controller is starting");
    snprintf(ret, AUTHORITY_HOST_BYTES + 8, "%s:%d", a->host, port);
    return ST_OK;
}

void authority_address(const struct authority *a, char *ret) {
    snprintf(ret, AUTHORITY_HOST_BYTES + 8, "%s:%d", a->host, atomic_load(&a->port));
}

const char *authority_fingerprint(const struct authority *a) { return a->fingerprint; }

/* ---- sign ---- */

static status_t request_read(const void *der, size_t len, X509_REQ **ret, struct err *e) {
    const unsigned char *at = der;
    char curve[32] = "";
    X509_REQ *request = len <= AUTHORITY_REQUEST_BYTES ? d2i_X509_REQ(NULL, &at, (long)len) : NULL;
    EVP_PKEY *key = request ? X509_REQ_get0_pubkey(request) : NULL;
    const bool good = key && EVP_PKEY_get_group_name(key, curve, sizeof curve, NULL) == 1 &&
                      strcmp(curve, SN_X9_62_prime256v1) == 0 && X509_REQ_verify(request, key) == 1;
    if (good) {
        *ret = request;
        return ST_OK;
    }
    X509_REQ_free(request);
    return err_set(e, ST_INVALID_ARGUMENT,
                   "certificate_request: not a PKCS #10 request for an EC key on P-256, signed with that key");
}

static bool extension_add(X509 *certificate, const X509 *ca, int kind, const char *value) {
    X509V3_CTX context;
    X509V3_set_ctx(&context, (X509 *)(uintptr_t)ca, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, kind, value);
    const bool added = extension && X509_add_ext(certificate, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return added;
}

static bool serial_set(X509 *certificate) {
    BIGNUM *serial = BN_new();
    const bool set = serial && BN_rand(serial, SERIAL_BITS, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
                     BN_to_ASN1_INTEGER(serial, X509_get_serialNumber(certificate));
    BN_free(serial);
    return set;
}

/* The name has only letters, digits, '-', '_' and '.', so that it is one DNS name in the extension's syntax. */
static bool certificate_fill(const struct authority *a, X509 *c, EVP_PKEY *key, const char *name) {
    char alternative[AUTHORITY_HOST_BYTES + 8];
    snprintf(alternative, sizeof alternative, "DNS:%s", name);
    return X509_set_version(c, X509_VERSION_3) == 1 && serial_set(c) &&
           X509_gmtime_adj(X509_getm_notBefore(c), -BACK_S) &&
           X509_time_adj_ex(X509_getm_notAfter(c), AUTHORITY_DAYS, 0, NULL) &&
           X509_set_issuer_name(c, X509_get_subject_name(a->ca)) == 1 &&
           X509_NAME_add_entry_by_txt(X509_get_subject_name(c), "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1,
                                      0) == 1 &&
           X509_set_pubkey(c, key) == 1 && extension_add(c, a->ca, NID_basic_constraints, "critical,CA:FALSE") &&
           extension_add(c, a->ca, NID_key_usage, "critical,digitalSignature") &&
           extension_add(c, a->ca, NID_ext_key_usage, "clientAuth") &&
           extension_add(c, a->ca, NID_subject_alt_name, alternative) && X509_sign(c, a->key, EVP_sha256()) > 0;
}

static status_t certificate_write(X509 *c, struct bytes *ret, struct err *e) {
    char *text;
    BIO *memory = BIO_new(BIO_s_mem());
    const long n = memory && PEM_write_bio_X509(memory, c) == 1 ? BIO_get_mem_data(memory, &text) : 0;
    status_t st = n > 0 ? bytes_append(ret, text, (size_t)n, e)
                        : err_set(e, ST_INTERNAL, "a certificate cannot be encoded");
    BIO_free(memory);
    return st;
}

status_t authority_sign(const struct authority *a, const void *der, size_t len, const char *name, struct bytes *ret,
                        struct err *e) {
    X509_REQ *request = NULL;
    TRY(request_read(der, len, &request, e));
    X509 *c = X509_new();
    const status_t st = c && certificate_fill(a, c, X509_REQ_get0_pubkey(request), name)
                            ? certificate_write(c, ret, e)
                            : err_set(e, ST_INTERNAL, "the certificate of '%s' cannot be signed", name);
    X509_free(c);
    X509_REQ_free(request);
    return st;
}
