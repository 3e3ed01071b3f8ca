/* What hosts say to each other about their caches (README.md): HTTP/1.1, with a token.
 *
 *   POST /find             body: lines of KEY, at most PEER_KEYS_MAX. Answer: a line for each of them:
 *                            SHA256    a copy with this digest is there
 *                            +NUMBER   the object is being copied; the number changes as bytes arrive
 *                            -         neither
 *   GET /objects/SHA256    the bytes of a copy; with Range: bytes=FROM-TO, a part of them
 *
 * The bytes come from outside: whatever they are, the result is a value or false. Pure. */
#ifndef EXECUTOR_DATA_PEER_MESSAGE_H
#define EXECUTOR_DATA_PEER_MESSAGE_H

#include "base/sha256.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PEER_KEYS_MAX = 1024, PEER_FIND_BYTES = PEER_KEYS_MAX * SHA256_HEX };

/* The next key of a request, and the place behind its line. False: the rest does not begin with a key and a line end.
 */
bool peer_key_read(const char *text, size_t n, char ret[SHA256_HEX]);

struct peer_line {
    char sha256[SHA256_HEX]; /* "": the copy is not there */
    bool coming;             /* but it is being copied */
    uint64_t progress;
};
/* The lines of an answer, exactly n of them. */
bool peer_lines_read(const char *text, size_t bytes, size_t n, struct peer_line *ret);

/* A value of Range, within an object of `bytes` bytes: [*ret_from, *ret_from + *ret_n), not empty. */
bool peer_range_read(const char *value, int64_t bytes, int64_t *ret_from, int64_t *ret_n);

#endif
