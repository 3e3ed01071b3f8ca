/* A growing byte buffer with a limit, which its owner sets.
 *
 *     struct bytes b;  bytes_init(&b, 1 << 20);
 *     TRY(bytes_append(&b, data, n, e));        // RESOURCE_EXHAUSTED past 1 MiB: nothing was appended
 *     ... b.data, b.len ...
 *     bytes_done(&b);
 *
 * `data` is followed by a NUL byte that does not count in `len`, so text may be used as a C string. Pointers into data
 * are valid until the next append. Not thread-safe. */
#ifndef BASE_BYTES_H
#define BASE_BYTES_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct bytes {
    char *data; /* NULL until the first append */
    size_t len, cap, limit;
};

void bytes_init(struct bytes *b, size_t limit);
void bytes_done(struct bytes *b); /* frees; b may be used again after bytes_init */
static inline void bytes_clear(struct bytes *b) { b->len = 0; }

MUST_CHECK status_t bytes_append(struct bytes *b, const void *data, size_t n, struct err *e);
MUST_CHECK status_t bytes_printf(struct bytes *b, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Reserves n more bytes at data + len; the caller writes them and adds their number to len. */
MUST_CHECK status_t bytes_reserve(struct bytes *b, size_t n, struct err *e);

/* Moves the memory to the caller, who frees it; b is empty afterwards. Never NULL after an append. */
char *bytes_take(struct bytes *b);

#ifdef __cplusplus
}
#endif

#endif
