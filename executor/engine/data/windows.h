/* A source over a long row of tokens: a sample is a window of context + 1 adjacent tokens at any start (nanoGPT's
 * windows); its tokens are the first context of them, its targets the last. Private to this folder. */
#ifndef EXECUTOR_ENGINE_DATA_WINDOWS_H
#define EXECUTOR_ENGINE_DATA_WINDOWS_H

#include "executor/engine/data/source.h"

/* Where the tokens are. Any number of threads may read it. */
struct token_store {
    void *ctx;
    int64_t tokens[SOURCE_PARTS];
    int vocabulary;
    const struct tokenizer *tokenizer; /* of ctx; may be NULL */
    const char *sha256;
    /* tokens (n) = the n tokens from `start` of this part. */
    status_t (*read)(const void *ctx, enum source_part part, int64_t start, int n, int32_t *tokens, struct err *e);
    void (*close)(void *ctx);
};

/* INVALID_ARGUMENT when the training part is shorter than context + 1 tokens. Takes store->ctx over only when it
 * succeeds. */
MUST_CHECK status_t windows_open(const struct token_store *store, int context, struct source **ret, struct err *e);

#endif
