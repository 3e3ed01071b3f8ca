/* Files of token numbers, little endian, in order as one row of tokens:
 *
 *   nanoGPT's    numbers of 2 bytes (or 4, when the caller says so) and nothing else
 *   llm.c's      a header of 256 int32 (magic 20240520 and version 1: numbers of 2 bytes; magic 20240801 and version 7:
 *                of 4; then how many), and the numbers
 *
 *     struct shards_config config = { .files = paths, .n_files = 2, .token_bytes = 2, .vocabulary = 50257 };
 *     TRY(shards_open(&config, &shards, e));
 *     TRY(shards_read(shards, start, context + 1, window, e));
 *
 * Files stay where they are and are read by pread(2): a file that shrinks is a sentence and not a SIGBUS. Every number
 * that is read is compared with the vocabulary.
 *
 * Threads: after open, any number of threads may read. */
#ifndef EXECUTOR_ENGINE_DATA_SHARDS_H
#define EXECUTOR_ENGINE_DATA_SHARDS_H

#include "base/cleanup.h"
#include "base/sha256.h"
#include "base/status.h"

#include <stdint.h>

enum {
    SHARDS_HEADER_BYTES = 1024,
    SHARDS_MAGIC_2 = 20240520,
    SHARDS_VERSION_2 = 1,
    SHARDS_MAGIC_4 = 20240801,
    SHARDS_VERSION_4 = 7
};

struct shards_config {
    const char *const *files; /* regular files, each with a header or none; none of them is fine */
    int n_files;
    int token_bytes; /* 2 or 4: of files without a header */
    int vocabulary;  /* every token is below it; >= 1 */
};

struct shards;

/* NOT_FOUND, PERMISSION_DENIED; INVALID_ARGUMENT names the file, and the byte, of a header whose version is unknown or
 * whose count is not what the file holds, and of a length that is no whole number of tokens. */
MUST_CHECK status_t shards_open(const struct shards_config *config, struct shards **ret, struct err *e);
struct shards *shards_close(struct shards *s);
CLEANUP_DEFINE(struct shards *, shards_close)

int64_t shards_tokens(const struct shards *s);

/* tokens (n) = the n tokens from `start`, over the ends of files. INVALID_ARGUMENT names the file and the byte of a
 * token that the vocabulary lacks, FAILED_PRECONDITION a file that has shrunk since open; a range outside is our own
 * bug. */
MUST_CHECK status_t shards_read(const struct shards *s, int64_t start, int n, int32_t *tokens, struct err *e);

/* What stands for the files in a digest: lengths, and their bytes; of a file over 64 MiB the first 64 KiB of every
 * 16 MiB, so that opening a terabyte takes seconds. */
MUST_CHECK status_t shards_digest(const struct shards *s, struct sha256 *sha256, struct err *e);

#endif
