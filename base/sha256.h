/* SHA-256 (FIPS 180-4) by libcrypto, as the project uses it: digests of files, tensors and weights.
 * A context belongs to one thread at a time. Allocation failure inside libcrypto aborts the process: 200 bytes. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA256_HEX = 65 }; /* SHA256_HEX counts the NUL */

struct sha256;
struct sha256 *sha256_new(void);
struct sha256 *sha256_free(struct sha256 *s); /* NULL is fine; returns NULL */
void sha256_update(struct sha256 *s, const void *data, size_t n);
void sha256_final(struct sha256 *s, uint8_t ret[SHA256_BYTES]); /* s starts afresh after it */

void sha256_of(const void *data, size_t n, uint8_t ret[SHA256_BYTES]);
void sha256_hex(const uint8_t digest[SHA256_BYTES], char ret[SHA256_HEX]); /* lower case */

#endif
