/* A byte-level BPE tokenizer as Hugging Face's `tokenizers` stores it (tokenizer.json), read and used.
 *
 * What is accepted: model BPE, merges as "a b" or as ["a", "b"], ignore_merges; pre-tokenizers ByteLevel, Split (a
 * regular expression or a text; behaviour Isolated), Digits, and sequences of them that end in ByteLevel; added tokens,
 * special or not, found in the text before it is cut in words, the longest first. What would change the tokens and is
 * not accepted is refused by name: normalizers, unknown tokens, byte fallback, dropout, prefixes and suffixes of words,
 * added tokens that are single words or take space beside them. The post-processor (a begin token before every text)
 * is not applied: a text is encoded as it is (add_special_tokens=False).
 *
 * Immutable after it is made, so threads may share one. Private to this folder. */
#ifndef EXECUTOR_ENGINE_DATA_HUGGINGFACE_H
#define EXECUTOR_ENGINE_DATA_HUGGINGFACE_H

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct huggingface;

/* root: the document, borrowed. INVALID_ARGUMENT names the field that is wrong or not accepted. */
MUST_CHECK status_t huggingface_new(json_t *root, struct huggingface **ret, struct err *e);
struct huggingface *huggingface_free(struct huggingface *h);
CLEANUP_DEFINE(struct huggingface *, huggingface_free)

/* The document of GPT-2's two files: vocab.json's object (borrowed) and the text of merges.txt. */
MUST_CHECK status_t huggingface_gpt2_document(json_t *vocabulary, const char *merges, json_t **ret, struct err *e);

int huggingface_vocabulary(const struct huggingface *h);
int32_t huggingface_byte(const struct huggingface *h, uint8_t byte); /* its token; -1 = none */
/* A space is put before a text that begins with none: only before what is the beginning of a text. */
bool huggingface_prefix_space(const struct huggingface *h);

/* As tokenizer_encode, of valid UTF-8. beginning: the text is one, not the middle of a longer one. */
MUST_CHECK status_t huggingface_encode(const struct huggingface *h, const char *text, size_t n, bool beginning,
                                       int32_t *tokens, size_t capacity, size_t *ret_n, struct err *e);
/* Appends a token's bytes. INVALID_ARGUMENT when there is no such token. */
MUST_CHECK status_t huggingface_decode(const struct huggingface *h, int32_t token, struct bytes *ret, struct err *e);

#endif
