/* Text as training data: tokenizers, files, samples and batches.
 *
 * Texts are written into a temporary folder and read by the data loader. The tests check that tokenizing is reversible,
 * that an epoch visits every start of a sample once, that a batch depends only on its step and not on the rank that
 * makes it or on a resume, and that validation never uses training samples. Unusable files, vocabularies and tokenizers
 * must be refused with one sentence that names the file. */
#include "base/cleanup.h"
#include "base/file.h"
#include "engine/data/corpus.h"
#include "engine/data/loader.h"
#include "engine/data/sampler.h"
#include "engine/data/source.h"
#include "engine/data/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/ty-data-XXXXXX";

static const char *file_with(const char *name, const void *text, size_t n) {
    static char paths[8][64];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
    return path;
}

static struct corpus *corpus_of(enum tokenizer_kind kind, double validation, const char *a, const char *b) {
    const char *files[] = { a, b };
    struct corpus_config config = {
        .files = files, .n_files = b ? 2 : 1, .kind = kind, .validation_fraction = validation
    };
    struct corpus *c = NULL;
    struct err e = { "" };
    if (corpus_open(&config, &c, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return c;
}

static void text_becomes_tokens_and_text_again(void **state) {
    (void)state;
    struct err e = { "" };
    static const char text[] = "zebra \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80\n";
    const char *path = file_with("text", text, sizeof text - 1);
    CLEANUP(corpus_closep) struct corpus *c = corpus_of(TOKENIZER_CHAR, 0, path, NULL);
    const struct tokenizer *t = corpus_tokenizer(c);
    assert_int_equal(tokenizer_vocabulary(t), 10); /* \n, space, a b e r z, and three more */
    assert_int_equal(tokenizer_token(t, '\n'), 0);
    assert_int_equal(tokenizer_token(t, 0x1f600), 9);
    assert_int_equal(tokenizer_token(t, 'q'), -1);
    assert_int_equal(corpus_tokens(c, CORPUS_TRAIN), 12);

    CLEANUP(freep) char *json = NULL;
    CLEANUP(tokenizer_freep) struct tokenizer *again = NULL;
    assert_int_equal(tokenizer_to_json(t, &json, &e), ST_OK);
    assert_int_equal(tokenizer_from_json(json, &again, &e), ST_OK);
    int32_t tokens[12], read[12];
    size_t n;
    assert_int_equal(tokenizer_encode(again, text, sizeof text - 1, tokens, 12, &n, &e), ST_OK);
    assert_int_equal(n, 12);
    assert_int_equal(corpus_read(c, CORPUS_TRAIN, 0, 12, read, &e), ST_OK);
    assert_memory_equal(tokens, read, sizeof tokens);
    struct bytes back;
    bytes_init(&back, 100);
    assert_int_equal(tokenizer_decode(again, tokens, n, &back, &e), ST_OK);
    assert_string_equal(back.data, text);
    bytes_done(&back);

    assert_int_equal(tokenizer_encode(again, "q", 1, tokens, 12, &n, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "the character U+0071 at byte 0 is not in the vocabulary");
    assert_int_equal(tokenizer_encode(again, "za\xff", 3, tokens, 12, &n, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "the text is not valid UTF-8 at byte 2");
}

static void a_tokenizer_that_was_tampered_with_is_refused(void **state) {
    (void)state;
    static const char *const bad[] = { "",
                                       "[]",
                                       "{}",
                                       "{\"kind\":\"word\"}",
                                       "{\"kind\":\"char\"}",
                                       "{\"kind\":\"char\",\"code_points\":[]}",
                                       "{\"kind\":\"char\",\"code_points\":[98,97]}",
                                       "{\"kind\":\"char\",\"code_points\":[97,97]}",
                                       "{\"kind\":\"char\",\"code_points\":[55296]}",
                                       "{\"kind\":\"char\",\"code_points\":[1114112]}",
                                       "{\"kind\":\"char\",\"code_points\":[-1]}",
                                       "{\"kind\":\"char\",\"code_points\":[\"a\"]}" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err e = { "" };
        struct tokenizer *t = NULL;
        assert_int_equal(tokenizer_from_json(bad[i], &t, &e), ST_INVALID_ARGUMENT);
        assert_true(strlen(e.msg) > 10);
        assert_null(t);
    }
}

static void several_files_are_one_text_with_one_digest(void **state) {
    (void)state;
    struct err e;
    const char *a = file_with("a", "abc", 3), *b = file_with("b", "defg", 4);
    for (int kind = TOKENIZER_CHAR; kind <= TOKENIZER_BYTE; kind++) {
        CLEANUP(corpus_closep) struct corpus *c = corpus_of((enum tokenizer_kind)kind, 0.3, a, b);
        /* sha256sum of "abcdefg" */
        assert_string_equal(corpus_sha256(c), "7d1a54127b222502f5b79b5fb0803061152a44f92b37e23c6527baf665d4da9a");
        assert_int_equal(corpus_tokens(c, CORPUS_TRAIN), 4);
        assert_int_equal(corpus_tokens(c, CORPUS_VALIDATION), 3);
        int32_t tokens[4], base = kind == TOKENIZER_BYTE ? 'a' : 0;
        assert_int_equal(corpus_read(c, CORPUS_TRAIN, 1, 3, tokens, &e), ST_OK);
        for (int i = 0; i < 3; i++)
            assert_int_equal(tokens[i], base + 1 + i);
        assert_int_equal(corpus_read(c, CORPUS_VALIDATION, 0, 3, tokens, &e), ST_OK);
        for (int i = 0; i < 3; i++)
            assert_int_equal(tokens[i], base + 4 + i);
    }
}

/* Characters of every length across the borders of the pieces in which files are read. */
static void a_long_text_of_wide_characters_is_read_whole(void **state) {
    (void)state;
    struct err e;
    static const char *const wide[] = { "x", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80" };
    enum { CHARACTERS = 4000000 };
    struct bytes text;
    bytes_init(&text, 20 << 20);
    for (int i = 0; i < CHARACTERS; i++)
        assert_int_equal(bytes_append(&text, wide[i % 7 % 4], strlen(wide[i % 7 % 4]), &e), ST_OK);
    CLEANUP(corpus_closep)
    struct corpus *c = corpus_of(TOKENIZER_CHAR, 0, file_with("wide", text.data, text.len), NULL);
    bytes_done(&text);
    assert_int_equal(corpus_tokens(c, CORPUS_TRAIN), CHARACTERS);
    for (int at = 0; at < CHARACTERS - 1000; at += 997) {
        int32_t tokens[8];
        assert_int_equal(corpus_read(c, CORPUS_TRAIN, at, 8, tokens, &e), ST_OK);
        for (int i = 0; i < 8; i++)
            assert_int_equal(tokens[i], (at + i) % 7 % 4);
    }
}

static void unusable_data_is_one_sentence_with_the_file(void **state) {
    (void)state;
    struct {
        const char *path;
        enum tokenizer_kind kind;
        status_t status;
        const char *sentence; /* after the path */
    } table[] = {
        { file_with("broken", "abc\xc3(", 5), TOKENIZER_CHAR, ST_INVALID_ARGUMENT, "is not valid UTF-8 at byte 3" },
        { file_with("cut", "abc\xe2\x82", 5), TOKENIZER_CHAR, ST_INVALID_ARGUMENT, "is not valid UTF-8 at byte 3" },
        { file_with("tokens", "ab\0c", 4), TOKENIZER_CHAR, ST_INVALID_ARGUMENT,
          "tokens' has a NUL at byte 2, so it is not text; token files are data.tokens" },
        { file_with("empty", "", 0), TOKENIZER_BYTE, ST_INVALID_ARGUMENT, "is empty" },
        { folder, TOKENIZER_BYTE, ST_INVALID_ARGUMENT, "is not a regular file" },
        { "/nowhere/at/all", TOKENIZER_BYTE, ST_NOT_FOUND, "No such file or directory" },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct corpus_config config = { .files = &table[i].path, .n_files = 1, .kind = table[i].kind };
        struct corpus *c = NULL;
        struct err e = { "" };
        assert_int_equal(corpus_open(&config, &c, &e), table[i].status);
        assert_non_null(strstr(e.msg, table[i].path));
        assert_non_null(strstr(e.msg, table[i].sentence));
        assert_null(c);
    }
    const char *path = file_with("fifo", "", 0);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    struct corpus_config config = { .files = &path, .n_files = 1 };
    struct corpus *c = NULL;
    struct err e;
    assert_int_equal(corpus_open(&config, &c, &e), ST_INVALID_ARGUMENT); /* and did not wait for a writer */
}

static void a_vocabulary_from_a_checkpoint_must_fit_the_text(void **state) {
    (void)state;
    struct err e;
    static const uint32_t points[] = { 'a', 'c', 0x7a0 };
    static const struct {
        const char *text, *lacks;
    } table[] = { { "acb", "U+0062 at byte 2" },
                  { "ac\xde\xa1", "U+07A1 at byte 2" },
                  { "\U0010ffff", "U+10FFFF at byte 0" } };
    CLEANUP(tokenizer_freep) struct tokenizer *t = NULL;
    assert_int_equal(tokenizer_new_char(points, 3, &t, &e), ST_OK);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const char *path = file_with("other", table[i].text, strlen(table[i].text));
        struct corpus_config config = { .files = &path, .n_files = 1, .kind = TOKENIZER_CHAR, .tokenizer = t };
        struct corpus *c = NULL;
        char sentence[96];
        snprintf(sentence, sizeof sentence, "has the character %s, which is not in the vocabulary", table[i].lacks);
        assert_int_equal(corpus_open(&config, &c, &e), ST_INVALID_ARGUMENT);
        assert_non_null(strstr(e.msg, sentence));
    }
}

static void an_epoch_visits_every_sample_once_and_epochs_differ(void **state) {
    (void)state;
    static const int64_t sizes[] = { 1, 2, 3, 4, 5, 17, 64, 65, 1000, 4097 };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int64_t n = sizes[s];
        CLEANUP(freep) char *seen = calloc((size_t)n, 1);
        for (int64_t i = 0; i < n; i++) {
            int64_t at = sampler_permute(7, 3, SAMPLER_ORDER, n, i);
            assert_in_range(at, 0, n - 1);
            assert_int_equal(seen[at]++, 0);
        }
    }
    int same_epoch = 0, same_seed = 0, same_stream = 0, fixed = 0;
    for (int64_t i = 0; i < 10000; i++) {
        int64_t at = sampler_permute(1, 0, SAMPLER_ORDER, 10000, i);
        same_epoch += at == sampler_permute(1, 1, SAMPLER_ORDER, 10000, i);
        same_seed += at == sampler_permute(2, 0, SAMPLER_ORDER, 10000, i);
        same_stream += at == sampler_permute(1, 0, SAMPLER_OFFSET, 10000, i);
        fixed += at == i;
    }
    /* The chance is 1 in 10,000: with one expected, more than ten do not happen. */
    assert_true(same_epoch <= 10 && same_seed <= 10 && same_stream <= 10 && fixed <= 10);
    assert_int_equal(sampler_index(SOURCE_TRAIN, 1, 100, 250), sampler_permute(1, 2, SAMPLER_ORDER, 100, 50));
    assert_int_equal(sampler_index(SOURCE_VALIDATION, 1, 100, 50), 50);
}

/* A chi-squared test over 64 bins of the first tenth of a large permutation: neighbours are not correlated. */
static void samples_are_spread_evenly(void **state) {
    (void)state;
    enum { N = 1000000, TAKEN = N / 10, BINS = 64 };
    int bins[BINS] = { 0 };
    for (int64_t i = 0; i < TAKEN; i++)
        bins[sampler_permute(99, 0, SAMPLER_ORDER, N, i) * BINS / N]++;
    double chi = 0, want = (double)TAKEN / BINS;
    for (int b = 0; b < BINS; b++)
        chi += (bins[b] - want) * (bins[b] - want) / want;
    assert_true(chi > 20 && chi < 130); /* 63 degrees of freedom: 63 +- 11 */
}

enum { T = 8, GLOBAL = 12, MICRO = 3, STEPS = 40 };

static const char *alphabet(void) {
    char text[500];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i % 251);
    return file_with("alphabet", text, sizeof text);
}

static struct source *source_of(const char *path, double validation, int context) {
    struct data_config config = {
        .kind = &data_text,
        .text = { .files = &path, .n_files = 1, .tokenizer = "byte", .validation_fraction = validation }
    };
    struct source_options options = { .context = context };
    struct source *s = NULL;
    struct err e = { "" };
    if (source_open(&config, &options, &s, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return s;
}

static struct loader *loader_of(const struct source *s, const int *ks, int n, int64_t first_step, int threads) {
    struct loader_config config = { .source = s,
                                    .seed = 5,
                                    .threads = threads,
                                    .global_batch = GLOBAL,
                                    .micro_batch = MICRO,
                                    .micro_batches = ks,
                                    .n_micro_batches = n,
                                    .first_step = first_step,
                                    .first_sample = first_step * GLOBAL,
                                    .steps = STEPS };
    struct loader *l = NULL;
    struct err e;
    assert_int_equal(loader_open(&config, &l, &e), ST_OK);
    return l;
}

static void a_batch_is_the_same_on_every_rank_and_after_a_resume(void **state) {
    (void)state;
    struct err e;
    CLEANUP(source_closep) struct source *s = source_of(alphabet(), 0.1, T);
    static const int all[] = { 0, 1, 2, 3 }, odd[] = { 3, 1 };
    CLEANUP(loader_closep) struct loader *one = loader_of(s, all, 4, 0, 0);
    CLEANUP(loader_closep) struct loader *other = loader_of(s, odd, 2, 0, LOADER_MAX);
    CLEANUP(loader_closep) struct loader *resumed = loader_of(s, all, 4, 25, 2);
    static int32_t record[STEPS][4][2][MICRO * T];
    for (int step = 0; step < STEPS; step++)
        for (int k = 0; k < 4; k++) {
            struct loader_batch b;
            assert_int_equal(loader_next(one, step, k, &b, &e), ST_OK);
            const int32_t *tokens = b.of[BATCH_TOKENS], *targets = b.of[BATCH_TARGETS];
            memcpy(record[step][k][0], tokens, sizeof record[0][0][0]);
            memcpy(record[step][k][1], targets, sizeof record[0][0][0]);
            for (int j = 0; j < MICRO; j++)
                for (int t = 0; t < T; t++)
                    assert_int_equal(targets[j * T + t], (tokens[j * T + t] + 1) % 251);
        }
    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < 2; i++) {
            struct loader_batch b;
            assert_int_equal(loader_next(other, step, odd[i], &b, &e), ST_OK);
            assert_memory_equal(b.of[BATCH_TOKENS], record[step][odd[i]][0], sizeof record[0][0][0]);
            assert_memory_equal(b.of[BATCH_TARGETS], record[step][odd[i]][1], sizeof record[0][0][0]);
        }
    for (int step = 25; step < STEPS; step++)
        for (int k = 0; k < 4; k++) {
            struct loader_batch b;
            assert_int_equal(loader_next(resumed, step, k, &b, &e), ST_OK);
            assert_memory_equal(b.of[BATCH_TOKENS], record[step][k][0], sizeof record[0][0][0]);
        }
    assert_memory_not_equal(record[0][0][0], record[1][0][0], sizeof record[0][0][0]);
    assert_true(loader_waits(one).ns >= 0);
}

static void what_is_not_wanted_is_not_made(void **state) {
    (void)state;
    struct err e;
    CLEANUP(source_closep) struct source *s = source_of(alphabet(), 0.1, T);
    static const int all[] = { 0 };
    struct loader_config config = { .source = s,
                                    .seed = 5,
                                    .inputs = 1u << BATCH_TARGETS,
                                    .global_batch = GLOBAL,
                                    .micro_batch = MICRO,
                                    .micro_batches = all,
                                    .n_micro_batches = 1,
                                    .steps = 2 };
    CLEANUP(loader_closep) struct loader *whole = loader_of(s, all, 1, 0, 0), *half = NULL;
    assert_int_equal(loader_open(&config, &half, &e), ST_OK);
    struct loader_batch a, b;
    assert_int_equal(loader_next(whole, 0, 0, &a, &e), ST_OK);
    assert_int_equal(loader_next(half, 0, 0, &b, &e), ST_OK);
    assert_null(b.of[BATCH_TOKENS]);
    assert_memory_equal(a.of[BATCH_TARGETS], b.of[BATCH_TARGETS], MICRO * T * sizeof(int32_t));
}

/* Counted allocations. */
static status_t counted_make(void *count, size_t bytes, void **ret, struct err *e) {
    (void)e;
    ++*(int *)count;
    *ret = malloc(bytes);
    return *ret ? ST_OK : ST_RESOURCE_EXHAUSTED;
}
static void counted_free(void *count, void *p) {
    *(int *)count -= p != NULL;
    free(p);
}

static void batches_stay_while_as_many_are_taken_as_are_kept_in_memory_of_the_callers(void **state) {
    (void)state;
    enum { KEPT = 6 };
    struct err e;
    CLEANUP(source_closep) struct source *s = source_of(alphabet(), 0.1, T);
    static const int all[] = { 0, 1, 2, 3 };
    int count = 0;
    assert_int_equal(loader_ahead(0, 0), LOADER_AHEAD);
    assert_int_equal(loader_ahead(1, 0), LOADER_AHEAD);
    assert_int_equal(loader_ahead(9, 0), 9); /* none of the threads has nothing to do */
    assert_int_equal(loader_ahead(9, 5), 5);
    struct loader_config config = { .source = s,
                                    .seed = 5,
                                    .threads = 6,
                                    .ahead = 5,
                                    .global_batch = GLOBAL,
                                    .micro_batch = MICRO,
                                    .micro_batches = all,
                                    .n_micro_batches = 4,
                                    .steps = STEPS,
                                    .valid = KEPT,
                                    .memory = { counted_make, counted_free, &count } };
    struct loader *l = NULL;
    assert_int_equal(loader_open(&config, &l, &e), ST_OK);
    assert_int_equal(count, 2 * (5 + KEPT));
    static int32_t copy[KEPT][MICRO * T];
    const void *newest[KEPT] = { NULL };
    for (int i = 0; i < 4 * STEPS; i++) {
        struct loader_batch b;
        assert_int_equal(loader_next(l, i / 4, i % 4, &b, &e), ST_OK);
        newest[i % KEPT] = b.of[BATCH_TOKENS];
        memcpy(copy[i % KEPT], b.of[BATCH_TOKENS], sizeof copy[0]);
        for (int j = 0; j < KEPT && j <= i; j++)
            assert_memory_equal(newest[j], copy[j], sizeof copy[0]);
    }
    loader_close(l);
    assert_int_equal(count, 0);
}

static status_t read_part(const struct source *s, int64_t first, int B, int32_t *tokens, int32_t *targets,
                          struct err *e) {
    struct batch to = { .of = { [BATCH_TOKENS] = tokens, [BATCH_TARGETS] = targets } };
    return source_read(s, SOURCE_VALIDATION, 5, first, B, &to, e);
}

static void validation_is_the_same_every_time_and_never_from_the_training_part(void **state) {
    (void)state;
    struct err e;
    CLEANUP(source_closep) struct source *s = source_of(alphabet(), 0.1, T); /* last 50 of 500 */
    assert_int_equal(source_info(s)->samples[SOURCE_VALIDATION], 49 / T);
    int32_t tokens[4 * T], targets[4 * T], again[T], again_targets[T];
    assert_int_equal(read_part(s, 1, 4, tokens, targets, &e), ST_OK);
    for (int i = 0; i < 4 * T; i++) {
        assert_in_range(tokens[i], 450 % 251, 499 % 251);
        assert_int_equal(targets[i], tokens[i] + 1);
    }
    assert_int_equal(read_part(s, 3, 1, again, again_targets, &e), ST_OK);
    assert_memory_equal(again, tokens + 2 * T, sizeof again);
}

static void the_error_for_too_little_data_names_the_needed_size(void **state) {
    (void)state;
    struct err e;
    const char *path = file_with("few", "0123456789", 10);
    struct data_config config = {
        .kind = &data_text, .text = { .files = &path, .n_files = 1, .tokenizer = "byte", .validation_fraction = 0.2 }
    };
    struct source *none = NULL;
    assert_int_equal(source_open(&config, &(struct source_options){ .context = T }, &none, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg,
                        "data: there are 8 tokens for training (and 2 for validation); a sample of context 8 needs 9");
    CLEANUP(source_closep) struct source *s = source_of(path, 0.2, 7);
    assert_int_equal(source_info(s)->samples[SOURCE_VALIDATION], 0);
    int32_t tokens[7], targets[7];
    assert_int_equal(read_part(s, 0, 1, tokens, targets, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg,
                        "data: there are 2 tokens for validation; a sample of context 7 needs 8; give more text or a "
                        "larger validation split, or none");
}

/* Larger than CORPUS_OWNED_BYTES, as a sparse file: it is not copied to memory, and a truncated file gives an error. */
static void a_large_file_that_shrinks_is_a_sentence_and_no_signal(void **state) {
    (void)state;
    struct err e = { "" };
    const char *path = file_with("large", "abc", 3);
    assert_int_equal(truncate(path, CORPUS_OWNED_BYTES + 1000), 0);
    CLEANUP(corpus_closep) struct corpus *c = corpus_of(TOKENIZER_BYTE, 0, path, NULL);
    int32_t tokens[4];
    assert_int_equal(corpus_read(c, CORPUS_TRAIN, 1, 4, tokens, &e), ST_OK);
    assert_int_equal(tokens[0], 'b');
    assert_int_equal(tokens[2], 0);
    assert_int_equal(corpus_read(c, CORPUS_TRAIN, CORPUS_OWNED_BYTES, 4, tokens, &e), ST_OK);
    assert_int_equal(truncate(path, 1000), 0);
    assert_int_equal(corpus_read(c, CORPUS_TRAIN, CORPUS_OWNED_BYTES, 4, tokens, &e), ST_FAILED_PRECONDITION);
    assert_non_null(strstr(e.msg, "large' had 1073742824 bytes and now ends at byte 1073741824"));
}

int main(void) {
    if (!mkdtemp(folder))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_becomes_tokens_and_text_again),
        cmocka_unit_test(a_tokenizer_that_was_tampered_with_is_refused),
        cmocka_unit_test(several_files_are_one_text_with_one_digest),
        cmocka_unit_test(a_long_text_of_wide_characters_is_read_whole),
        cmocka_unit_test(unusable_data_is_one_sentence_with_the_file),
        cmocka_unit_test(a_vocabulary_from_a_checkpoint_must_fit_the_text),
        cmocka_unit_test(an_epoch_visits_every_sample_once_and_epochs_differ),
        cmocka_unit_test(samples_are_spread_evenly),
        cmocka_unit_test(a_batch_is_the_same_on_every_rank_and_after_a_resume),
        cmocka_unit_test(what_is_not_wanted_is_not_made),
        cmocka_unit_test(batches_stay_while_as_many_are_taken_as_are_kept_in_memory_of_the_callers),
        cmocka_unit_test(validation_is_the_same_every_time_and_never_from_the_training_part),
        cmocka_unit_test(the_error_for_too_little_data_names_the_needed_size),
        cmocka_unit_test(a_large_file_that_shrinks_is_a_sentence_and_no_signal),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    struct err e;
    status_t st = dir_remove(folder, &e);
    return failed || st != ST_OK;
}
