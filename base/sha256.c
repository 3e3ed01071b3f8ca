/* SHA-256 by the older functions of libcrypto. They work in the caller's memory. The newer functions allocate memory
 * for each digest, and can fail. Both run the same code. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/sha256.h"

#include <openssl/sha.h>

_Static_assert(sizeof(SHA256_CTX) <= sizeof(struct sha256), "a digest at work fits its struct");

/* The functions of libcrypto always return 1, so that their results are ignored. */
static SHA256_CTX *of(struct sha256 *s) { return (SHA256_CTX *)(void *)s; }

void sha256_begin(struct sha256 *s) { (void)SHA256_Init(of(s)); }

void sha256_update(struct sha256 *s, const void *data, size_t n) { (void)SHA256_Update(of(s), data, n); }

void sha256_final(struct sha256 *s, uint8_t ret[SHA256_BYTES]) {
    (void)SHA256_Final(ret, of(s));
    sha256_begin(s);
}

void sha256_of(const void *data, size_t n, uint8_t ret[SHA256_BYTES]) {
    struct sha256 s;
    sha256_begin(&s);
    sha256_update(&s, data, n);
    sha256_final(&s, ret);
}

void sha256_hex(const uint8_t digest[SHA256_BYTES], char ret[SHA256_HEX]) {
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < SHA256_BYTES; i++) {
        ret[2 * i] = digits[digest[i] >> 4];
        ret[2 * i + 1] = digits[digest[i] & 15];
    }
    ret[SHA256_HEX - 1] = '\0';
}
