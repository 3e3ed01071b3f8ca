/* The value of an `authorization` header: "Bearer TOKEN", RFC 6750. */
#ifndef API_RPC_BEARER_H
#define API_RPC_BEARER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BEARER_BYTES_MOST 512 /* of a token: ours have 74 */

/* *ret points into value. False for anything else: another scheme, no token, one that is too long or has characters
 * that no token has. Pure. */
bool bearer_read(const uint8_t *value, size_t n, const uint8_t **ret, size_t *ret_n);

#endif
