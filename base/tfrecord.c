#include "base/tfrecord.h"

#include "base/crc32c.h"

#include <endian.h>
#include <string.h>

uint32_t tfrecord_checksum(const void *data, size_t n) {
    const uint32_t crc = crc32c(0, data, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

void tfrecord_head(uint64_t n, uint8_t ret[TFRECORD_HEAD_BYTES]) {
    const uint64_t length = htole64(n);
    memcpy(ret, &length, sizeof length);
    const uint32_t checksum = htole32(tfrecord_checksum(ret, sizeof length));
    memcpy(ret + sizeof length, &checksum, sizeof checksum);
}

static uint32_t read_u32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return le32toh(value);
}

enum tfrecord_found tfrecord_next(const void *data, size_t n, size_t max, struct tfrecord *ret) {
    const uint8_t *at = data;
    *ret = (struct tfrecord){ .data = NULL };
    if (n < TFRECORD_HEAD_BYTES)
        return TFRECORD_PARTIAL;
    uint64_t length;
    memcpy(&length, at, sizeof length);
    length = le64toh(length);
    if (tfrecord_checksum(at, sizeof length) != read_u32(at + sizeof length) || length > INT64_MAX / 2)
        return TFRECORD_CORRUPT;
    ret->bytes = length + TFRECORD_FRAME_BYTES;
    if (length > max)
        return TFRECORD_LARGE;
    if (n < ret->bytes)
        return TFRECORD_PARTIAL;
    ret->data = at + TFRECORD_HEAD_BYTES;
    ret->n = (size_t)length;
    return tfrecord_checksum(ret->data, ret->n) == read_u32(ret->data + ret->n) ? TFRECORD_WHOLE : TFRECORD_CORRUPT;
}
