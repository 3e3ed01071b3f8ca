/* One record in a spool segment, and the parser for bytes that a crash or a disk may have damaged.
 *
 *   offset  0  u32  CRC32C (Castagnoli) of everything after it: the next 12 bytes and the payload
 *           4  u32  payload length n, 1 .. LIMIT_RECORD_BYTES
 *           8  u64  sequence
 *          16  n bytes of payload
 *
 * Little-endian. Pure functions, thread-safe. */
#ifndef EXECUTOR_AGENT_SPOOL_RECORD_H
#define EXECUTOR_AGENT_SPOOL_RECORD_H

#include <stddef.h>
#include <stdint.h>

enum { SPOOL_RECORD_HEADER = 16 };

/* Writes the header that belongs before these n bytes. */
void spool_record_header(uint8_t ret[SPOOL_RECORD_HEADER], int64_t sequence, const void *payload, size_t n);

/* Parses the record at the start of data[0..n). Returns its size with the header, and its payload within data. Returns
 * 0 if there is no whole, intact record with this sequence: a torn tail, foreign bytes, or the end. */
size_t spool_record_parse(const uint8_t *data, size_t n, int64_t sequence, const uint8_t **ret_payload, size_t *ret_n);

#endif
