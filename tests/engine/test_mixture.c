/* Mixtures: the shares of the sources are exact, each source is read in its own order, every window once in each of its
 * epochs, and a sample depends on nothing but its number.
 *
 * In the token files every token occurs once, so a window is known by its first token. The samples are counted, not
 * computed: the tests read them and look at what they have got. */
#include "base/cleanup.h"
#include "base/shares.h"
#include "engine/data/interleave.h"
#include "engine/data/source.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { CONTEXT = 4, VOCABULARY = 60000, MILLION = 1000000 };

static char folder[] = "/tmp/ty-mixture-XXXXXX";
static unsigned seed;

/* ---- shares ---- */

static void weights_are_exact_shares_or_are_refused(void **state) {
    (void)state;
    struct err e;
    int64_t units[3], all;
    assert_int_equal(shares_of((double[]){ 0.7, 0.3 }, 2, units, &all, &e), ST_OK);
    assert_true(units[0] == 7 && units[1] == 3 && all == 10);
    assert_int_equal(shares_of((double[]){ 1, 1, 1 }, 3, units, &all, &e), ST_OK);
    assert_true(units[0] == 1 && units[2] == 1 && all == 3);
    assert_int_equal(shares_of((double[]){ 0, 250, 0.5 }, 3, units, &all, &e), ST_OK);
    assert_true(units[0] == 0 && units[1] == 500 && units[2] == 1 && all == 501);
    assert_int_equal(shares_of((double[]){ 0.333333, 0.666667 }, 2, units, &all, &e), ST_OK);
    assert_int_equal(all, MILLION);

    assert_int_equal(shares_of((double[]){ 1, 0.1234567 }, 2, units, &all, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "weight 1: 0.1234567 has more than six digits behind the point");
    assert_int_equal(shares_of((double[]){ -1, 2 }, 2, units, &all, &e), ST_INVALID_ARGUMENT);
    assert_int_equal(shares_of((double[]){ 0.0 / 0.0, 2 }, 2, units, &all, &e), ST_INVALID_ARGUMENT);
    assert_int_equal(shares_of((double[]){ 0, 0 }, 2, units, &all, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "all weights are 0");
    assert_int_equal(shares_of((double[]){ 1, 0.123457 }, 2, units, &all, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "1123457 parts only"));
}

/* ---- the sequence ---- */

/* Every prefix: no source is a whole number away from its share. What is looked up is what was counted. */
static void check_sequence(const int64_t *units, int n, int64_t length) {
    CLEANUP(interleave_freep) struct interleave *x = NULL;
    struct err e;
    int64_t all = 0, count[8] = { 0 };
    for (int s = 0; s < n; s++)
        all += units[s];
    assert_int_equal(interleave_new(units, n, &x, &e), ST_OK);
    for (int64_t i = 0; i < length; i++) {
        int64_t position;
        const int source = interleave_at(x, i, &position);
        assert_int_equal(position, count[source]);
        count[source]++;
        for (int s = 0; s < n; s++)
            assert_true(llabs(count[s] * all - (i + 1) * units[s]) < all);
        for (int s = 0; i % 997 == 0 && s < n; s++)
            assert_int_equal(interleave_count(x, i + 1, s), count[s]);
    }
    for (int s = 0; s < n && length % all == 0; s++)
        assert_int_equal(count[s], length / all * units[s]);
}

static void every_prefix_is_within_one_of_the_shares(void **state) {
    (void)state;
    srand(seed);
    for (int round = 0; round < 300; round++) {
        int64_t units[8];
        const int n = 1 + rand() % 8;
        for (int s = 0; s < n; s++)
            units[s] = rand() % (round % 2 ? 7 : 300);
        units[rand() % n] += 1;
        check_sequence(units, n, 3000);
    }
}

static void a_million_samples_have_exact_shares(void **state) {
    (void)state;
    check_sequence((int64_t[]){ 7, 3 }, 2, MILLION);
    check_sequence((int64_t[]){ 500000, 333333, 166666, 1 }, 4, MILLION);
}

/* ---- token files ---- */

/* Tokens first .. first + windows x CONTEXT, each once. */
static const char *tokens_file(const char *name, int first, int windows) {
    static char paths[8][64];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i <= windows * CONTEXT; i++) {
        const uint16_t token = (uint16_t)(first + i);
        assert_int_equal(fwrite(&token, sizeof token, 1, f), 1);
    }
    fclose(f);
    return path;
}

struct files {
    const char *train, *validation;
};

static struct data_config tokens_config(const struct files *f) {
    return (struct data_config){ .kind = &data_tokens,
                                 .tokens = { .train = &f->train,
                                             .n_train = 1,
                                             .validation = &f->validation,
                                             .n_validation = f->validation != NULL } };
}

static status_t open_config(const struct data_config *config, struct source **ret, struct err *e) {
    const struct source_options options = { .context = CONTEXT, .vocabulary = VOCABULARY };
    return source_open(config, &options, ret, e);
}

static struct source *opened(const struct data_config *config) {
    struct source *s = NULL;
    struct err e;
    if (open_config(config, &s, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return s;
}

/* The first token of a sample. Its targets must be the tokens that follow. */
static int32_t read_first(const struct source *s, enum source_split split, int64_t sample) {
    int32_t tokens[CONTEXT], targets[CONTEXT];
    struct batch batch = { .of = { [BATCH_TOKENS] = tokens, [BATCH_TARGETS] = targets } };
    struct err e;
    if (source_read(s, split, 5, sample, 1, &batch, &e) != ST_OK)
        fail_msg("%s", e.msg);
    for (int i = 0; i < CONTEXT; i++)
        assert_true(tokens[i] == tokens[0] + i && targets[i] == tokens[i] + 1);
    return tokens[0];
}

enum { A = 0, A_WINDOWS = 30, B = 10000, B_WINDOWS = 7, VALIDATION_A = 20000, VALIDATION_B = 30000 };

static struct data_mixture_source two_sources[2];
static struct files two_files[2];

static struct data_config two(double weight_a, double weight_b, const struct data_mixture_phase *phases, int n_phases) {
    two_files[0] = (struct files){ tokens_file("a", A, A_WINDOWS), tokens_file("va", VALIDATION_A, 5) };
    two_files[1] = (struct files){ tokens_file("b", B, B_WINDOWS), tokens_file("vb", VALIDATION_B, 3) };
    two_sources[0] = (struct data_mixture_source){ "a", weight_a, tokens_config(&two_files[0]) };
    two_sources[1] = (struct data_mixture_source){ "b", weight_b, tokens_config(&two_files[1]) };
    return (struct data_config){ .kind = &data_mixture, .mixture = { two_sources, phases, 2, n_phases } };
}

/* ---- training samples ---- */

/* Reads n samples in order. Each source's own windows come once in each of its epochs, whatever its weight is. */
static void check_epochs(const struct source *s, int64_t n, int64_t ret_counts[2]) {
    static const int windows[2] = { A_WINDOWS, B_WINDOWS };
    bool seen[2][A_WINDOWS] = { { false } };
    int64_t counts[2] = { 0 };
    for (int64_t i = 0; i < n; i++) {
        const int32_t first = read_first(s, SOURCE_TRAIN, i);
        const int from = first >= B;
        const int in_epoch = (int)(counts[from] % windows[from]);
        if (in_epoch == 0)
            memset(seen[from], 0, sizeof seen[from]);
        /* In later epochs the windows begin behind an offset below CONTEXT, and the last one ends with the text. */
        const int window = (first - (from ? B : A)) / CONTEXT;
        assert_true(window < windows[from] && !seen[from][window]);
        seen[from][window] = true;
        counts[from]++;
        assert_int_equal(source_mixed_samples(s, 0, i + 1), counts[0]);
        assert_int_equal(source_mixed_samples(s, 1, i + 1), counts[1]);
    }
    memcpy(ret_counts, counts, sizeof counts);
}

static void each_source_is_read_in_its_own_order_and_epochs(void **state) {
    (void)state;
    const struct data_config config = two(0.75, 0.25, NULL, 0);
    CLEANUP(source_closep) struct source *s = opened(&config);
    int64_t counts[2];
    assert_int_equal(source_info(s)->n_mixed, 2);
    check_epochs(s, 400, counts);
    assert_true(counts[0] == 300 && counts[1] == 100);
    /* Neither the other source nor its weight changes the order of the first one. */
    struct data_config alone = two(3, 1, NULL, 0);
    alone.mixture.n_sources = 1;
    CLEANUP(source_closep) struct source *a = opened(&alone);
    for (int64_t i = 0, of_a = 0; i < 400; i++) {
        const int32_t first = read_first(s, SOURCE_TRAIN, i);
        if (first < B)
            assert_int_equal(first, read_first(a, SOURCE_TRAIN, of_a++));
    }
}

/* What a resume in the middle or another rank reads: any range, in any order, in batches of any size. */
static void a_sample_depends_on_its_number_alone(void **state) {
    (void)state;
    const struct data_mixture_phase phases[] = { { 100, { 1, 9 } }, { 250, { 3, 2 } } };
    const struct data_config config = two(0.7, 0.3, phases, 2);
    CLEANUP(source_closep) struct source *s = opened(&config);
    int32_t order[400], tokens[16 * CONTEXT];
    for (int i = 0; i < 400; i++)
        order[i] = read_first(s, SOURCE_TRAIN, i);
    CLEANUP(source_closep) struct source *other = opened(&config);
    srand(seed);
    for (int round = 0; round < 100; round++) {
        const int n = 1 + rand() % 16, first = rand() % (400 - n);
        struct batch batch = { .of = { [BATCH_TOKENS] = tokens } };
        struct err e;
        assert_int_equal(source_read(other, SOURCE_TRAIN, 5, first, n, &batch, &e), ST_OK);
        for (int b = 0; b < n; b++)
            assert_int_equal(tokens[b * CONTEXT], order[first + b]);
    }
}

static void phases_change_the_shares_and_no_window_is_lost(void **state) {
    (void)state;
    const struct data_mixture_phase phases[] = { { 20, { 0, 1 } }, { 27, { 1, 0 } }, { 47, { 1, 1 } } };
    const struct data_config config = two(1, 0, phases, 3);
    CLEANUP(source_closep) struct source *s = opened(&config);
    int64_t counts[2];
    check_epochs(s, 20, counts);
    assert_true(counts[0] == 20 && counts[1] == 0);
    check_epochs(s, 27, counts);
    assert_true(counts[0] == 20 && counts[1] == 7);
    check_epochs(s, 47, counts);
    assert_true(counts[0] == 40 && counts[1] == 7);
    check_epochs(s, 147, counts);
    assert_true(counts[0] == 90 && counts[1] == 57);
}

/* ---- validation, digest, memory, errors ---- */

static void validation_samples_are_those_of_each_source_in_order(void **state) {
    (void)state;
    const struct data_config config = two(0.7, 0.3, NULL, 0);
    CLEANUP(source_closep) struct source *s = opened(&config);
    const struct source_info *info = source_info(s);
    assert_int_equal(info->samples[SOURCE_VALIDATION], 8);
    assert_true(info->mixed[0].first == 0 && info->mixed[0].validation == 5);
    assert_true(info->mixed[1].first == 5 && info->mixed[1].validation == 3);
    assert_true(info->mixed[0].weight == 0.7 && info->mixed[1].weight == 0.3);
    for (int i = 0; i < 16; i++) /* a round of an evaluation may go beyond the end */
        assert_int_equal(read_first(s, SOURCE_VALIDATION, i),
                         i % 8 < 5 ? VALIDATION_A + i % 8 * CONTEXT : VALIDATION_B + (i % 8 - 5) * CONTEXT);
}

static void the_digest_covers_weights_phases_names_and_files(void **state) {
    (void)state;
    const struct data_mixture_phase phase = { 100, { 1, 1 } };
    const struct data_config config = two(0.7, 0.3, NULL, 0);
    CLEANUP(source_closep) struct source *s = opened(&config), *same = opened(&config);
    assert_string_equal(source_info(s)->sha256, source_info(same)->sha256);
    const char *name = "c";
    for (int change = 0; change < 4; change++) {
        struct data_config changed = two(0.7, change == 0 ? 0.4 : 0.3, &phase, change == 1);
        if (change == 2)
            two_sources[1].name = name;
        if (change == 3)
            two_files[1].train = tokens_file("other", B + 1, B_WINDOWS);
        CLEANUP(source_closep) struct source *other = opened(&changed);
        assert_string_not_equal(source_info(s)->sha256, source_info(other)->sha256);
    }
    assert_true(source_info(s)->memory_bytes > 0);
}

static void a_mixture_that_cannot_be_is_refused_with_the_source(void **state) {
    (void)state;
    struct source *s = NULL;
    struct err e;
    struct data_config config = two(0.7, 0.3, NULL, 0);
    two_files[1].train = "/nowhere/b";
    assert_int_equal(open_config(&config, &s, &e), ST_NOT_FOUND);
    assert_non_null(strstr(e.msg, "data: source b: "));
    assert_non_null(strstr(e.msg, "/nowhere/b"));
    const struct data_mixture_phase backwards[] = { { 100, { 1, 1 } }, { 100, { 1, 2 } } };
    config = two(0.7, 0.3, backwards, 2);
    assert_int_equal(open_config(&config, &s, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "data: phase 1 begins at sample 100, not behind the one before it");
    config = two(0, 0, NULL, 0);
    assert_int_equal(open_config(&config, &s, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "data: the weights from sample 0 on: all weights are 0");
    assert_null(s);
}

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    static const char *const names[] = { "a", "b", "va", "vb", "other" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    return rmdir(folder);
}

int main(void) {
    const char *given = getenv("TRAINYARD_SEED");
    seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
    printf("TRAINYARD_SEED=%u\n", seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_exact_shares_or_are_refused),
        cmocka_unit_test(every_prefix_is_within_one_of_the_shares),
        cmocka_unit_test(a_million_samples_have_exact_shares),
        cmocka_unit_test(each_source_is_read_in_its_own_order_and_epochs),
        cmocka_unit_test(a_sample_depends_on_its_number_alone),
        cmocka_unit_test(phases_change_the_shares_and_no_window_is_lost),
        cmocka_unit_test(validation_samples_are_those_of_each_source_in_order),
        cmocka_unit_test(the_digest_covers_weights_phases_names_and_files),
        cmocka_unit_test(a_mixture_that_cannot_be_is_refused_with_the_source),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
