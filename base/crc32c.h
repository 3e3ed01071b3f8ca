/* CRC-32C (Castagnoli; RFC 3720, B.4), by table: the checksum of TFRecord files. Pure and thread-safe. */
#ifndef BASE_CRC32C_H
#define BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* crc: 0, or what the bytes before gave. */
uint32_t crc32c(uint32_t crc, const void *data, size_t n);

#endif
