/* The token that a user gives to `trainyard join`. */
#include "base/alloc.h"
#include "cli/join/token.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct join_token token;
    struct err e;
    char *text = alloc_zeroed(n + 1, 1);
    memcpy(text, data, n);
    if (join_token_parse(text, &token, &e) == ST_OK &&
        (strlen(token.fingerprint) != SHA256_HEX - 1 || strlen(token.secret) != sizeof token.secret - 1 ||
         token.address.is_unix || strlen(text) <= strlen(token.fingerprint) + strlen(token.secret)))
        __builtin_trap();
    free(text);
    return 0;
}
