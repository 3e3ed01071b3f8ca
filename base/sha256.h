/* SHA-256 (FIPS 180-4) by libcrypto, for digests of files, tensors and weights. Allocates nothing and
 * cannot fail.
 *
 *     struct sha256 s;
 *     sha256_begin(&s);
 *     sha256_update(&s, data, n);
 *     sha256_final(&s, digest);       // s may begin again
 *
 * A digest in progress belongs to one thread at a time. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA256_HEX = 65 }; /* SHA256_HEX counts the NUL */

struct sha256 {
    uint64_t at_work[14];
};
void sha256_begin(struct sha256 *s);
void sha256_update(struct sha256 *s, const void *data, size_t n);
void sha256_final(struct sha256 *s, uint8_t ret[SHA256_BYTES]);

void sha256_of(const void *data, size_t n, uint8_t ret[SHA256_BYTES]);
void sha256_hex(const uint8_t digest[SHA256_BYTES], char ret[SHA256_HEX]); /* lower case */

#endif
