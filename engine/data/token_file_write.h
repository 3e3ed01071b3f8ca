/* Encodes text files to one token file with llm.c's header. nanoGPT's readers need it without its first 1,024 bytes.
 *
 *     struct token_file_text text = { .files = paths, .n_files = 2, .tokenizer = tokenizer, .threads = 8 };
 *     TRY(token_file_write(&text, "train.bin", &n_tokens, e));
 *
 * Tokens have 2 bytes if the vocabulary has at most 65,536 tokens, else 4. The file gets its name when it is complete
 * and synced. Memory is that of encode.h, however long the text is; the text of a file that is not plain text takes
 * space in the folder of the token file until the file is encoded. */
#ifndef ENGINE_DATA_TOKEN_FILE_WRITE_H
#define ENGINE_DATA_TOKEN_FILE_WRITE_H

#include "base/status.h"
#include "engine/data/text_file.h"
#include "engine/data/tokenizer.h"

#include <stdint.h>

struct token_file_text {
    const char *const *files; /* UTF-8 */
    int n_files;
    enum text_form form;               /* of every file */
    const char *document, *separator;  /* as in struct text_format */
    const struct tokenizer *tokenizer; /* bpe or byte */
    int threads;                       /* 0 = 1 */
};

/* INVALID_ARGUMENT as corpus_open and for a char tokenizer; RESOURCE_EXHAUSTED for more than 2^31 - 1 tokens, the limit
 * of the header, and for a full disk. */
MUST_CHECK status_t token_file_write(const struct token_file_text *text, const char *path, int64_t *ret_tokens,
                                     struct err *e);

#endif
