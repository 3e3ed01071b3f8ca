/* The times of a chunk's points as bytes: milliseconds from each to the next, the first's own being 0, as zigzag
 * varints (0, -1, 1, -2, ... as 0, 1, 2, 3, ... in base 128, low digit first). Pure. Internal to the store. */
#ifndef SERVICE_STORE_METRIC_TIMES_H
#define SERVICE_STORE_METRIC_TIMES_H

#include <stddef.h>
#include <stdint.h>

/* Of one point: a difference of two 32-bit numbers. */
#define TIMES_POINT_BYTES 5

/* ms: [n] after the chunk's first time. ret: room for n * TIMES_POINT_BYTES; returns how many are used. */
size_t times_pack(const int32_t *ms, size_t n, uint8_t *ret);
/* What is not in the bytes is as if the time stood still. */
void times_unpack(const uint8_t *bytes, size_t len, size_t n, int32_t *ret_ms);

#endif
