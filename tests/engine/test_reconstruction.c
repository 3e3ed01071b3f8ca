/* The reconstruction of images from undersampled, noisy Fourier transforms. */
#include "base/cleanup.h"
#include "base/file.h"
#include "engine/data/reconstruction.h"
#include "engine/data/source.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char folder[] = "/tmp/ty-reconstruction-XXXXXX";

enum { N = 16, ALL = N * N };

static void copy_recorded(const char *from, const char *to) {
    char path[512];
    const char *root = getenv("TRAINYARD_SOURCE");
    struct bytes b;
    struct err e = { "" };
    snprintf(path, sizeof path, "%s/tests/engine/images/%s", root ? root : ".", from);
    bytes_init(&b, 1 << 20);
    if (file_read(path, &b, &e) != ST_OK)
        fail_msg("%s", e.msg);
    snprintf(path, sizeof path, "%s/%s", folder, to);
    *strrchr(path, '/') = '\0';
    assert_int_equal(dir_make(path, 0755, &e), ST_OK);
    snprintf(path, sizeof path, "%s/%s", folder, to);
    FILE *f = fopen(path, "w"); /* without an fsync: there are many */
    assert_non_null(f);
    assert_int_equal(fwrite(b.data, 1, b.len, f), b.len);
    fclose(f);
    bytes_done(&b);
}

/* By the definition, in double. */
static void transform_slowly(int n, const double *image, double *re, double *im) {
    for (int u = 0; u < n; u++)
        for (int v = 0; v < n; v++) {
            double a = 0, b = 0;
            for (int y = 0; y < n; y++)
                for (int x = 0; x < n; x++) {
                    double angle = -2 * M_PI * ((double)u * y + (double)v * x) / n;
                    a += image[y * n + x] * cos(angle);
                    b += image[y * n + x] * sin(angle);
                }
            re[u * n + v] = a / n;
            im[u * n + v] = b / n;
        }
}

static void the_transform_is_the_definition_for_every_size(void **state) {
    (void)state;
    for (int n = 1; n <= 32; n *= 2) {
        double image[32 * 32], re[32 * 32], im[32 * 32], energy = 0, kept = 0;
        struct complex_number data[32 * 32];
        for (int i = 0; i < n * n; i++) {
            image[i] = sin(i * 1.7) + i % 5;
            data[i] = (struct complex_number){ image[i], 0 };
        }
        CLEANUP(fourier_freep) struct fourier *f = fourier_new(n);
        fourier_transform(f, data);
        transform_slowly(n, image, re, im);
        for (int i = 0; i < n * n; i++) {
            assert_true(fabs(data[i].re - re[i]) < 1e-11 && fabs(data[i].im - im[i]) < 1e-11);
            energy += image[i] * image[i];
            kept += data[i].re * data[i].re + data[i].im * data[i].im;
        }
        assert_true(fabs(energy - kept) <= 1e-9 * energy);
    }
}

static void a_mask_has_the_given_number_of_rows_with_the_low_ones_always_included(void **state) {
    (void)state;
    enum { SIDE = 64, DRAWS = 3000 };
    struct measurement m = { .side = SIDE, .rows = 20, .centre_rows = 5 };
    int times[SIDE] = { 0 };
    for (int sample = 0; sample < DRAWS; sample++) {
        uint8_t rows[SIDE];
        int n = 0;
        measurement_rows(&m, SOURCE_TRAIN, 3, sample, rows);
        for (int i = 0; i < SIDE; i++) {
            n += rows[i];
            times[i] += rows[i];
        }
        assert_int_equal(n, 20);
    }
    static const int low[] = { 0, 1, SIDE - 1, 2, SIDE - 2 };
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(times[low[i]], DRAWS);
    for (int i = 3; i <= SIDE - 3; i++) /* 15 of 59: 763 +- 24 */
        assert_in_range(times[i], 640, 890);
}

static status_t open_source(struct data_reconstruction r, struct source **ret, struct err *e) {
    struct data_config config = { .kind = &data_reconstruction, .reconstruction = r };
    return source_open(&config, &(struct source_options){ 0 }, ret, e);
}

static struct source *source_of(double sampled, double noise) {
    static char train[128], validation[128];
    struct source *s = NULL;
    struct err e = { "" };
    snprintf(train, sizeof train, "%s/train", folder);
    snprintf(validation, sizeof validation, "%s/validation", folder);
    if (open_source((struct data_reconstruction){ .train = train,
                                                  .validation = validation,
                                                  .size = N,
                                                  .sampled_fraction = sampled,
                                                  .center_fraction = 0.125,
                                                  .noise = noise },
                    &s, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return s;
}

struct samples {
    float reference[4][ALL], mask[4][ALL], y[4][2][ALL];
};

static void read_four(const struct source *s, enum source_split part, int64_t seed, int64_t first, struct samples *to) {
    struct batch batch = {
        .of = { [BATCH_REFERENCE] = to->reference, [BATCH_MASK] = to->mask, [BATCH_MEASUREMENTS] = to->y }
    };
    struct err e = { "" };
    if (source_read(s, part, seed, first, 4, &batch, &e) != ST_OK)
        fail_msg("%s", e.msg);
}

static void measurements_are_rows_of_the_images_transform(void **state) {
    (void)state;
    CLEANUP(source_closep) struct source *s = source_of(0.5, 0);
    assert_int_equal(source_info(s)->samples[SOURCE_TRAIN], 3); /* in folders of folders */
    assert_int_equal(source_info(s)->samples[SOURCE_VALIDATION], 1);
    assert_int_equal(source_elements(s, BATCH_MEASUREMENTS), 2 * ALL);
    static struct samples a;
    read_four(s, SOURCE_TRAIN, 1, 0, &a);
    for (int b = 0; b < 4; b++) {
        double image[ALL], re[ALL], im[ALL];
        int measured = 0;
        for (int i = 0; i < ALL; i++) {
            assert_true(a.reference[b][i] >= 0 && a.reference[b][i] <= 1);
            image[i] = a.reference[b][i];
        }
        transform_slowly(N, image, re, im);
        for (int i = 0; i < ALL; i++) {
            assert_true(a.mask[b][i] == 0 || a.mask[b][i] == 1);
            assert_true(a.mask[b][i] == a.mask[b][i / N * N]);
            measured += a.mask[b][i] == 1;
            assert_true(fabs(a.y[b][0][i] - a.mask[b][i] * re[i]) < 1e-5);
            assert_true(fabs(a.y[b][1][i] - a.mask[b][i] * im[i]) < 1e-5);
        }
        assert_int_equal(measured, ALL / 2);
    }
}

static void noise_is_normal_and_of_the_given_deviation(void **state) {
    (void)state;
    enum { BATCHES = 200 };
    CLEANUP(source_closep) struct source *clean = source_of(0.5, 0), *noisy = source_of(0.5, 0.25);
    static struct samples a, b;
    double sum = 0, squares = 0, cross = 0, fourth = 0;
    int n = 0;
    for (int i = 0; i < BATCHES; i++) {
        read_four(clean, SOURCE_TRAIN, 7, 4 * i, &a);
        read_four(noisy, SOURCE_TRAIN, 7, 4 * i, &b);
        assert_memory_equal(a.mask, b.mask, sizeof a.mask);
        for (int k = 0; k < 4 * ALL; k++) {
            double re = (double)b.y[k / ALL][0][k % ALL] - a.y[k / ALL][0][k % ALL];
            double im = (double)b.y[k / ALL][1][k % ALL] - a.y[k / ALL][1][k % ALL];
            if (a.mask[k / ALL][k % ALL] == 0) {
                assert_true(re == 0 && im == 0);
                continue;
            }
            n++;
            sum += re + im;
            squares += re * re + im * im;
            cross += re * im;
            fourth += re * re * re * re;
        }
    }
    double variance = squares / (2 * n); /* n = 102,400 pairs */
    assert_true(fabs(sum / (2 * n)) < 0.25 * 0.01);
    assert_true(fabs(sqrt(variance) / 0.25 - 1) < 0.01);
    assert_true(fabs(cross / n) < variance * 0.02);
    assert_true(fabs(fourth / n / (variance * variance) - 3) < 0.15);
}

static void a_sample_is_the_same_on_every_rank_and_differs_from_its_neighbours(void **state) {
    (void)state;
    CLEANUP(source_closep) struct source *s = source_of(0.5, 0.1);
    static struct samples a, b, c;
    for (int part = 0; part < SOURCE_SPLITS; part++) {
        read_four(s, (enum source_split)part, 5, 1000, &a);
        read_four(s, (enum source_split)part, 5, 998, &b);
        assert_memory_equal(a.y[0], b.y[2], sizeof a.y[0]);
        assert_memory_equal(a.mask[1], b.mask[3], sizeof a.mask[0]);
        assert_memory_not_equal(a.mask[0], a.mask[1], sizeof a.mask[0]);
        read_four(s, (enum source_split)part, 6, 1000, &c);
        assert_int_equal(memcmp(a.mask, c.mask, sizeof a.mask) == 0, part == SOURCE_VALIDATION); /* of any seed */
    }
    read_four(s, SOURCE_TRAIN, 5, 1000, &b);
    assert_memory_not_equal(a.mask, b.mask, sizeof a.mask); /* a: of validation */
    /* An array that the caller does not request is not made, and the others stay the same. */
    struct batch only = { .of = { [BATCH_MEASUREMENTS] = c.y } };
    struct err e;
    assert_int_equal(source_read(s, SOURCE_TRAIN, 5, 1000, 4, &only, &e), ST_OK);
    assert_memory_equal(b.y, c.y, sizeof b.y);
}

static void impossible_measurements_are_one_sentence(void **state) {
    (void)state;
    char train[128], empty[128];
    struct err e = { "" };
    snprintf(train, sizeof train, "%s/train", folder);
    snprintf(empty, sizeof empty, "%s/empty", folder);
    assert_int_equal(dir_make(empty, 0755, &e), ST_OK);
    struct {
        const char *train, *validation;
        int size;
        double sampled, center, noise;
        const char *says;
        status_t st;
    } table[] = {
        { train, NULL, 24, 0.5, 0.1, 0, "an image side of 24 is not a power of two", ST_INVALID_ARGUMENT },
        { train, NULL, 0, 0.5, 0.1, 0, "not a power of two up to 8192: give the size",
          ST_INVALID_ARGUMENT }, /* the first has 24 */
        { train, NULL, 16, 0, 0, 0, "a sampled fraction of 0", ST_INVALID_ARGUMENT },
        { train, NULL, 16, 0.3, 0.4, 0, "a center fraction of 0.4", ST_INVALID_ARGUMENT },
        { train, NULL, 16, 0.3, 0.1, NAN, "a noise of nan", ST_INVALID_ARGUMENT },
        { empty, NULL, 16, 0.3, 0.1, 0, "empty' has no PNG or JPEG file in it", ST_NOT_FOUND },
        { train, empty, 16, 0.3, 0.1, 0, "empty' has no PNG or JPEG file in it", ST_NOT_FOUND },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct source *s = NULL;
        assert_int_equal(open_source((struct data_reconstruction){ .train = table[i].train,
                                                                   .validation = table[i].validation,
                                                                   .size = table[i].size,
                                                                   .sampled_fraction = table[i].sampled,
                                                                   .center_fraction = table[i].center,
                                                                   .noise = table[i].noise },
                                     &s, &e),
                         table[i].st);
        if (!strstr(e.msg, table[i].says))
            fail_msg("case %zu says \"%s\"", i, e.msg);
    }
}

int main(void) {
    if (!mkdtemp(folder))
        return 1;
    copy_recorded("rgb.png", "train/a.png");
    copy_recorded("colour.jpg", "train/deep/b.jpg");
    copy_recorded("progressive.jpg", "train/deep/er/c.jpg");
    copy_recorded("grey.jpg", "validation/d.jpg");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_transform_is_the_definition_for_every_size),
        cmocka_unit_test(a_mask_has_the_given_number_of_rows_with_the_low_ones_always_included),
        cmocka_unit_test(measurements_are_rows_of_the_images_transform),
        cmocka_unit_test(noise_is_normal_and_of_the_given_deviation),
        cmocka_unit_test(a_sample_is_the_same_on_every_rank_and_differs_from_its_neighbours),
        cmocka_unit_test(impossible_measurements_are_one_sentence),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    struct err e;
    status_t st = dir_remove(folder, &e);
    return failed || st != ST_OK;
}
