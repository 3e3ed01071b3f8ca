/* Encodes a long text to tokens in segments and on several threads, with the same result as on one thread.
 *
 * Segments end after a line feed that has no white space on either side: no word of GPT-2's and Llama 3's patterns and
 * no added token without a line feed extends across such a boundary. Boundaries depend on the text alone, not on the
 * number of threads. Private to this folder. */
#ifndef ENGINE_DATA_ENCODE_H
#define ENGINE_DATA_ENCODE_H

#include "base/cleanup.h"
#include "base/sha256.h"
#include "base/status.h"
#include "engine/data/data_file.h"
#include "engine/data/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A line longer than a block is divided at the end of the block, between two characters. */
enum { ENCODE_SEGMENT = 256 << 10, ENCODE_BLOCK = 16 << 20 };

struct encode_options {
    const struct tokenizer *tokenizer;
    int threads;                 /* 0 = 1 */
    struct sha256 *sha256;       /* gets the bytes that are encoded; may be NULL */
    void (*progress)(void *ctx); /* after each block; may be NULL */
    void *ctx;
};

/* Takes the next n tokens; valid during the call. */
typedef status_t encode_sink_fn(void *ctx, const int32_t *tokens, size_t n, struct err *e);

/* Passes all tokens of a UTF-8 text file to the sink, in order. INVALID_ARGUMENT names the file, and the byte that is
 * not UTF-8 or not in the vocabulary; errors of the sink are returned. Holds ENCODE_BLOCK bytes of text and their
 * tokens. */
MUST_CHECK status_t encode_file(const struct data_file *f, const struct encode_options *options, encode_sink_fn *sink,
                                void *sink_ctx, struct err *e);

#endif
