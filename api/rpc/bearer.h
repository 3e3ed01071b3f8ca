/* The value of an `authorization` header: "Bearer TOKEN", RFC 6750. */
#ifndef API_RPC_BEARER_H
#define API_RPC_BEARER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_BEARER_BYTES 512 /* the largest token that is accepted; tokens of Trainyard have 74 bytes */

/* *ret points into value. False for anything else: another scheme, no token, a token that is too long or contains
 * characters that RFC 6750 does not allow. Pure. */
bool bearer_read(const uint8_t *value, size_t n, const uint8_t **ret, size_t *ret_n);

#endif
