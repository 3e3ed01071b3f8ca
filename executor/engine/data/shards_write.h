/* Text files as one token file with llm.c's header, which nanoGPT's readers take without its first 1,024 bytes.
 *
 *     struct shards_text text = { .files = paths, .n_files = 2, .tokenizer = tokenizer, .threads = 8 };
 *     TRY(shards_write(&text, "train.bin", &n_tokens, e));
 *
 * Tokens have 2 bytes when the vocabulary has at most 65,536, else 4. Files follow each other with nothing between
 * them. The file appears under its name when it is whole and stored; memory is that of encode.h, however long it is. */
#ifndef EXECUTOR_ENGINE_DATA_SHARDS_WRITE_H
#define EXECUTOR_ENGINE_DATA_SHARDS_WRITE_H

#include "base/status.h"
#include "executor/engine/data/tokenizer.h"

#include <stdint.h>

struct shards_text {
    const char *const *files; /* UTF-8 */
    int n_files;
    const struct tokenizer *tokenizer; /* bpe or byte */
    int threads;                       /* 0 = 1 */
};

/* INVALID_ARGUMENT as corpus_open and for a char tokenizer; RESOURCE_EXHAUSTED for more than 2^31 - 1 tokens, which the
 * header cannot say, and for a full disk. */
MUST_CHECK status_t shards_write(const struct shards_text *text, const char *path, int64_t *ret_tokens, struct err *e);

#endif
