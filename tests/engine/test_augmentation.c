/* Images changed at random: crops, flips and mixup, the same on every rank and after a resume. */
#include "base/cleanup.h"
#include "engine/data/loader.h"
#include "engine/data/mixup.h"
#include "tests/engine/image_files.h"

#include <float.h>
#include <math.h>
#include <unistd.h>

enum { SIDE = 5, PAD = 2, DRAWS = 4000 };

/* One image whose pixels are 1, 2, ... 25, so that each batch shows the crop and the flip that were drawn. */
static struct source *one_image(struct data_augmentation augment) {
    return idx_of(idx_images("one", 1, SIDE, SIDE), idx_labels("zero", 1, 1), augment);
}

static void crops_and_flips_are_all_drawn_and_nothing_else_happens(void **state) {
    (void)state;
    struct err e = { "" };
    CLEANUP(source_closep)
    struct source *s = one_image((struct data_augmentation){ .crop_padding = PAD, .flip = true });
    int drawn[2 * PAD + 1][2 * PAD + 1][2] = { { { 0 } } };
    for (int n = 0; n < DRAWS; n++) {
        float image[SIDE][SIDE];
        struct batch to = { .of = { [BATCH_IMAGES] = image } };
        assert_int_equal(source_read(s, SOURCE_TRAIN, 9, n, 1, &to, &e), ST_OK);
        /* The middle pixel is always inside the image; its neighbour shows the flip. */
        int middle = (int)roundf((image[2][2] + 1) * 127.5f) - 1, flip = image[2][3] < image[2][2];
        if (image[2][3] == -1)
            flip = image[2][1] > image[2][2];
        int down = middle / SIDE - 2, right = middle % SIDE - 2;
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++) {
                int row = y + down, column = (flip ? SIDE - 1 - x : x) + right;
                bool inside = row >= 0 && row < SIDE && column >= 0 && column < SIDE;
                assert_int_equal(roundf((image[y][x] + 1) * 127.5f), inside ? 1 + row * SIDE + column : 0);
            }
        drawn[down + PAD][right + PAD][flip]++;
    }
    /* 50 cells of 80 +- 9: no cell is rare. */
    for (int i = 0; i < (2 * PAD + 1) * (2 * PAD + 1) * 2; i++)
        assert_in_range((&drawn[0][0][0])[i], 40, 120);
}

/* --- mixup ---*/

enum { MIXED = 7, NUMBERS = SIDE * SIDE };

static struct source *mixed_images(double alpha) {
    return idx_of(idx_images("several", MIXED, SIDE, SIDE), idx_labels("several-labels", MIXED, MIXED),
                  (struct data_augmentation){ .crop_padding = PAD, .flip = true, .mixup = alpha });
}

struct mixed_batch {
    float images[3 * MIXED][NUMBERS], shares[3 * MIXED];
    int32_t labels[3 * MIXED], partners[3 * MIXED];
};

static void read_mixed(struct source *s, enum source_split split, int64_t first, int B, struct mixed_batch *ret) {
    struct err e = { "" };
    struct batch to = { .of = { [BATCH_IMAGES] = ret->images, [BATCH_LABELS] = ret->labels } };
    if (source_find(s, BATCH_SHARES))
        to.of[BATCH_PARTNERS] = ret->partners, to.of[BATCH_SHARES] = ret->shares;
    if (source_read(s, split, 9, first, B, &to, &e) != ST_OK)
        fail_msg("%s", e.msg);
}

/* Over three epochs, and in micro-batches of any size. */
static void a_mixed_sample_is_the_weighted_mean_of_two_samples_and_has_both_labels(void **state) {
    (void)state;
    CLEANUP(source_closep) struct source *plain = mixed_images(0), *mixed = mixed_images(0.4);
    static struct mixed_batch a, next, b, one;
    enum { N = 3 * MIXED };
    assert_null(source_find(plain, BATCH_PARTNERS));
    assert_int_equal(source_info(mixed)->memory_bytes - source_info(plain)->memory_bytes,
                     LOADER_THREADS * sizeof(float) * NUMBERS);
    read_mixed(plain, SOURCE_TRAIN, 0, N, &a);
    read_mixed(plain, SOURCE_TRAIN, 1, N, &next);
    read_mixed(mixed, SOURCE_TRAIN, 0, N, &b);
    for (int i = 0; i < N; i++) {
        assert_int_equal(b.labels[i], a.labels[i]);
        assert_int_equal(b.partners[i], next.labels[i]);
        assert_true(b.shares[i] >= 0 && b.shares[i] <= 1);
        for (int p = 0; p < NUMBERS; p++)
            assert_float_equal(b.images[i][p], b.shares[i] * a.images[i][p] + (1 - b.shares[i]) * next.images[i][p],
                               1e-6);
        read_mixed(mixed, SOURCE_TRAIN, i, 1, &one);
        assert_memory_equal(one.images[0], b.images[i], sizeof b.images[i]);
        assert_memory_equal(one.shares, &b.shares[i], sizeof b.shares[i]);
        assert_int_equal(one.partners[0], b.partners[i]);
    }
}

static void validation_samples_are_not_mixed(void **state) {
    (void)state;
    struct err e = { "" };
    const struct data_config config = {
        .kind = &data_idx,
        .idx = { .train_images = idx_images("several", MIXED, SIDE, SIDE),
                 .train_labels = idx_labels("several-labels", MIXED, MIXED),
                 .validation_images = idx_images("several-too", MIXED, SIDE, SIDE),
                 .validation_labels = idx_labels("several-labels-too", MIXED, MIXED),
                 .augment = { .mixup = 0.4 } },
    };
    struct data_config without = config;
    without.idx.augment.mixup = 0;
    CLEANUP(source_closep) struct source *mixed = NULL, *plain = NULL;
    const struct source_options options = { 0 };
    assert_int_equal(source_open(&config, &options, &mixed, &e), ST_OK);
    assert_int_equal(source_open(&without, &options, &plain, &e), ST_OK);
    static struct mixed_batch a, b;
    read_mixed(plain, SOURCE_VALIDATION, 0, MIXED, &a);
    read_mixed(mixed, SOURCE_VALIDATION, 0, MIXED, &b);
    assert_memory_equal(b.images, a.images, sizeof a.images);
    for (int i = 0; i < MIXED; i++) {
        assert_int_equal(b.partners[i], a.labels[i]);
        assert_true(b.shares[i] == 1);
    }
}

/* Beta(a, a) has the mean 1/2 and the variance 1 / (4 (2 a + 1)). */
static void shares_have_the_moments_of_their_beta_distribution(void **state) {
    (void)state;
    static const double alphas[] = { 0.01, 0.2, 1, 8, 100 };
    enum { N = 40000 };
    for (size_t i = 0; i < sizeof alphas / sizeof *alphas; i++) {
        double sum = 0, squares = 0;
        const double variance = 1 / (4 * (2 * alphas[i] + 1));
        for (int64_t n = 0; n < N; n++) {
            const double share = mixup_share(alphas[i], 3, n);
            assert_true(share >= 0 && share <= 1);
            sum += share;
            squares += (share - 0.5) * (share - 0.5);
        }
        /* Five deviations of the mean, and at least five of the variance. */
        assert_float_equal(sum / N, 0.5, 5 * sqrt(variance / N));
        assert_float_equal(squares / N / variance, 1, 0.04);
    }
}

static void a_share_is_a_number_at_the_least_alpha(void **state) {
    (void)state;
    for (int64_t n = 0; n < 1000; n++) {
        const float share = mixup_share(DBL_TRUE_MIN, 3, n);
        assert_true(share >= 0 && share <= 1);
    }
}

static void a_sample_is_drawn_in_the_same_way_on_every_rank_and_after_a_resume(void **state) {
    (void)state;
    struct err e = { "" };
    enum { STEPS = 30, MICRO = 3, K = 4 };
    CLEANUP(source_closep)
    struct source *s = one_image((struct data_augmentation){ .crop_padding = PAD, .flip = true });
    static const int all[] = { 0, 1, 2, 3 }, some[] = { 2, 3 };
    static float record[STEPS][K][MICRO * SIDE * SIDE];
    struct loader_config config = { .source = s,
                                    .seed = 4,
                                    .global_batch = K * MICRO,
                                    .micro_batch = MICRO,
                                    .micro_batches = all,
                                    .n_micro_batches = K,
                                    .steps = STEPS,
                                    .threads = 4 };
    CLEANUP(loader_closep) struct loader *one = NULL, *other = NULL;
    assert_int_equal(loader_open(&config, &one, &e), ST_OK);
    config.micro_batches = some;
    config.n_micro_batches = 2;
    config.first_step = 11;
    config.first_sample = 11 * config.global_batch;
    config.threads = 1;
    assert_int_equal(loader_open(&config, &other, &e), ST_OK);
    for (int step = 0; step < STEPS; step++)
        for (int k = 0; k < K; k++) {
            struct loader_batch b;
            assert_int_equal(loader_next(one, step, k, &b, &e), ST_OK);
            memcpy(record[step][k], b.of[BATCH_IMAGES], sizeof record[0][0]);
        }
    for (int step = 11; step < STEPS; step++)
        for (int k = 2; k < K; k++) {
            struct loader_batch b;
            assert_int_equal(loader_next(other, step, k, &b, &e), ST_OK);
            assert_memory_equal(b.of[BATCH_IMAGES], record[step][k], sizeof record[0][0]);
        }
    assert_memory_not_equal(record[0][0], record[0][1], sizeof record[0][0]);
}

static void validation_is_never_augmented(void **state) {
    (void)state;
    struct err e = { "" };
    static char images[128], labels[128];
    snprintf(images, sizeof images, "%s", idx_images("plain", 1, SIDE, SIDE));
    snprintf(labels, sizeof labels, "%s", idx_labels("plain-labels", 1, 1));
    struct data_config config = { .kind = &data_idx,
                                  .idx = { .train_images = images,
                                           .train_labels = labels,
                                           .validation_images = images,
                                           .validation_labels = labels,
                                           .augment = { .crop_padding = PAD, .flip = true } } };
    CLEANUP(source_closep) struct source *s = NULL;
    assert_int_equal(source_open(&config, &(struct source_options){ 0 }, &s, &e), ST_OK);
    for (int n = 0; n < 20; n++) {
        float image[SIDE * SIDE];
        struct batch to = { .of = { [BATCH_IMAGES] = image } };
        assert_int_equal(source_read(s, SOURCE_VALIDATION, 9, n, 1, &to, &e), ST_OK);
        for (int i = 0; i < SIDE * SIDE; i++)
            assert_int_equal(roundf((image[i] + 1) * 127.5f), 1 + i);
    }
}

int main(void) {
    if (!mkdtemp(folder))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crops_and_flips_are_all_drawn_and_nothing_else_happens),
        cmocka_unit_test(a_mixed_sample_is_the_weighted_mean_of_two_samples_and_has_both_labels),
        cmocka_unit_test(validation_samples_are_not_mixed),
        cmocka_unit_test(shares_have_the_moments_of_their_beta_distribution),
        cmocka_unit_test(a_share_is_a_number_at_the_least_alpha),
        cmocka_unit_test(a_sample_is_drawn_in_the_same_way_on_every_rank_and_after_a_resume),
        cmocka_unit_test(validation_is_never_augmented),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    struct err e;
    status_t st = dir_remove(folder, &e);
    return failed || st != ST_OK;
}
