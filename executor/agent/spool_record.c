#include "executor/agent/spool_record.h"

#include "base/limits.h"

#include <endian.h>
#include <isa-l/crc.h>
#include <string.h>

/* ISA-L leaves the two inversions of the standard to its caller, and takes its length as an int. */
static uint32_t crc32c(const uint8_t *head, size_t n_head, const void *payload, size_t n) {
    uint32_t crc = crc32_iscsi((unsigned char *)(uintptr_t)head, (int)n_head, 0xffffffffu);
    return ~crc32_iscsi((unsigned char *)(uintptr_t)payload, (int)n, crc);
}

void spool_record_header(uint8_t ret[SPOOL_RECORD_HEADER], int64_t sequence, const void *payload, size_t n) {
    uint32_t length = htole32((uint32_t)n);
    uint64_t number = htole64((uint64_t)sequence);
    memcpy(ret + 4, &length, 4);
    memcpy(ret + 8, &number, 8);
    uint32_t crc = htole32(crc32c(ret + 4, 12, payload, n));
    memcpy(ret, &crc, 4);
}

size_t spool_record_parse(const uint8_t *data, size_t n, int64_t sequence, const uint8_t **ret_payload, size_t *ret_n) {
    if (n < SPOOL_RECORD_HEADER)
        return 0;
    uint32_t crc, length;
    uint64_t number;
    memcpy(&crc, data, 4);
    memcpy(&length, data + 4, 4);
    memcpy(&number, data + 8, 8);
    length = le32toh(length);
    if (length == 0 || length > LIMIT_RECORD_BYTES || length > n - SPOOL_RECORD_HEADER)
        return 0;
    if (le64toh(number) != (uint64_t)sequence)
        return 0;
    if (crc32c(data + 4, 12, data + SPOOL_RECORD_HEADER, length) != le32toh(crc))
        return 0;
    *ret_payload = data + SPOOL_RECORD_HEADER;
    *ret_n = length;
    return SPOOL_RECORD_HEADER + (size_t)length;
}
