/* Byte-pair encoding: a word of bytes to tokens, by merging neighbours in the order in which the merges were learned
 * (Sennrich et al. 2016; over bytes: Radford et al. 2019).
 *
 *     TRY(bpe_new(&b, e));
 *     TRY(bpe_token(b, 0, "a", 1, true, e));                                // numbers and their bytes
 *     TRY(bpe_token(b, 1, "b", 1, true, e));
 *     TRY(bpe_token(b, 2, "ab", 2, true, e));
 *     TRY(bpe_merge(b, "a", 1, "b", 1, e));                                 // in the order of their ranks
 *     TRY(bpe_scratch_new(false, &scratch, e));
 *     TRY(bpe_encode(b, scratch, false, "abba", 4, tokens, &n, e));         // 2 1 0
 *
 * Of all neighbours that have a merge the one of the lowest rank is merged first, the leftmost of equals; a heap keeps
 * them, so that a word of n bytes takes n log n steps however long it is.
 *
 * Threads: a bpe is not changed by encoding; a scratch belongs to one thread at a time. Private to this folder. */
#ifndef EXECUTOR_ENGINE_DATA_BPE_H
#define EXECUTOR_ENGINE_DATA_BPE_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BPE_TOKENS = 1 << 24 }; /* token numbers are below it */

struct bpe;
struct bpe_scratch;

MUST_CHECK status_t bpe_new(struct bpe **ret, struct err *e);
struct bpe *bpe_free(struct bpe *b);
CLEANUP_DEFINE(struct bpe *, bpe_free)

/* INVALID_ARGUMENT: a number or bytes that another token has, a number outside [0, BPE_TOKENS). `mergeable`: words may
 * become it; false for added tokens, which stand for themselves. */
MUST_CHECK status_t bpe_token(struct bpe *b, int64_t token, const void *text, size_t n, bool mergeable, struct err *e);

/* The next merge; both parts and what they make together must be tokens already. */
MUST_CHECK status_t bpe_merge(struct bpe *b, const void *left, size_t n_left, const void *right, size_t n_right,
                              struct err *e);

int bpe_vocabulary(const struct bpe *b); /* the largest token + 1 */

/* The token of exactly these bytes among those that words may become; -1 = none. */
int32_t bpe_find(const struct bpe *b, const void *text, size_t n);
/* A token's bytes; NULL when there is no such token. */
const char *bpe_text(const struct bpe *b, int32_t token, size_t *ret_n);

/* Room to work in, with a cache of the words that were met when `cache` says so (for long texts). */
MUST_CHECK status_t bpe_scratch_new(bool cache, struct bpe_scratch **ret, struct err *e);
struct bpe_scratch *bpe_scratch_free(struct bpe_scratch *s);
CLEANUP_DEFINE(struct bpe_scratch *, bpe_scratch_free)

/* tokens (n at most) of the n bytes of one word. whole_first: a word that is a token becomes it without any merge (what
 * tokenizer.json calls ignore_merges). INVALID_ARGUMENT names a byte that is no token by itself. */
MUST_CHECK status_t bpe_encode(const struct bpe *b, struct bpe_scratch *s, bool whole_first, const void *word, size_t n,
                               int32_t *tokens, size_t *ret_n, struct err *e);

#endif
