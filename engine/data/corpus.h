/* The text that a job trains on: files read in order as one text, as tokens, divided into a training and a validation
 * split.
 *
 *     struct corpus_config config = { .files = paths, .n_files = 2, .kind = TOKENIZER_CHAR };
 *     TRY(corpus_open(&config, &corpus, e));
 *     TRY(corpus_read(corpus, CORPUS_TRAIN, start, context + 1, window, e));
 *
 * Validation has the tokens of its own files, or the last validation_fraction of the tokens: training has
 * floor(n * (1 - fraction)) tokens (nanoGPT's split).
 *
 * A byte-pair tokenizer encodes the text once, while it is opened, on `threads` threads. Files are encoded separately,
 * so no word extends over the end of a file. A line of more than 16 MiB is divided after 16 MiB, even within a word.
 *
 * With a token cache, a byte-pair text of at least TOKEN_CACHE_MIN_BYTES is encoded once on this host (token_cache.h),
 * to the same tokens.
 *
 * Memory: tokens are in memory, 1, 2 or 4 bytes each by vocabulary, or in a file of the token cache, which takes none;
 * during encoding, another 32 MiB of text and 64 MiB of tokens, and the texts of files that are not plain text. Byte
 * texts of more than CORPUS_OWNED_BYTES stay in their files and are read by pread(2). A bpe text with more than
 * CORPUS_OWNED_BYTES of tokens is refused: token files (token_files.h) have no such limit. Nothing is mapped, so a file
 * that shrinks while it is used is an error and not a SIGBUS.
 *
 * Threads: after open a corpus does not change; any number of threads may read it. */
#ifndef ENGINE_DATA_CORPUS_H
#define ENGINE_DATA_CORPUS_H

#include "base/cleanup.h"
#include "base/status.h"
#include "engine/data/tokenizer.h"

#include <stdint.h>

#define CORPUS_OWNED_BYTES ((int64_t)1 << 30)

struct data_text;
struct roots;
struct text_format;
struct token_cache;

struct corpus_config {
    const char *const *files; /* paths of regular files, at least one */
    int n_files;
    const char *const *validation; /* files of their own; the characters of all files make one vocabulary */
    int n_validation;
    const struct text_format *format;  /* of every file (text_file.h); NULL: plain text */
    const struct roots *roots;         /* that the files must lie below; NULL: anywhere */
    const struct tokenizer *tokenizer; /* borrowed until corpus_close; NULL = a new one of `kind` */
    enum tokenizer_kind kind;          /* char (of the text's characters) or byte */
    double validation_fraction;        /* [0, 1); 0 if there are validation files */
    int threads;                       /* that encode; 0 = 1 */
    const struct token_cache *cache;   /* NULL: tokens are in memory */
    const struct data_text *text;      /* what `cache` is asked for */
    void (*progress)(void *ctx);       /* called every few MiB while files are read; may be NULL */
    void *ctx;
};

enum corpus_split { CORPUS_TRAIN, CORPUS_VALIDATION };

struct corpus;

/* Errors name the file: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (not a regular file; invalid UTF-8 with its byte
 * offset; a character that is not in the given vocabulary; empty), RESOURCE_EXHAUSTED. */
MUST_CHECK status_t corpus_open(const struct corpus_config *config, struct corpus **ret, struct err *e);
struct corpus *corpus_close(struct corpus *c);
CLEANUP_DEFINE(struct corpus *, corpus_close)

const struct tokenizer *corpus_tokenizer(const struct corpus *c); /* lives as long as the corpus */
int64_t corpus_tokens(const struct corpus *c, enum corpus_split split);
size_t corpus_bytes(const struct corpus *c); /* of memory for tokens: 0 if they are in files */

/* SHA-256 of the text's bytes in order (of plain text: `cat files | sha256sum`), with a bpe tokenizer followed by its
 * document, with validation files followed by the number of the bytes before them; hex. Lives as long as the corpus. */
const char *corpus_sha256(const struct corpus *c);

/* tokens (n) = the n tokens from `start` of this split. FAILED_PRECONDITION names a file that has shrunk since open (a
 * change that keeps its length is not seen); the range must be inside the split. */
MUST_CHECK status_t corpus_read(const struct corpus *c, enum corpus_split split, int64_t start, int n, int32_t *tokens,
                                struct err *e);

#endif
