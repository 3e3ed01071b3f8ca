/* FNV-1a with 64 bits, to recognise what was there before: paths, requests, parameters. Pure. */
#ifndef EXECUTOR_PROGRAM_TRACKING_HASH_H
#define EXECUTOR_PROGRAM_TRACKING_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HASH_BEGIN UINT64_C(0xcbf29ce484222325)

static inline uint64_t hash_bytes(uint64_t hash, const void *data, size_t n) {
    const uint8_t *at = data;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* With its end, so that "a" "b" differs from "ab" "". */
static inline uint64_t hash_text(uint64_t hash, const char *text) { return hash_bytes(hash, text, strlen(text) + 1); }

#endif
