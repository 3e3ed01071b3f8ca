/* Token files as a source: two sequences of tokens (training and validation) and the windows over them. */
#include "base/alloc.h"
#include "engine/data/source_kind.h"
#include "engine/data/token_files.h"
#include "engine/data/tokenizer.h"
#include "engine/data/windows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct tokens {
    struct token_files *splits[SOURCE_SPLITS];
    struct tokenizer *tokenizer; /* may be NULL */
    int vocabulary;
    char sha256[SHA256_HEX];
};

static status_t read_tokens(const void *ctx, enum source_split split, int64_t start, int n, int32_t *tokens,
                            struct err *e) {
    return token_files_read(((const struct tokens *)ctx)->splits[split], start, n, tokens, e);
}

static void close_tokens(void *ctx) {
    struct tokens *t = ctx;
    for (int split = 0; split < SOURCE_SPLITS; split++)
        token_files_close(t->splits[split]);
    tokenizer_free(t->tokenizer);
    free(t);
}

static status_t open_tokenizer(struct tokens *t, const struct roots *roots, const char *name, struct err *e) {
    if (!name || !*name)
        return ST_OK;
    if (strcmp(name, "char") == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "token files have no characters to make the tokenizer char from");
    if (strcmp(name, "byte") != 0)
        return tokenizer_open(roots, name, &t->tokenizer, e);
    t->tokenizer = tokenizer_new_byte();
    return ST_OK;
}

static status_t digest(struct tokens *t, struct err *e) {
    struct sha256 sha256;
    sha256_begin(&sha256);
    status_t st = ST_OK;
    for (int split = 0; split < SOURCE_SPLITS && st == ST_OK; split++)
        st = token_files_digest(t->splits[split], &sha256, e);
    uint8_t bytes[SHA256_BYTES];
    sha256_final(&sha256, bytes);
    sha256_hex(bytes, t->sha256);
    return st;
}

static status_t open_tokens(struct tokens *t, const struct data_config *data, const struct source_options *options,
                            struct err *e) {
    const struct data_tokens *config = &data->tokens;
    if (config->n_train < 1)
        return err_set(e, ST_INVALID_ARGUMENT, "there are no token files");
    TRY(open_tokenizer(t, data->roots, config->tokenizer, e));
    t->vocabulary = options->vocabulary ? options->vocabulary : t->tokenizer ? tokenizer_vocabulary(t->tokenizer) : 0;
    if (t->vocabulary < 1)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "token files do not contain the size of their vocabulary: the model's vocabulary or a tokenizer "
                       "must");
    const struct token_files_config splits[SOURCE_SPLITS] = {
        { config->train, config->n_train, config->token_bytes ? config->token_bytes : 2, t->vocabulary, data->roots },
        { config->validation, config->n_validation, config->token_bytes ? config->token_bytes : 2, t->vocabulary,
          data->roots },
    };
    for (int split = 0; split < SOURCE_SPLITS; split++)
        TRY(token_files_open(&splits[split], &t->splits[split], e));
    return digest(t, e);
}

static status_t open_source(const struct data_config *config, const struct source_options *options, struct source **ret,
                            struct err *e) {
    struct tokens *t = alloc_zeroed(1, sizeof *t);
    status_t st = open_tokens(t, config, options, e);
    if (st == ST_OK) {
        struct token_store store = { .ctx = t,
                                     .tokens = { token_files_tokens(t->splits[SOURCE_TRAIN]),
                                                 token_files_tokens(t->splits[SOURCE_VALIDATION]) },
                                     .vocabulary = t->vocabulary,
                                     .tokenizer = t->tokenizer,
                                     .sha256 = t->sha256,
                                     .memory_bytes = tokenizer_bytes(t->tokenizer),
                                     .read = read_tokens,
                                     .close = close_tokens };
        st = windows_open(&store, options->context, ret, e);
    }
    if (st != ST_OK)
        close_tokens(t);
    return st;
}

static const struct member MEMBERS[] = {
    MEMBER_PATH(struct data_tokens, tokenizer, MEMBER_FILE_OR_FOLDER),
    MEMBER_FILES(struct data_tokens, train, n_train),
    MEMBER_FILES(struct data_tokens, validation, n_validation),
    MEMBER_INT(struct data_tokens, token_bytes),
};

const struct data_kind data_tokens = {
    .name = "tokens", .members = MEMBERS, .n_members = (int)(sizeof MEMBERS / sizeof *MEMBERS), .open = open_source
};
