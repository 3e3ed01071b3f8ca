/* The archives of code that this host has, in one folder:
 *
 *   SHA256.tar    an archive
 *   SHA256.part   one that is being downloaded; its lock is held by the process that downloads it
 *   lock          held while space is made
 *
 * Several processes may use the folder at the same time; each archive is downloaded by one of them. The sum of the
 * sizes has a limit: the archives that were not used for longest are removed first, and none that is being read. A
 * process that is killed leaves nothing that the next one does not use or remove. */
#ifndef EXECUTOR_CODE_CACHE_H
#define EXECUTOR_CODE_CACHE_H

#include "base/status.h"

#include <stdint.h>

struct code_cache {
    const char *path;  /* exists */
    int64_t max_bytes; /* of all archives in the folder */
    /* Downloads an archive to the file, which is empty. It calls code_cache_reserve before it writes the first byte. */
    status_t (*download)(void *ctx, const struct code_cache *cache, const char *archive, int file, struct err *e);
    void *ctx;
};

/* *ret_file: the archive, open for reading from its first byte, with the bytes that its name says. Errors of the
 * download are returned as they are. */
MUST_CHECK status_t code_cache_open(const struct code_cache *cache, const char *archive, int *ret_file, struct err *e);

/* Gives the file its size and its space on the disk. RESOURCE_EXHAUSTED: the disk is full, or the cache too small. */
MUST_CHECK status_t code_cache_reserve(const struct code_cache *cache, int file, int64_t bytes, struct err *e);

#endif
