/* Writes a tokenizer as tokenizer.json, so that Hugging Face's transformers encodes and decodes as this program does.
 *
 *   char   WordLevel over single code points; a character outside the vocabulary is an error there, too
 *   byte   BPE without merges over the byte alphabet: the character of byte b is token b
 *   bpe    the tokenizer.json that it was read from */
#ifndef ENGINE_DATA_TOKENIZER_DOCUMENT_H
#define ENGINE_DATA_TOKENIZER_DOCUMENT_H

#include "engine/data/tokenizer.h"

/* Appends the text of tokenizer.json. */
MUST_CHECK status_t tokenizer_document(const struct tokenizer *t, struct bytes *ret, struct err *e);

/* Appends the text of tokenizer_config.json, which makes AutoTokenizer use tokenizer.json instead of the model's
 * default tokenizer; appends nothing for bpe. context: the model's largest number of tokens. */
MUST_CHECK status_t tokenizer_document_config(const struct tokenizer *t, int context, struct bytes *ret, struct err *e);

/* "char", "byte" or "bpe". */
const char *tokenizer_kind_name(const struct tokenizer *t);

#endif
