/* A source over a long sequence of tokens. A sample is a window of context + 1 adjacent tokens: its tokens are the
 * first `context` of them, its targets the last. A split of n tokens has (n - 1) / context windows, which lie end to
 * end: each token is a target once in an epoch, except for less than `context` at either end. Private to this
 * folder. */
#ifndef ENGINE_DATA_WINDOWS_H
#define ENGINE_DATA_WINDOWS_H

#include "engine/data/source.h"

/* The tokens. Any number of threads may read them. */
struct token_store {
    void *ctx;
    int64_t tokens[SOURCE_SPLITS];
    int vocabulary;
    const struct tokenizer *tokenizer; /* of ctx; may be NULL */
    const char *sha256;
    size_t memory_bytes; /* of ctx */
    /* tokens (n) = the n tokens from `start` of this split. */
    status_t (*read)(const void *ctx, enum source_split split, int64_t start, int n, int32_t *tokens, struct err *e);
    void (*close)(void *ctx);
};

/* INVALID_ARGUMENT if the training split is shorter than context + 1 tokens. Owns store->ctx only after a success. */
MUST_CHECK status_t windows_open(const struct token_store *store, int context, struct source **ret, struct err *e);

#endif
