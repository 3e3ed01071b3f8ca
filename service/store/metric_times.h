/* The times of a chunk's points as bytes: the milliseconds from each point to the next (0 for the first), as zigzag
 * varints: 0, -1, 1, -2, ... are written as 0, 1, 2, 3, ... in base 128, low digit first. Pure. Internal to the store.
 */
#ifndef SERVICE_STORE_METRIC_TIMES_H
#define SERVICE_STORE_METRIC_TIMES_H

#include <stddef.h>
#include <stdint.h>

/* Of one point, at most: a difference of two 32-bit numbers. */
#define TIMES_POINT_BYTES 5

/* ms: [n] after the chunk's first time. ret: [n * TIMES_POINT_BYTES]. Returns the bytes used. */
size_t times_pack(const int32_t *ms, size_t n, uint8_t *ret);
/* If bytes are missing, the remaining points get the time of the last one. */
void times_unpack(const uint8_t *bytes, size_t len, size_t n, int32_t *ret_ms);

#endif
