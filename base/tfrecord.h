/* TFRecord files, the framing of TensorBoard's event files: each record is its length (8 bytes), a checksum of these 8
 * bytes, the data, and a checksum of the data, all little-endian. A checksum is a masked CRC-32C. Pure and thread-safe.
 *
 *     tfrecord_head(n, head);              // written before the n bytes of data
 *     tfrecord_checksum(data, n);          // written after them, as htole32
 *
 *     switch (tfrecord_next(at, left, max, &record)) ...     // reads one record; record.bytes leads to the next one */
#ifndef BASE_TFRECORD_H
#define BASE_TFRECORD_H

#include <stddef.h>
#include <stdint.h>

enum { TFRECORD_HEAD_BYTES = 12, TFRECORD_TAIL_BYTES = 4, TFRECORD_FRAME_BYTES = 16 };

uint32_t tfrecord_checksum(const void *data, size_t n);
void tfrecord_head(uint64_t n, uint8_t ret[TFRECORD_HEAD_BYTES]);

enum tfrecord_found {
    TFRECORD_WHOLE,   /* record is complete, and its checksums agree */
    TFRECORD_PARTIAL, /* the data ends inside the record */
    TFRECORD_LARGE,   /* the record has more than max bytes of data, which were not read; record.bytes skips it */
    TFRECORD_CORRUPT, /* a checksum does not agree: where the next record begins is not known */
};

struct tfrecord {
    const uint8_t *data; /* points into the caller's bytes */
    size_t n;
    uint64_t bytes; /* with its frame */
};

/* `ret` is set for WHOLE, for LARGE (without data), and its `bytes` for a PARTIAL whose head is complete; else 0. */
enum tfrecord_found tfrecord_next(const void *data, size_t n, size_t max, struct tfrecord *ret);

#endif
