/* The byte-pair tokens of a text: taken from the token cache, or made, in the cache or in memory. Private to this
 * folder. */
#ifndef ENGINE_DATA_BYTE_PAIRS_H
#define ENGINE_DATA_BYTE_PAIRS_H

#include "base/status.h"
#include "engine/data/corpus.h"
#include "engine/data/data_file.h"
#include "engine/data/encoded_text.h"

/* One file of a text. */
struct text_part {
    struct data_file file;
    int64_t first; /* offset of its first byte in the whole text */
};

struct byte_pairs_text {
    const struct corpus_config *config; /* with a bpe tokenizer */
    const struct text_part *parts;
    int n;
    int64_t bytes, train_bytes; /* train_bytes: before the validation files */
    const char *sha256;         /* corpus_sha256 */
};

struct byte_pairs {
    struct encoded_text *file; /* NULL: in memory */
    void *owned;               /* (tokens), 2 or 4 bytes each */
    int token_bytes;
    int64_t tokens;
    int64_t train_tokens; /* of the files before the validation files */
};

/* FAILED_PRECONDITION: the bytes are no longer those of sha256. RESOURCE_EXHAUSTED: more than CORPUS_OWNED_BYTES of
 * tokens, whether in memory or in a file, so that no text depends on the host's cache; or no memory. A cache that
 * cannot be used is reported to it, and the tokens are in memory. */
MUST_CHECK status_t byte_pairs_make(const struct byte_pairs_text *text, struct byte_pairs *ret, struct err *e);

/* What follows a text's bytes in its digest. */
void byte_pairs_digest_end(const struct corpus_config *config, int64_t train_bytes, struct sha256 *s);

#endif
