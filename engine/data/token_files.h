/* Files of tokens, little endian, read in order as one sequence:
 *
 *   nanoGPT's    2 bytes for each token (or 4, if token_bytes is 4), without a header
 *   llm.c's      a header of 256 int32 (magic 20240520 and version 1: 2 bytes for each token; magic 20240801 and
 *                version 7: 4 bytes; then the number of tokens), then the tokens
 *
 *     struct token_files_config config = { .files = paths, .n_files = 2, .token_bytes = 2, .vocabulary = 50257 };
 *     TRY(token_files_open(&config, &files, e));
 *     TRY(token_files_read(files, start, context + 1, window, e));
 *
 * Files are read by pread(2) and not mapped, so a file that shrinks causes an error and not a SIGBUS. Every token that
 * is read is compared with the vocabulary.
 *
 * Threads: after open, any number of threads may read. */
#ifndef ENGINE_DATA_TOKEN_FILES_H
#define ENGINE_DATA_TOKEN_FILES_H

#include "base/cleanup.h"
#include "base/sha256.h"
#include "base/status.h"

#include <stdint.h>

enum {
    TOKEN_FILE_HEADER_BYTES = 1024,
    TOKEN_FILE_MAGIC_2 = 20240520,
    TOKEN_FILE_VERSION_2 = 1,
    TOKEN_FILE_MAGIC_4 = 20240801,
    TOKEN_FILE_VERSION_4 = 7
};

struct roots;

struct token_files_config {
    const char *const *files; /* regular files with or without a header; the list may be empty */
    int n_files;
    int token_bytes;           /* 2 or 4: of files without a header */
    int vocabulary;            /* every token is below it; >= 1 */
    const struct roots *roots; /* that the files must lie below; NULL: anywhere */
};

struct token_files;

/* NOT_FOUND, PERMISSION_DENIED; INVALID_ARGUMENT names the file, and the byte, of a header with an unknown version
 * or a wrong count, of a length that is not a multiple of the token size, and of a file that is text. */
MUST_CHECK status_t token_files_open(const struct token_files_config *config, struct token_files **ret, struct err *e);
struct token_files *token_files_close(struct token_files *s);
CLEANUP_DEFINE(struct token_files *, token_files_close)

int64_t token_files_tokens(const struct token_files *s);

/* tokens (n) = the n tokens from `start`, across the ends of files. INVALID_ARGUMENT names the file and the byte of a
 * token outside the vocabulary, FAILED_PRECONDITION a file that has shrunk since open. The range must be inside the
 * files. */
MUST_CHECK status_t token_files_read(const struct token_files *s, int64_t start, int n, int32_t *tokens, struct err *e);

/* Adds the files to a digest: their lengths and bytes; of a file over 64 MiB the first 64 KiB of every 16 MiB, so that
 * opening a terabyte takes seconds. */
MUST_CHECK status_t token_files_digest(const struct token_files *s, struct sha256 *sha256, struct err *e);

#endif
