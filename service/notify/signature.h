/* The signature of a webhook: HMAC-SHA256 over the time, a dot and the body. */
#ifndef SERVICE_NOTIFY_SIGNATURE_H
#define SERVICE_NOTIFY_SIGNATURE_H

#include <stddef.h>
#include <stdint.h>

enum { SIGNATURE_BYTES = 65 };

/* ret: 64 lower-case hexadecimal digits. time_s: seconds since 1970, which the receiver gets in a header. */
void signature_of(const void *key, size_t n_key, int64_t time_s, const void *body, size_t n, char ret[SIGNATURE_BYTES]);

#endif
