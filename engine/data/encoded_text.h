/* A file with the tokens of one text, as the token cache keeps them (token_cache.h).
 *
 *     header   128 bytes, little endian: a magic number, the version, the bytes of a token, the number of tokens and
 *              of tokens for training, the key; then the SHA-256 of the tokens and of the header before it
 *     tokens   2 or 4 bytes each
 *
 * The digest is compared when the file is opened. Then the tokens are read by pread(2), so they take memory of the
 * host's page cache, once for all processes, and none of the rank. Nothing is mapped: a file that shrinks is an error
 * and not a SIGBUS. Private to this folder. */
#ifndef ENGINE_DATA_ENCODED_TEXT_H
#define ENGINE_DATA_ENCODED_TEXT_H

#include "base/cleanup.h"
#include "base/sha256.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { ENCODED_TEXT_HEADER_BYTES = 128 };

/* What the file says about its text. */
struct encoded_facts {
    uint8_t key[SHA256_BYTES];
    int token_bytes; /* 2 or 4 */
    int64_t tokens;
    int64_t train_tokens; /* of the first files; all of them if the text has no validation files */
};

/* ---- reading ---- */

struct encoded_text;

/* *ret NULL: there is no such file. DATA_LOSS says what is wrong with a file that is not whole, or is not of `key`.
 * Holds a shared flock while it is open. progress: called every few MiB; may be NULL. */
MUST_CHECK status_t encoded_text_open(const char *path, const uint8_t key[SHA256_BYTES], void (*progress)(void *ctx),
                                      void *ctx, struct encoded_text **ret, struct err *e);
struct encoded_text *encoded_text_close(struct encoded_text *t);
CLEANUP_DEFINE(struct encoded_text *, encoded_text_close)

const struct encoded_facts *encoded_text_facts(const struct encoded_text *t);

/* tokens (n) = the n tokens from `start`, which are inside the file. FAILED_PRECONDITION: the file has shrunk. Any
 * number of threads may read. */
MUST_CHECK status_t encoded_text_read(const struct encoded_text *t, int64_t start, int n, int32_t *tokens,
                                      struct err *e);

/* ---- writing ---- */

struct encoded_writer {
    int fd; /* borrowed; empty, open for writing */
    int token_bytes;
    int64_t tokens;
    int64_t max_bytes; /* of the file */
    struct sha256 sha256;
};

MUST_CHECK status_t encoded_writer_begin(struct encoded_writer *w, int fd, int token_bytes, int64_t max_bytes,
                                         struct err *e);
/* RESOURCE_EXHAUSTED: max_bytes, or a full disk. */
MUST_CHECK status_t encoded_writer_put(struct encoded_writer *w, const int32_t *tokens, size_t n, struct err *e);
/* Writes the header, without which the file is not whole, and cuts the file off behind the tokens. facts: token_bytes
 * and tokens are the writer's. */
MUST_CHECK status_t encoded_writer_end(struct encoded_writer *w, const struct encoded_facts *facts, struct err *e);

#endif
