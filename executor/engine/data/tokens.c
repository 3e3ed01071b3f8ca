/* Token files as a source: two rows of tokens and the windows over them. */
#include "executor/engine/data/shards.h"
#include "executor/engine/data/source_kind.h"
#include "executor/engine/data/tokenizer.h"
#include "executor/engine/data/windows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct tokens {
    struct shards *parts[SOURCE_PARTS];
    struct tokenizer *tokenizer; /* may be NULL */
    int vocabulary;
    char sha256[SHA256_HEX];
};

static status_t read_tokens(const void *ctx, enum source_part part, int64_t start, int n, int32_t *tokens,
                            struct err *e) {
    return shards_read(((const struct tokens *)ctx)->parts[part], start, n, tokens, e);
}

static void close_tokens(void *ctx) {
    struct tokens *t = ctx;
    for (int part = 0; part < SOURCE_PARTS; part++)
        shards_close(t->parts[part]);
    tokenizer_free(t->tokenizer);
    free(t);
}

static status_t open_tokenizer(struct tokens *t, const char *name, struct err *e) {
    if (!name || !*name)
        return ST_OK;
    if (strcmp(name, "byte") == 0)
        return tokenizer_new_byte(&t->tokenizer, e);
    if (strcmp(name, "char") == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "token files have no characters to make the tokenizer char from");
    return tokenizer_open(name, &t->tokenizer, e);
}

static status_t digest(struct tokens *t, struct err *e) {
    struct sha256 sha256;
    sha256_begin(&sha256);
    status_t st = ST_OK;
    for (int part = 0; part < SOURCE_PARTS && st == ST_OK; part++)
        st = shards_digest(t->parts[part], &sha256, e);
    uint8_t bytes[SHA256_BYTES];
    sha256_final(&sha256, bytes);
    sha256_hex(bytes, t->sha256);
    return st;
}

static status_t open_tokens(struct tokens *t, const struct data_tokens *config, const struct source_options *options,
                            struct err *e) {
    if (config->n_train < 1)
        return err_set(e, ST_INVALID_ARGUMENT, "there are no token files");
    TRY(open_tokenizer(t, config->tokenizer, e));
    t->vocabulary = options->vocabulary ? options->vocabulary : t->tokenizer ? tokenizer_vocabulary(t->tokenizer) : 0;
    if (t->vocabulary < 1)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "token files do not say how large their vocabulary is: the model's vocabulary or a tokenizer "
                       "must");
    const struct shards_config parts[SOURCE_PARTS] = {
        { config->train, config->n_train, config->token_bytes ? config->token_bytes : 2, t->vocabulary },
        { config->validation, config->n_validation, config->token_bytes ? config->token_bytes : 2, t->vocabulary },
    };
    for (int part = 0; part < SOURCE_PARTS; part++)
        TRY(shards_open(&parts[part], &t->parts[part], e));
    return digest(t, e);
}

status_t source_open_tokens(const struct data_config *config, const struct source_options *options, struct source **ret,
                            struct err *e) {
    struct tokens *t = calloc(1, sizeof *t);
    if (!t)
        return err_errno(e, "allocate a source");
    status_t st = open_tokens(t, &config->tokens, options, e);
    if (st == ST_OK) {
        struct token_store store = { .ctx = t,
                                     .tokens = { shards_tokens(t->parts[SOURCE_TRAIN]),
                                                 shards_tokens(t->parts[SOURCE_VALIDATION]) },
                                     .vocabulary = t->vocabulary,
                                     .tokenizer = t->tokenizer,
                                     .sha256 = t->sha256,
                                     .read = read_tokens,
                                     .close = close_tokens };
        st = windows_open(&store, options->context, ret, e);
    }
    if (st != ST_OK)
        close_tokens(t);
    return st;
}
