#include "cli/join/token.h"

#include <stdbool.h>
#include <string.h>

static const char DIGITS[] = "0123456789abcdef";

static bool is_digits(const char *text, size_t n) { return strlen(text) == n && strspn(text, DIGITS) == n; }

status_t join_token_parse(const char *text, struct join_token *ret, struct err *e) {
    const size_t prefix = sizeof SECRET_TOKEN_PREFIX - 1;
    const char *first = strchr(text, '/'), *second = first ? strchr(first + 1, '/') : NULL;
    char address[RPC_ADDRESS_BYTES];
    struct err unused;
    const bool shaped = second && (size_t)(first - text) < sizeof address && second - first == SHA256_HEX &&
                        strncmp(second + 1, SECRET_TOKEN_PREFIX, prefix) == 0 &&
                        is_digits(second + 1 + prefix, SECRET_TOKEN_DIGITS);
    if (shaped) {
        memcpy(address, text, (size_t)(first - text));
        address[first - text] = '\0';
        memcpy(ret->fingerprint, first + 1, SHA256_HEX - 1);
        ret->fingerprint[SHA256_HEX - 1] = '\0';
        memcpy(ret->secret, second + 1, prefix + SECRET_TOKEN_DIGITS + 1);
    }
    if (!shaped || !is_digits(ret->fingerprint, SHA256_HEX - 1) ||
        rpc_address_parse(address, &ret->address, &unused) != ST_OK || ret->address.is_unix)
        return err_set(
            e, ST_INVALID_ARGUMENT,
            "the join token is not HOST:PORT/FINGERPRINT/SECRET, as 'trainyard token create NAME --join' prints it");
    return ST_OK;
}
