/* Text to tokens and back. Three kinds:
 *
 *   char   one token for each Unicode code point; the vocabulary is the code points of the text, ascending
 *   byte   one token for each byte; the vocabulary is 256
 *   bpe    byte-pair encoding over bytes, as in GPT-2 and Llama 3, from Hugging Face's tokenizer.json (huggingface.h
 *          lists what is supported)
 *
 * A tokenizer is immutable after it is made, so threads may share it. As JSON (for a checkpoint's manifest):
 * {"kind":"byte"}, {"kind":"char","code_points":[10,32,...]} or {"kind":"bpe","tokenizer":{the tokenizer.json}}. */
#ifndef ENGINE_DATA_TOKENIZER_H
#define ENGINE_DATA_TOKENIZER_H

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum tokenizer_kind { TOKENIZER_CHAR, TOKENIZER_BYTE, TOKENIZER_BPE };

struct roots;
struct tokenizer;

/* The byte tokenizer. */
struct tokenizer *tokenizer_new_byte(void);

/* The char tokenizer of these code points: strictly ascending, each a Unicode scalar value, n >= 1.
 * INVALID_ARGUMENT otherwise. The points are copied. */
MUST_CHECK status_t tokenizer_new_char(const uint32_t *code_points, int n, struct tokenizer **ret, struct err *e);

/* The bpe tokenizer of a tokenizer.json's text. INVALID_ARGUMENT names the field that is wrong or not supported. */
MUST_CHECK status_t tokenizer_new_bpe(const char *text, size_t n, struct tokenizer **ret, struct err *e);

/* The bpe tokenizer of a file: a tokenizer.json, GPT-2's vocab.json (with merges.txt beside it), or a folder with
 * either. Files have at most 64 MiB. Errors name the file.
 * roots: that they must lie below (base/roots.h), NULL: anywhere. "gpt2" alone is refused: its vocabulary is a file. */
MUST_CHECK status_t tokenizer_open(const struct roots *roots, const char *path, struct tokenizer **ret, struct err *e);

struct tokenizer *tokenizer_free(struct tokenizer *t);
CLEANUP_DEFINE(struct tokenizer *, tokenizer_free)

enum tokenizer_kind tokenizer_kind_of(const struct tokenizer *t);
int tokenizer_vocabulary(const struct tokenizer *t); /* tokens are 0 .. vocabulary - 1 */
size_t tokenizer_bytes(const struct tokenizer *t);   /* of memory; t may be NULL */

/* The text of a bpe tokenizer's tokenizer.json, in one line, for exports; NULL for the other kinds.
 * Lives as long as the tokenizer. */
const char *tokenizer_huggingface(const struct tokenizer *t);

/* Of a char tokenizer: the code points of its tokens, ascending (vocabulary). NULL for the other kinds. */
const uint32_t *tokenizer_code_points(const struct tokenizer *t);

/* The token of one code point (char) or byte value (byte, bpe); -1 if it is not in the vocabulary. */
int32_t tokenizer_token(const struct tokenizer *t, uint32_t unit);

/* UTF-8 text to at most `capacity` tokens; *ret_n = their number. INVALID_ARGUMENT names the byte offset of invalid
 * UTF-8 or the character that is not in the vocabulary; RESOURCE_EXHAUSTED if capacity is too small (tokenizer_capacity
 * is enough). bpe: the text's words and its added tokens (<|endoftext|>); nothing is inserted. */
MUST_CHECK status_t tokenizer_encode(const struct tokenizer *t, const char *text, size_t n_bytes, int32_t *tokens,
                                     size_t capacity, size_t *ret_n, struct err *e);

/* The same for the middle of a longer text: a tokenizer that inserts a space before every text inserts no space
 * here. */
MUST_CHECK status_t tokenizer_encode_next(const struct tokenizer *t, const char *text, size_t n_bytes, int32_t *tokens,
                                          size_t capacity, size_t *ret_n, struct err *e);
/* The largest number of tokens of a text of n_bytes: n_bytes, or 2 n_bytes + 1 if spaces are inserted before texts. */
size_t tokenizer_capacity(const struct tokenizer *t, size_t n_bytes);

/* Appends the text of the tokens, which for byte and bpe tokens may be invalid UTF-8. INVALID_ARGUMENT for a token
 * outside the vocabulary. */
MUST_CHECK status_t tokenizer_decode(const struct tokenizer *t, const int32_t *tokens, size_t n, struct bytes *ret,
                                     struct err *e);

/* JSON text, NUL-terminated, to be freed with free(); and back. from_json: INVALID_ARGUMENT for a text that to_json
 * does not write. {} has a message of its own, because checkpoints of data without a tokenizer contain it. */
MUST_CHECK status_t tokenizer_to_json(const struct tokenizer *t, char **ret, struct err *e);
MUST_CHECK status_t tokenizer_from_json(const char *json, struct tokenizer **ret, struct err *e);

#endif
