/* A byte-level BPE tokenizer from the format of Hugging Face's `tokenizers` (tokenizer.json).
 *
 * Supported: model BPE, merges as "a b" or as ["a", "b"], ignore_merges; pre-tokenizers ByteLevel, Split (a regular
 * expression or a text; behavior Isolated), Digits, and sequences of them that end in ByteLevel; added tokens, special
 * or not, which are found in the text before it is split into words, the longest first. Unsupported fields that would
 * change the tokens are refused by name: normalizers, unknown tokens, byte fallback, dropout, prefixes and suffixes of
 * words, added tokens that are single words or strip space. The post-processor (a begin token before every text) is not
 * applied: a text is encoded as with add_special_tokens=False.
 *
 * A tokenizer is immutable after its creation, so threads may share it. Private to this folder. */
#ifndef ENGINE_DATA_HUGGINGFACE_H
#define ENGINE_DATA_HUGGINGFACE_H

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct huggingface;

/* root: the document, borrowed during the call. INVALID_ARGUMENT names the field that is wrong or not supported. */
MUST_CHECK status_t huggingface_new(json_t *root, struct huggingface **ret, struct err *e);
struct huggingface *huggingface_free(struct huggingface *h);
CLEANUP_DEFINE(struct huggingface *, huggingface_free)

/* Makes the document of GPT-2's two files: vocab.json's object (borrowed) and the text of merges.txt. */
MUST_CHECK status_t huggingface_gpt2_document(json_t *vocabulary, const char *merges, json_t **ret, struct err *e);

int huggingface_vocabulary(const struct huggingface *h);
size_t huggingface_bytes(const struct huggingface *h); /* of memory: its tokens and merges */
/* The character of the byte alphabet for a byte. */
uint32_t huggingface_letter(uint8_t byte);
int32_t huggingface_byte(const struct huggingface *h, uint8_t byte); /* the token of a byte; -1 = none */
/* Whether a space is inserted before a text that begins without one; not in the middle of a longer text. */
bool huggingface_prefix_space(const struct huggingface *h);

/* As tokenizer_encode, for valid UTF-8. beginning: false for the middle of a longer text. */
MUST_CHECK status_t huggingface_encode(const struct huggingface *h, const char *text, size_t n, bool beginning,
                                       int32_t *tokens, size_t capacity, size_t *ret_n, struct err *e);
/* Appends a token's bytes. INVALID_ARGUMENT if there is no such token. */
MUST_CHECK status_t huggingface_decode(const struct huggingface *h, int32_t token, struct bytes *ret, struct err *e);

#endif
