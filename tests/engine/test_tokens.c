/* Rows of tokens: token files, and texts of byte-pair tokens. */
#include "base/cleanup.h"
#include "base/file.h"
#include "engine/data/corpus.h"
#include "engine/data/loader.h"
#include "engine/data/source.h"
#include "engine/data/token_file_write.h"
#include "engine/data/token_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Long enough for two blocks; with a sanitizer only for several pieces. */
#ifdef __SANITIZE_THREAD__
enum { LONG_TEXT = 2 << 20 };
#else
enum { LONG_TEXT = 17 << 20 };
#endif

static char folder[] = "/tmp/ty-tokens-XXXXXX";

static const char *file_with(const char *name, const void *data, size_t n) {
    static char paths[16][96];
    static int next;
    char *path = paths[next++ % 16];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    FILE *f = fopen(path, "w"); /* without an fsync: there are many */
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
    return path;
}

/* llm.c's header, then n tokens of `width` bytes: first, first + 1, ... */
static const char *headed(const char *name, int width, int32_t first, int n) {
    static char data[TOKEN_FILE_HEADER_BYTES + 4 * 4096];
    int32_t header[] = { width == 2 ? TOKEN_FILE_MAGIC_2 : TOKEN_FILE_MAGIC_4,
                         width == 2 ? TOKEN_FILE_VERSION_2 : TOKEN_FILE_VERSION_4, n };
    memset(data, 0, sizeof data);
    memcpy(data, header, sizeof header);
    for (int32_t i = 0, token = first; i < n; i++, token++)
        memcpy(data + TOKEN_FILE_HEADER_BYTES + i * width, &token, (size_t)width);
    return file_with(name, data, (size_t)(TOKEN_FILE_HEADER_BYTES + n * width));
}

static const char *bare(const char *name, int width, int32_t first, int n) {
    static char data[4 * 4096];
    for (int32_t i = 0, token = first; i < n; i++, token++)
        memcpy(data + i * width, &token, (size_t)width);
    return file_with(name, data, (size_t)(n * width));
}

static void files_of_all_kinds_are_one_row_of_tokens(void **state) {
    (void)state;
    struct err e = { "" };
    const char *files[] = { headed("h2", 2, 0, 3000), bare("b2", 2, 3000, 1), headed("none", 2, 0, 0),
                            headed("h4", 4, 3001, 2500) };
    struct token_files_config config = { .files = files, .n_files = 4, .token_bytes = 2, .vocabulary = 70000 };
    CLEANUP(token_files_closep) struct token_files *s = NULL;
    assert_int_equal(token_files_open(&config, &s, &e), ST_OK);
    assert_int_equal(token_files_tokens(s), 5501);
    static int32_t tokens[5501];
    static const int starts[] = { 0, 1, 2998, 2999, 3000, 3001, 5500 }, lengths[] = { 1, 2, 3, 700, 5501 };
    for (size_t a = 0; a < sizeof starts / sizeof *starts; a++)
        for (size_t b = 0; b < sizeof lengths / sizeof *lengths; b++) {
            if (starts[a] + lengths[b] > 5501)
                continue;
            assert_int_equal(token_files_read(s, starts[a], lengths[b], tokens, &e), ST_OK);
            for (int i = 0; i < lengths[b]; i++)
                assert_int_equal(tokens[i], starts[a] + i);
        }
    const char *wide = bare("b4", 4, 65530, 10);
    config = (struct token_files_config){ .files = &wide, .n_files = 1, .token_bytes = 4, .vocabulary = 70000 };
    CLEANUP(token_files_closep) struct token_files *w = NULL;
    assert_int_equal(token_files_open(&config, &w, &e), ST_OK);
    assert_int_equal(token_files_read(w, 0, 10, tokens, &e), ST_OK);
    assert_int_equal(tokens[9], 65539);
}

static void a_broken_token_file_is_one_sentence_with_file_and_place(void **state) {
    (void)state;
    char raw[TOKEN_FILE_HEADER_BYTES + 20] = { 0 };
    int32_t version[] = { TOKEN_FILE_MAGIC_2, 9, 10 }, count[] = { TOKEN_FILE_MAGIC_2, TOKEN_FILE_VERSION_2, 11 },
            negative[] = { TOKEN_FILE_MAGIC_4, TOKEN_FILE_VERSION_4, -1 };
    struct {
        const char *path, *says;
        status_t status;
    } table[8];
    int n = 0;
    memcpy(raw, version, sizeof version);
    table[n].path = file_with("version", raw, sizeof raw);
    table[n++].says = "version' has the unknown version 9 at byte 4";
    memcpy(raw, count, sizeof count);
    table[n].path = file_with("count", raw, sizeof raw);
    table[n++].says = "count' has a count of 11 tokens at byte 8, which need 1046 bytes, but has 1044 bytes";
    memcpy(raw, negative, sizeof negative);
    table[n].path = file_with("negative", raw, sizeof raw);
    table[n++].says = "has a count of -1 tokens";
    table[n].path = file_with("header", raw, 12);
    table[n++].says = "header' has a count of ";
    table[n].path = file_with("odd", raw, 7);
    table[n++].says = "odd' has 7 bytes: its last token of 2 bytes is incomplete";
    table[n].path = folder;
    table[n++].says = "is not a regular file";
    for (int i = 0; i < n; i++) {
        struct token_files_config config = {
            .files = &table[i].path, .n_files = 1, .token_bytes = 2, .vocabulary = 10
        };
        struct token_files *s = NULL;
        struct err e = { "" };
        assert_int_equal(token_files_open(&config, &s, &e), ST_INVALID_ARGUMENT);
        if (!strstr(e.msg, table[i].says))
            fail_msg("file %d says \"%s\"", i, e.msg);
    }

    struct err e = { "" };
    const char *path = headed("beyond", 2, 90, 20);
    struct token_files_config config = { .files = &path, .n_files = 1, .token_bytes = 2, .vocabulary = 100 };
    CLEANUP(token_files_closep) struct token_files *s = NULL;
    int32_t tokens[20];
    assert_int_equal(token_files_open(&config, &s, &e), ST_OK);
    assert_int_equal(token_files_read(s, 0, 10, tokens, &e), ST_OK);
    assert_int_equal(token_files_read(s, 5, 10, tokens, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "beyond' has the token 100 at byte 1044; the vocabulary has 100 tokens"));
    assert_int_equal(truncate(path, 1040), 0);
    assert_int_equal(token_files_read(s, 0, 10, tokens, &e), ST_FAILED_PRECONDITION);
    assert_non_null(strstr(e.msg, "beyond' had 1064 bytes and now ends at byte 1040"));
}

static status_t open_tokens(const char *train, const char *validation, int vocabulary, const char *tokenizer,
                            struct source **ret, struct err *e) {
    struct data_config config = { .kind = &data_tokens,
                                  .tokens = { .train = &train,
                                              .n_train = 1,
                                              .validation = &validation,
                                              .n_validation = validation != NULL,
                                              .tokenizer = tokenizer } };
    return source_open(&config, &(struct source_options){ .context = 8, .vocabulary = vocabulary }, ret, e);
}

static void token_files_make_windows_of_both_parts(void **state) {
    (void)state;
    struct err e = { "" };
    CLEANUP(source_closep) struct source *s = NULL, *other = NULL;
    const char *train = headed("train", 2, 0, 1000), *validation = bare("validation", 2, 2000, 40);
    assert_int_equal(open_tokens(train, validation, 3000, NULL, &s, &e), ST_OK);
    const struct source_info *info = source_info(s);
    assert_int_equal(info->samples[SOURCE_TRAIN], 999 / 8);
    assert_int_equal(info->samples[SOURCE_VALIDATION], 39 / 8);
    assert_int_equal(info->vocabulary, 3000);
    assert_null(info->tokenizer);
    int32_t tokens[4 * 8], targets[4 * 8];
    struct batch to = { .of = { [BATCH_TOKENS] = tokens, [BATCH_TARGETS] = targets } };
    for (int part = 0; part < SOURCE_SPLITS; part++) {
        assert_int_equal(source_read(s, (enum source_split)part, 3, part ? 0 : 7, 4, &to, &e), ST_OK);
        for (int i = 0; i < 4 * 8; i++) {
            assert_in_range(tokens[i], part ? 2000 : 0, part ? 2039 : 999);
            assert_int_equal(targets[i], tokens[i] + 1);
        }
    }
    /* The digest covers the order of the bytes: another order gives another digest. */
    assert_int_equal(open_tokens(validation, train, 3000, NULL, &other, &e), ST_OK);
    assert_string_not_equal(source_info(other)->sha256, info->sha256);
}

/* Counts how often each token is a target in one epoch. The k-th token of the files is k. */
static void each_token_is_a_target_once_in_an_epoch_and_epochs_cut_the_text_elsewhere(void **state) {
    (void)state;
    enum { TOKENS = 1003, CONTEXT = 8, WINDOWS = (TOKENS - 1) / CONTEXT };
    struct err e = { "" };
    CLEANUP(source_closep) struct source *s = NULL;
    assert_int_equal(open_tokens(headed("counted", 2, 0, TOKENS), NULL, 3000, NULL, &s, &e), ST_OK);
    assert_int_equal(source_info(s)->samples[SOURCE_TRAIN], WINDOWS);
    int first_offsets[CONTEXT] = { 0 };
    for (int epoch = 0; epoch < 2 * CONTEXT + 1; epoch++) {
        int seen[TOKENS] = { 0 }, starts[TOKENS] = { 0 }, missed = 0, twice = 0, lowest = TOKENS;
        for (int i = 0; i < WINDOWS; i++) {
            int32_t targets[CONTEXT];
            struct batch to = { .of = { [BATCH_TARGETS] = targets } };
            assert_int_equal(source_read(s, SOURCE_TRAIN, 3, (int64_t)epoch * WINDOWS + i, 1, &to, &e), ST_OK);
            assert_int_equal(starts[targets[0]]++, 0); /* no window comes twice */
            lowest = targets[0] < lowest ? targets[0] : lowest;
            for (int t = 0; t < CONTEXT; t++)
                seen[targets[t]]++;
        }
        for (int t = 1; t < TOKENS; t++) {
            missed += seen[t] == 0;
            twice += seen[t] == 2;
            assert_in_range(seen[t], 0, 2);
        }
        first_offsets[lowest - 1] += epoch > 0;
        assert_true(epoch > 0 || (lowest == 1 && twice == 0)); /* the first pass begins with the text */
        assert_true(missed < CONTEXT + (TOKENS - 1) % CONTEXT + 1 && twice < CONTEXT);
        assert_int_equal(missed, TOKENS - 1 - WINDOWS * CONTEXT + twice);
    }
    for (int offset = 0; offset < CONTEXT; offset++)
        assert_int_equal(first_offsets[offset], 2);
}

static void validation_is_in_order_and_the_same_for_every_seed(void **state) {
    (void)state;
    struct err e = { "" };
    CLEANUP(source_closep) struct source *s = NULL;
    const char *train = headed("train", 2, 0, 1000), *validation = bare("validation", 2, 2000, 40);
    assert_int_equal(open_tokens(train, validation, 3000, NULL, &s, &e), ST_OK);
    int32_t tokens[2][4 * 8];
    for (int seed = 0; seed < 2; seed++)
        assert_int_equal(source_read(s, SOURCE_VALIDATION, seed, 0, 4,
                                     &(struct batch){ .of = { [BATCH_TOKENS] = tokens[seed] } }, &e),
                         ST_OK);
    for (int i = 0; i < 4 * 8; i++)
        assert_int_equal(tokens[0][i], 2000 + i);
    assert_memory_equal(tokens[0], tokens[1], sizeof tokens[0]);
}

/* A bad token in the middle of a file: with one thread or four, the batches before it are delivered, and then every
 * call fails. */
static void a_failure_comes_with_its_batch_and_stays(void **state) {
    (void)state;
    enum { STEPS = 400 };
    const char *train = headed("failing", 2, 0, 1001); /* the last token is 1000 */
    static const int all[] = { 0 };
    int64_t failed[2];
    for (int i = 0; i < 2; i++) {
        struct err e = { "" };
        CLEANUP(source_closep) struct source *s = NULL;
        CLEANUP(loader_closep) struct loader *l = NULL;
        assert_int_equal(open_tokens(train, NULL, 1000, NULL, &s, &e), ST_OK);
        struct loader_config config = { .source = s,
                                        .seed = 3,
                                        .global_batch = 4,
                                        .micro_batch = 4,
                                        .micro_batches = all,
                                        .n_micro_batches = 1,
                                        .steps = STEPS,
                                        .threads = i ? LOADER_THREADS : 1 };
        assert_int_equal(loader_open(&config, &l, &e), ST_OK);
        struct loader_batch b;
        for (failed[i] = 0; failed[i] < STEPS && loader_next(l, failed[i], 0, &b, &e) == ST_OK; failed[i]++)
            ;
        assert_int_not_equal(failed[i], STEPS);
        assert_non_null(strstr(e.msg, "failing' has the token 1000 at byte 3024"));
        e.msg[0] = '\0';
        assert_int_equal(loader_next(l, failed[i], 0, &b, &e), ST_INVALID_ARGUMENT);
        assert_non_null(strstr(e.msg, "failing' has the token 1000"));
    }
    assert_int_equal(failed[0], failed[1]);
}

static void token_files_need_a_vocabulary_from_somewhere(void **state) {
    (void)state;
    struct err e = { "" };
    CLEANUP(source_closep) struct source *s = NULL;
    const char *train = headed("small", 2, 0, 200);
    assert_int_equal(open_tokens(train, NULL, 0, "", &s, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "do not contain the size of their vocabulary"));
    assert_int_equal(open_tokens(train, NULL, 0, "char", &s, &e), ST_INVALID_ARGUMENT);
    assert_int_equal(open_tokens(train, NULL, 0, "byte", &s, &e), ST_OK);
    assert_int_equal(source_info(s)->vocabulary, 256);
    assert_int_equal(source_info(s)->samples[SOURCE_VALIDATION], 0);
}

/* --- texts ---*/

static const char *gpt2_json(void) {
    static char path[512];
    const char *root = getenv("TRAINYARD_SOURCE");
    snprintf(path, sizeof path, "%s/tests/engine/tokenizers/gpt2.json", root ? root : ".");
    return path;
}

static struct source *text_of(const char *path, const char *tokenizer, int threads) {
    struct data_config config = {
        .kind = &data_text,
        .text = { .files = &path, .n_files = 1, .tokenizer = tokenizer, .validation_fraction = 0.25 }
    };
    struct source *s = NULL;
    struct err e = { "" };
    if (source_open(&config, &(struct source_options){ .context = 1, .threads = threads }, &s, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return s;
}

/* Lines, blanks and words of all kinds, several pieces and one block long. */
static void fill_text(struct bytes *text, size_t n) {
    static const char *const parts[] = { "the ",    "quick",          "\n", "\n\n", "  \n",  "\t", "fox's",
                                         " 12345",  "\xc3\xa9",       ".",  "\r\n", "(x)\n", " ",  "END\n",
                                         "jumps\n", "<|endoftext|>\n" };
    struct err e;
    uint32_t random = 1;
    bytes_init(text, n + 64);
    while (text->len < n) {
        random = random * 1664525 + 1013904223;
        const char *part = parts[random >> 28];
        assert_int_equal(bytes_append(text, part, strlen(part), &e), ST_OK);
    }
}

static void a_text_in_pieces_on_threads_has_the_tokens_of_the_whole(void **state) {
    (void)state;
    struct err e = { "" };
    struct bytes text;
    fill_text(&text, LONG_TEXT);
    const char *path = file_with("text", text.data, text.len);
    CLEANUP(tokenizer_freep) struct tokenizer *t = NULL;
    assert_int_equal(tokenizer_open(NULL, gpt2_json(), &t, &e), ST_OK);
    CLEANUP(freep) int32_t *tokens = malloc(text.len * sizeof *tokens);
    size_t n;
    assert_int_equal(tokenizer_encode(t, text.data, text.len, tokens, text.len, &n, &e), ST_OK);
    bytes_done(&text);

    struct corpus_config config = { .files = &path, .n_files = 1, .tokenizer = t, .threads = 3 };
    CLEANUP(corpus_closep) struct corpus *c = NULL;
    CLEANUP(freep) int32_t *read = malloc(n * sizeof *read);
    assert_int_equal(corpus_open(&config, &c, &e), ST_OK);
    assert_int_equal(corpus_tokens(c, CORPUS_TRAIN), n);
    assert_int_equal(corpus_read(c, CORPUS_TRAIN, 0, (int)n, read, &e), ST_OK);
    assert_memory_equal(read, tokens, n * sizeof *read);
}

static void a_text_of_another_tokenizer_is_other_data(void **state) {
    (void)state;
    struct bytes text;
    fill_text(&text, 100000);
    const char *path = file_with("text", text.data, text.len);
    bytes_done(&text);
    CLEANUP(source_closep) struct source *one = text_of(path, gpt2_json(), 1), *three = text_of(path, gpt2_json(), 3);
    CLEANUP(source_closep) struct source *bytes = text_of(path, "byte", 1);
    const struct source_info *info = source_info(one);
    assert_int_equal(source_info(three)->tokens[SOURCE_TRAIN], info->tokens[SOURCE_TRAIN]);
    assert_string_equal(source_info(three)->sha256, info->sha256);
    assert_string_not_equal(source_info(bytes)->sha256, info->sha256);
    int64_t all = info->tokens[SOURCE_TRAIN] + info->tokens[SOURCE_VALIDATION];
    assert_int_equal(info->tokens[SOURCE_TRAIN], all * 3 / 4);
    assert_int_equal(info->vocabulary, tokenizer_vocabulary(info->tokenizer));
}

static void a_line_longer_than_a_block_is_cut_and_nothing_is_lost(void **state) {
    (void)state;
    enum { BYTES = LONG_TEXT };
    struct err e = { "" };
    CLEANUP(freep) char *text = malloc(BYTES);
    for (size_t i = 0; i < BYTES; i++)
        text[i] = "ab \xc3\xa4"[i % 5];
    const char *path = file_with("line", text, BYTES / 5 * 5);
    CLEANUP(tokenizer_freep) struct tokenizer *t = NULL;
    assert_int_equal(tokenizer_open(NULL, gpt2_json(), &t, &e), ST_OK);
    struct corpus_config config = { .files = &path, .n_files = 1, .tokenizer = t };
    CLEANUP(corpus_closep) struct corpus *c = NULL;
    assert_int_equal(corpus_open(&config, &c, &e), ST_OK);
    int n = (int)corpus_tokens(c, CORPUS_TRAIN);
    CLEANUP(freep) int32_t *read = malloc((size_t)n * sizeof *read);
    assert_int_equal(corpus_read(c, CORPUS_TRAIN, 0, n, read, &e), ST_OK);
    struct bytes back;
    bytes_init(&back, BYTES);
    assert_int_equal(tokenizer_decode(t, read, (size_t)n, &back, &e), ST_OK);
    assert_int_equal(back.len, BYTES / 5 * 5);
    assert_memory_equal(back.data, text, back.len);
    bytes_done(&back);
}

static void a_text_becomes_a_token_file_and_trains_alike(void **state) {
    (void)state;
    /* The same vocabulary with one token far beyond 65,535: 4 bytes each. */
    struct bytes document;
    struct err e = { "" };
    bytes_init(&document, 1 << 20);
    assert_int_equal(file_read(gpt2_json(), &document, &e), ST_OK);
    char *added = strstr(document.data, "\"added_tokens\":[");
    assert_non_null(added);
    struct bytes wide;
    bytes_init(&wide, 1 << 20);
    size_t head = (size_t)(added + strlen("\"added_tokens\":[") - document.data);
    assert_int_equal(bytes_append(&wide, document.data, head, &e), ST_OK);
    assert_int_equal(bytes_printf(&wide, &e, "{\"id\":70000,\"content\":\"END\"},%s", document.data + head), ST_OK);
    const char *tokenizers[] = { gpt2_json(), file_with("wide.json", wide.data, wide.len) };
    bytes_done(&document);
    bytes_done(&wide);

    struct bytes text;
    fill_text(&text, 1 << 20);
    const char *files[] = { file_with("one.txt", text.data, text.len / 2), file_with("empty.txt", "", 0),
                            file_with("two.txt", "the END of it\n", 14) };
    bytes_done(&text);
    for (int i = 0; i < 2; i++) {
        CLEANUP(tokenizer_freep) struct tokenizer *t = NULL;
        assert_int_equal(tokenizer_open(NULL, tokenizers[i], &t, &e), ST_OK);
        struct token_file_text from = { .files = files, .n_files = 3, .tokenizer = t, .threads = 2 };
        struct corpus_config config = { .files = files, .n_files = 3, .tokenizer = t };
        char out[128];
        const char *written = out;
        int64_t n = 0;
        snprintf(out, sizeof out, "%s/written-%d.bin", folder, i);
        if (token_file_write(&from, out, &n, &e) != ST_OK)
            fail_msg("%s", e.msg);
        struct token_files_config read = { &written, 1, i ? 2 : 4, tokenizer_vocabulary(t),
                                           NULL }; /* the header decides */
        CLEANUP(token_files_closep) struct token_files *s = NULL;
        CLEANUP(corpus_closep) struct corpus *c = NULL;
        assert_int_equal(token_files_open(&read, &s, &e), ST_OK);
        assert_int_equal(corpus_open(&config, &c, &e), ST_OK);
        assert_int_equal(token_files_tokens(s), n);
        assert_int_equal(corpus_tokens(c, CORPUS_TRAIN), n);
        CLEANUP(freep) int32_t *a = malloc((size_t)n * sizeof *a);
        CLEANUP(freep) int32_t *b = malloc((size_t)n * sizeof *b);
        assert_int_equal(token_files_read(s, 0, (int)n, a, &e), ST_OK);
        assert_int_equal(corpus_read(c, CORPUS_TRAIN, 0, (int)n, b, &e), ST_OK);
        assert_memory_equal(a, b, (size_t)n * sizeof *a);
        int ends = 0;
        for (int64_t k = 0; k < n; k++)
            ends += a[k] == 70000;
        assert_true(i ? ends > 1 : ends == 0);
    }
}

static void a_token_file_that_cannot_be_made_leaves_nothing(void **state) {
    (void)state;
    struct err e = { "" };
    CLEANUP(tokenizer_freep) struct tokenizer *t = NULL, *letters = NULL;
    assert_int_equal(tokenizer_open(NULL, gpt2_json(), &t, &e), ST_OK);
    assert_int_equal(tokenizer_new_char((uint32_t[]){ 'a' }, 1, &letters, &e), ST_OK);
    const char *broken = file_with("broken.txt", "ab\xff", 3);
    struct token_file_text from = { .files = &broken, .n_files = 1, .tokenizer = t };
    char out[128];
    int64_t n;
    snprintf(out, sizeof out, "%s/none.bin", folder);
    assert_int_equal(token_file_write(&from, out, &n, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "broken.txt' is not valid UTF-8 at byte 2"));
    assert_int_not_equal(access(out, F_OK), 0);
    strcat(out, ".tmp");
    assert_int_not_equal(access(out, F_OK), 0);
    from.tokenizer = letters;
    assert_int_equal(token_file_write(&from, out, &n, &e), ST_INVALID_ARGUMENT);
    from.tokenizer = t;
    assert_int_equal(token_file_write(&from, "/nowhere/at/all.bin", &n, &e), ST_NOT_FOUND);
}

static void a_text_that_cannot_be_encoded_names_its_file(void **state) {
    (void)state;
    static const char few[] = "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},"
                              "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}}";
    struct err e = { "" };
    struct source *s = NULL;
    const char *tokenizer = file_with("few.json", few, sizeof few - 1);
    struct {
        const char *path, *tokenizer, *says;
    } table[] = { { file_with("other", "aab", 3), tokenizer, "other': the vocabulary has no token for the byte 0x62" },
                  { file_with("broken", "aa\xff", 3), tokenizer, "broken' is not valid UTF-8 at byte 2" },
                  { file_with("binary", "aa\0", 3), tokenizer, "binary' has a NUL at byte 2, so it is not text" },
                  { file_with("fine", "aaaa", 4), "gpt2", "the tokenizer gpt2 needs its vocabulary" },
                  { file_with("fine", "aaaa", 4), folder, "vocab.json" } };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct data_config config = {
            .kind = &data_text, .text = { .files = &table[i].path, .n_files = 1, .tokenizer = table[i].tokenizer }
        };
        assert_int_not_equal(source_open(&config, &(struct source_options){ .context = 1 }, &s, &e), ST_OK);
        if (!strstr(e.msg, table[i].says))
            fail_msg("case %zu says \"%s\"", i, e.msg);
    }
}

static void a_text_in_place_of_token_files_is_recognized(void **state) {
    (void)state;
    char ascii[4098], accents[4096], tokens[4096], one[64];
    memset(ascii, 'a', sizeof ascii);
    for (int i = 0; i < (int)sizeof accents; i++) /* of 2 bytes each, and cut where the head of a file ends */
        accents[i] = i == 0 ? '\n' : i % 2 ? '\xc3' : '\xa9';
    for (int i = 0; i < (int)sizeof tokens; i++) /* 'a', 'a', ... as numbers of 2 bytes */
        tokens[i] = i % 2 ? '\0' : 'a';
    memset(one, 'a', sizeof one);
    one[63] = '\x01';
    struct {
        const char *path;
        bool text;
    } table[] = { { file_with("ascii", ascii, sizeof ascii), true },
                  { file_with("accents", accents, sizeof accents), true },
                  { file_with("least", ascii, 64), true },
                  { file_with("less", ascii, 62), false },
                  { file_with("numbers", tokens, sizeof tokens), false },
                  { file_with("one", one, sizeof one), false } };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct token_files_config config = {
            .files = &table[i].path, .n_files = 1, .token_bytes = 2, .vocabulary = 70000
        };
        struct token_files *shards = NULL;
        struct err e = { "" };
        assert_int_equal(token_files_open(&config, &shards, &e), table[i].text ? ST_INVALID_ARGUMENT : ST_OK);
        if (table[i].text && !strstr(e.msg, "is text and not tokens"))
            fail_msg("case %zu says \"%s\"", i, e.msg);
        token_files_close(shards);
    }
}

int main(void) {
    if (!mkdtemp(folder))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_all_kinds_are_one_row_of_tokens),
        cmocka_unit_test(a_broken_token_file_is_one_sentence_with_file_and_place),
        cmocka_unit_test(a_text_in_place_of_token_files_is_recognized),
        cmocka_unit_test(token_files_make_windows_of_both_parts),
        cmocka_unit_test(each_token_is_a_target_once_in_an_epoch_and_epochs_cut_the_text_elsewhere),
        cmocka_unit_test(validation_is_in_order_and_the_same_for_every_seed),
        cmocka_unit_test(a_failure_comes_with_its_batch_and_stays),
        cmocka_unit_test(token_files_need_a_vocabulary_from_somewhere),
        cmocka_unit_test(a_text_in_pieces_on_threads_has_the_tokens_of_the_whole),
        cmocka_unit_test(a_text_of_another_tokenizer_is_other_data),
        cmocka_unit_test(a_line_longer_than_a_block_is_cut_and_nothing_is_lost),
        cmocka_unit_test(a_text_becomes_a_token_file_and_trains_alike),
        cmocka_unit_test(a_token_file_that_cannot_be_made_leaves_nothing),
        cmocka_unit_test(a_text_that_cannot_be_encoded_names_its_file),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    struct err e;
    status_t st = dir_remove(folder, &e);
    return failed || st != ST_OK;
}
