#include "service/notify/signature.h"

#include "base/alloc.h"
#include "base/sha256.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void signature_of(const void *key, size_t n_key, int64_t time_s, const void *body, size_t n,
                  char ret[SIGNATURE_BYTES]) {
    uint8_t digest[SHA256_BYTES];
    unsigned n_digest = sizeof digest;
    char *text = alloc_zeroed(1, n + 32);
    int head = snprintf(text, 32, "%lld.", (long long)time_s);
    memcpy(text + head, body, n);
    HMAC(EVP_sha256(), key, (int)n_key, (const unsigned char *)text, (size_t)head + n, digest, &n_digest);
    sha256_hex(digest, ret);
    free(text);
}
