/* Text to token numbers and back. Three kinds:
 *
 *   char   one token a Unicode code point; the vocabulary is the text's own code points, sorted ascending
 *   byte   one token a byte; the vocabulary is 256
 *   bpe    byte-pair encoding over bytes, as GPT-2 and Llama 3 have it, from Hugging Face's tokenizer.json
 *          (huggingface.h says what of it is accepted)
 *
 * A tokenizer is immutable after it is made, so threads may share it. As JSON (for a checkpoint's manifest):
 * {"kind":"byte"}, {"kind":"char","code_points":[10,32,...]} or {"kind":"bpe","tokenizer":{the tokenizer.json}}. */
#ifndef EXECUTOR_ENGINE_DATA_TOKENIZER_H
#define EXECUTOR_ENGINE_DATA_TOKENIZER_H

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum tokenizer_kind { TOKENIZER_CHAR, TOKENIZER_BYTE, TOKENIZER_BPE };

struct tokenizer;

/* The byte tokenizer. */
MUST_CHECK status_t tokenizer_new_byte(struct tokenizer **ret, struct err *e);

/* The char tokenizer of these code points: strictly ascending, each a Unicode scalar value, n >= 1.
 * INVALID_ARGUMENT otherwise. The points are copied. */
MUST_CHECK status_t tokenizer_new_char(const uint32_t *code_points, int n, struct tokenizer **ret, struct err *e);

/* The bpe tokenizer of a tokenizer.json's text. INVALID_ARGUMENT names the field that is wrong or not supported. */
MUST_CHECK status_t tokenizer_new_bpe(const char *text, size_t n, struct tokenizer **ret, struct err *e);

/* The bpe tokenizer of a file: a tokenizer.json, GPT-2's vocab.json (with merges.txt beside it), or a folder with
 * either. Files have at most 64 MiB. Errors name the file. "gpt2" alone is refused: its vocabulary is a file. */
MUST_CHECK status_t tokenizer_open(const char *path, struct tokenizer **ret, struct err *e);

struct tokenizer *tokenizer_free(struct tokenizer *t);
CLEANUP_DEFINE(struct tokenizer *, tokenizer_free)

enum tokenizer_kind tokenizer_kind_of(const struct tokenizer *t);
int tokenizer_vocabulary(const struct tokenizer *t); /* tokens are 0 .. vocabulary - 1 */

/* The text of a bpe tokenizer's tokenizer.json, in one line, for whoever exports the model; NULL for the other kinds.
 * Lives as long as the tokenizer. */
const char *tokenizer_huggingface(const struct tokenizer *t);

/* Of a char tokenizer: the code points of its tokens, ascending (vocabulary). NULL for the other kinds. */
const uint32_t *tokenizer_code_points(const struct tokenizer *t);

/* The token of one code point (char) or byte value (byte, bpe); -1 when it is not in the vocabulary. */
int32_t tokenizer_token(const struct tokenizer *t, uint32_t unit);

/* UTF-8 text to at most `capacity` tokens; *ret_n = how many. INVALID_ARGUMENT names the byte offset of invalid UTF-8
 * or the character that the vocabulary lacks; RESOURCE_EXHAUSTED when capacity is too small (tokenizer_capacity is
 * enough). bpe: the text's words and its added tokens (<|endoftext|>), and nothing that is not in the text. */
MUST_CHECK status_t tokenizer_encode(const struct tokenizer *t, const char *text, size_t n_bytes, int32_t *tokens,
                                     size_t capacity, size_t *ret_n, struct err *e);

/* The same for the middle of a longer text: where a tokenizer puts a space before every text, none is put here. */
MUST_CHECK status_t tokenizer_encode_next(const struct tokenizer *t, const char *text, size_t n_bytes, int32_t *tokens,
                                          size_t capacity, size_t *ret_n, struct err *e);
/* The most tokens that a text of n_bytes becomes: n_bytes, but 2 n_bytes + 1 where spaces are put before texts. */
size_t tokenizer_capacity(const struct tokenizer *t, size_t n_bytes);

/* Appends the text of the tokens. That of bytes and of bpe tokens need not be valid UTF-8. INVALID_ARGUMENT for a token
 * outside the vocabulary. */
MUST_CHECK status_t tokenizer_decode(const struct tokenizer *t, const int32_t *tokens, size_t n, struct bytes *ret,
                                     struct err *e);

/* JSON text, NUL-terminated, to be freed with free(); and back. from_json: INVALID_ARGUMENT for anything that to_json
 * does not write, with a sentence of its own for {}, what a checkpoint says of data without a tokenizer. */
MUST_CHECK status_t tokenizer_to_json(const struct tokenizer *t, char **ret, struct err *e);
MUST_CHECK status_t tokenizer_from_json(const char *json, struct tokenizer **ret, struct err *e);

#endif
