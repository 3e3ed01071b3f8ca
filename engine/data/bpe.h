/* Byte-pair encoding: turns a word of bytes into tokens by merging neighbours in the order in which merges were learned
 * (Sennrich et al. 2016; over bytes: Radford et al. 2019).
 *
 *     struct bpe *b = bpe_new();
 *     TRY(bpe_token(b, 0, "a", 1, true, e));                                // ids and their bytes
 *     TRY(bpe_token(b, 1, "b", 1, true, e));
 *     TRY(bpe_token(b, 2, "ab", 2, true, e));
 *     TRY(bpe_merge(b, "a", 1, "b", 1, e));                                 // in the order of their ranks
 *     struct bpe_scratch *scratch = bpe_scratch_new(false);
 *     TRY(bpe_encode(b, scratch, false, "abba", 4, tokens, &n, e));         // 2 1 0
 *
 * The pair with the lowest rank is merged first, the leftmost of equals. Pairs are in a heap, so a word of n bytes
 * takes O(n log n) steps.
 *
 * Threads: a bpe is not changed by encoding; a scratch belongs to one thread at a time. Private to this folder. */
#ifndef ENGINE_DATA_BPE_H
#define ENGINE_DATA_BPE_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BPE_TOKENS = 1 << 24 }; /* token numbers are below it */

struct bpe;
struct bpe_scratch;

struct bpe *bpe_new(void);
struct bpe *bpe_free(struct bpe *b);
CLEANUP_DEFINE(struct bpe *, bpe_free)

/* INVALID_ARGUMENT: another token has this number or these bytes, or the number is outside [0, BPE_TOKENS). mergeable:
 * words may become this token; false for added tokens. */
MUST_CHECK status_t bpe_token(struct bpe *b, int64_t token, const void *text, size_t n, bool mergeable, struct err *e);

/* Adds the next merge. Both parts and their concatenation must be tokens already. */
MUST_CHECK status_t bpe_merge(struct bpe *b, const void *left, size_t n_left, const void *right, size_t n_right,
                              struct err *e);

int bpe_vocabulary(const struct bpe *b); /* the largest token + 1 */
size_t bpe_bytes(const struct bpe *b);   /* of memory */

/* The mergeable token with exactly these bytes; -1 = none. */
int32_t bpe_find(const struct bpe *b, const void *text, size_t n);
/* A token's bytes; NULL if there is no such token. */
const char *bpe_text(const struct bpe *b, int32_t token, size_t *ret_n);

/* Workspace of one thread; with `cache`, it remembers the tokens of short words (for long texts). */
struct bpe_scratch *bpe_scratch_new(bool cache);
struct bpe_scratch *bpe_scratch_free(struct bpe_scratch *s);
CLEANUP_DEFINE(struct bpe_scratch *, bpe_scratch_free)

/* tokens (at most n) = the tokens of a word of n bytes. whole_first: a word that is a token becomes this token without
 * merges (ignore_merges in tokenizer.json). INVALID_ARGUMENT names a byte that is not a token. */
MUST_CHECK status_t bpe_encode(const struct bpe *b, struct bpe_scratch *s, bool whole_first, const void *word, size_t n,
                               int32_t *tokens, size_t *ret_n, struct err *e);

#endif
