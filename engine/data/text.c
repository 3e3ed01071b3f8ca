/* Text as a source: a corpus and the windows over it. */
#include "base/alloc.h"
#include "engine/data/corpus.h"
#include "engine/data/source_kind.h"
#include "engine/data/text_file.h"
#include "engine/data/windows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct text {
    struct corpus *corpus;
    struct tokenizer *tokenizer; /* of a file; NULL = the corpus's own */
};

static status_t read_text(const void *ctx, enum source_split split, int64_t start, int n, int32_t *tokens,
                          struct err *e) {
    const struct text *t = ctx;
    return corpus_read(t->corpus, split == SOURCE_TRAIN ? CORPUS_TRAIN : CORPUS_VALIDATION, start, n, tokens, e);
}

static void close_text(void *ctx) {
    struct text *t = ctx;
    corpus_close(t->corpus);
    tokenizer_free(t->tokenizer);
    free(t);
}

static status_t open_text(struct text *t, const struct data_config *config, const struct source_options *options,
                          struct err *e) {
    const struct data_text *text = &config->text;
    const char *name = text->tokenizer && *text->tokenizer ? text->tokenizer : "char";
    bool byte = strcmp(name, "byte") == 0;
    if (!byte && strcmp(name, "char") != 0)
        TRY(tokenizer_open(config->roots, name, &t->tokenizer, e));
    const struct text_format format = { .form = (enum text_form)text->format,
                                        .document = text->document,
                                        .separator = text->separator };
    struct corpus_config c = { .files = text->files,
                               .n_files = text->n_files,
                               .validation = text->validation,
                               .n_validation = text->n_validation,
                               .format = &format,
                               .roots = config->roots,
                               .tokenizer = t->tokenizer,
                               .kind = byte ? TOKENIZER_BYTE : TOKENIZER_CHAR,
                               .validation_fraction = text->validation_fraction,
                               .threads = options->threads,
                               .cache = options->token_cache,
                               .text = text,
                               .progress = options->progress,
                               .ctx = options->ctx };
    return corpus_open(&c, &t->corpus, e);
}

static status_t open_source(const struct data_config *config, const struct source_options *options, struct source **ret,
                            struct err *e) {
    struct text *t = alloc_zeroed(1, sizeof *t);
    status_t st = open_text(t, config, options, e);
    if (st == ST_OK) {
        struct token_store store = {
            .ctx = t,
            .tokens = { corpus_tokens(t->corpus, CORPUS_TRAIN), corpus_tokens(t->corpus, CORPUS_VALIDATION) },
            .vocabulary = tokenizer_vocabulary(corpus_tokenizer(t->corpus)),
            .tokenizer = corpus_tokenizer(t->corpus),
            .sha256 = corpus_sha256(t->corpus),
            .memory_bytes = corpus_bytes(t->corpus) + tokenizer_bytes(corpus_tokenizer(t->corpus)),
            .read = read_text,
            .close = close_text
        };
        st = windows_open(&store, options->context, ret, e);
    }
    if (st != ST_OK)
        close_text(t);
    return st;
}

static const char *const FORMS[] = TEXT_FORMS;

static const struct member MEMBERS[] = {
    MEMBER_PATH(struct data_text, tokenizer, MEMBER_FILE_OR_FOLDER),
    MEMBER_FILES(struct data_text, files, n_files),
    MEMBER_FILES(struct data_text, validation, n_validation),
    MEMBER_CHOICE(struct data_text, format, FORMS),
    MEMBER_TEXT(struct data_text, document),
    MEMBER_TEXT(struct data_text, separator),
    MEMBER_REAL(struct data_text, validation_fraction),
};

const struct data_kind data_text = {
    .name = "text", .members = MEMBERS, .n_members = (int)(sizeof MEMBERS / sizeof *MEMBERS), .open = open_source
};
