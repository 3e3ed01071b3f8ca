/* A long text to tokens, in pieces and on several threads, with the tokens that one thread would make.
 *
 * A text may be cut behind a line feed that has no white space on either side: no word of GPT-2's and Llama 3's
 * patterns reaches over such a place, nor does an added token without a line feed in it. Pieces are found by the text
 * alone, never by the number of threads. Private to this folder. */
#ifndef EXECUTOR_ENGINE_DATA_ENCODE_H
#define EXECUTOR_ENGINE_DATA_ENCODE_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/engine/data/data_file.h"
#include "executor/engine/data/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A line of more bytes is cut where the block ends, between two characters. */
enum { ENCODE_PIECE = 256 << 10, ENCODE_BLOCK = 16 << 20 };

struct encode_options {
    const struct tokenizer *tokenizer;
    int threads;                 /* 0 = 1 */
    void (*progress)(void *ctx); /* after each block; may be NULL */
    void *ctx;
};

/* Takes the next n tokens; valid during the call. */
typedef status_t encode_sink_fn(void *ctx, const int32_t *tokens, size_t n, struct err *e);

/* All tokens of a file of UTF-8 text, in order. INVALID_ARGUMENT names the file, and the byte that is not UTF-8 or the
 * one that is no token; else what the sink says. Holds ENCODE_BLOCK bytes of text and their tokens at a time. */
MUST_CHECK status_t encode_file(const struct data_file *f, const struct encode_options *options, encode_sink_fn *sink,
                                void *sink_ctx, struct err *e);

#endif
