#include "base/sha256.h"

#include <openssl/evp.h>
#include <stdlib.h>

struct sha256 {
    EVP_MD_CTX *md;
};

static void start(struct sha256 *s) {
    if (EVP_DigestInit_ex(s->md, EVP_sha256(), NULL) != 1)
        abort();
}

struct sha256 *sha256_new(void) {
    struct sha256 *s = malloc(sizeof *s);
    if (!s || !(s->md = EVP_MD_CTX_new()))
        abort();
    start(s);
    return s;
}

struct sha256 *sha256_free(struct sha256 *s) {
    if (s) {
        EVP_MD_CTX_free(s->md);
        free(s);
    }
    return NULL;
}

void sha256_update(struct sha256 *s, const void *data, size_t n) {
    if (EVP_DigestUpdate(s->md, data, n) != 1)
        abort();
}

void sha256_final(struct sha256 *s, uint8_t ret[SHA256_BYTES]) {
    if (EVP_DigestFinal_ex(s->md, ret, NULL) != 1)
        abort();
    start(s);
}

void sha256_of(const void *data, size_t n, uint8_t ret[SHA256_BYTES]) {
    if (EVP_Digest(data, n, ret, NULL, EVP_sha256(), NULL) != 1)
        abort();
}

void sha256_hex(const uint8_t digest[SHA256_BYTES], char ret[SHA256_HEX]) {
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < SHA256_BYTES; i++) {
        ret[2 * i] = digits[digest[i] >> 4];
        ret[2 * i + 1] = digits[digest[i] & 15];
    }
    ret[SHA256_HEX - 1] = '\0';
}
