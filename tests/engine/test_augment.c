/* Augmentation of images: against recorded values of torchvision and Pillow (images/record_augment.py), and the same
 * samples for every order, thread and rank. */
#include "base/cleanup.h"
#include "base/file.h"
#include "engine/data/decode.h"
#include "engine/data/image_color.h"
#include "engine/data/image_crop.h"
#include "engine/data/image_view.h"
#include "engine/data/loader.h"
#include "engine/data/resize.h"
#include "engine/data/source.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#include <cmocka.h>

static json_t *expected;
static char folder[] = "/tmp/ty-augment-XXXXXX";

static void recorded(const char *name, struct bytes *ret) {
    char path[512];
    const char *root = getenv("TRAINYARD_SOURCE");
    struct err e = { "" };
    snprintf(path, sizeof path, "%s/tests/engine/images/%s", root ? root : ".", name);
    bytes_init(ret, 1 << 20);
    if (file_read(path, ret, &e) != ST_OK)
        fail_msg("%s", e.msg);
}

static struct raster decoded(const char *name, const struct image_box *part) {
    struct bytes b;
    struct raster r;
    struct err e = { "" };
    recorded(name, &b);
    if (image_decode(b.data, b.len, 3, part, &r, &e) != ST_OK)
        fail_msg("%s: %s", name, e.msg);
    bytes_done(&b);
    return r;
}

static const char *text_of(const json_t *of, const char *key) { return json_string_value(json_object_get(of, key)); }
static int int_of(const json_t *of, const char *key) { return (int)json_integer_value(json_object_get(of, key)); }

static void assert_pixels(const json_t *of, size_t number, const uint8_t *got, size_t n) {
    const char *hex = text_of(of, "pixels");
    assert_int_equal(strlen(hex), 2 * n);
    for (size_t i = 0; i < n; i++) {
        unsigned want;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &want), 1);
        if (want != got[i])
            fail_msg("case %zu of %s: byte %zu is %u, recorded %u", number, text_of(of, "file"), i, got[i], want);
    }
}

static struct image_box box_of(const json_t *of) {
    const json_t *box = json_object_get(of, "box");
    int n[4];
    for (size_t i = 0; i < 4; i++)
        n[i] = (int)json_integer_value(json_array_get(box, i));
    return (struct image_box){ .top = n[0], .left = n[1], .height = n[2], .width = n[3] };
}

static void parts_are_cut_out_and_scaled_as_torchvision_does(void **state) {
    (void)state;
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(expected, "parts"), i, one) {
        const struct image_box box = box_of(one);
        const int size = int_of(one, "size");
        uint8_t small[16 * 16 * 3];
        struct err e = { "" };
        struct raster r = decoded(text_of(one, "file"), &box);
        assert_int_equal(raster_scale(&r, size, size, small, &e), ST_OK);
        assert_pixels(one, i, small, (size_t)(size * size * 3));
        free(r.data);
    }
    assert_true(i >= 20);
}

static void middles_are_cut_out_as_torchvision_does(void **state) {
    (void)state;
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(expected, "middles"), i, one) {
        const int size = int_of(one, "size");
        uint8_t small[16 * 16 * 3];
        struct err e = { "" };
        struct raster r = decoded(text_of(one, "file"), NULL);
        assert_int_equal(raster_fit(&r, int_of(one, "shorter"), size, small, &e), ST_OK);
        assert_pixels(one, i, small, (size_t)(size * size * 3));
        free(r.data);
    }
    assert_true(i >= 15);
}

/* The changes of a record in their order; those that it does not name come last and change nothing. */
static struct image_color color_of(const json_t *changes) {
    static const char *const names[] = { "brightness", "contrast", "saturation" };
    struct image_color color = { .factor = { 1, 1, 1 } };
    size_t n = 0, i;
    json_t *change;
    bool named[IMAGE_COLOR_CHANGES] = { false };
    json_array_foreach(changes, i, change) {
        for (int kind = 0; kind < IMAGE_COLOR_CHANGES; kind++)
            if (strcmp(json_string_value(json_array_get(change, 0)), names[kind]) == 0) {
                color.order[n++] = (enum image_color_change)kind;
                color.factor[kind] = (float)json_number_value(json_array_get(change, 1));
                named[kind] = true;
            }
    }
    for (int kind = 0; kind < IMAGE_COLOR_CHANGES; kind++)
        if (!named[kind])
            color.order[n++] = (enum image_color_change)kind;
    return color;
}

static void colors_are_changed_as_torchvision_does(void **state) {
    (void)state;
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(expected, "colors"), i, one) {
        const struct image_color color = color_of(json_object_get(one, "changes"));
        struct raster r = decoded(text_of(one, "file"), NULL);
        const size_t n = (size_t)(r.height * r.width);
        image_color_apply(&color, r.data, n, 3);
        assert_pixels(one, i, r.data, n * 3);
        free(r.data);
    }
    assert_true(i >= 8);
}

static void values_are_normalised_as_torchvision_does(void **state) {
    (void)state;
    const json_t *record = json_object_get(expected, "normals");
    struct data_normalization n = { .n_mean = 3, .n_std = 3 };
    for (size_t c = 0; c < 3; c++) {
        n.mean[c] = json_number_value(json_array_get(json_object_get(record, "mean"), c));
        n.std[c] = json_number_value(json_array_get(json_object_get(record, "std"), c));
    }
    static const uint8_t bytes[4] = { 0, 1, 127, 255 };
    uint8_t pixels[4 * 3];
    for (int i = 0; i < 12; i++)
        pixels[i] = bytes[i / 3];
    struct image_scale scale;
    struct err e = { "" };
    float got[12];
    assert_int_equal(image_scale_of(&n, 3, &scale, &e), ST_OK);
    image_to_floats(&(struct image_shape){ .height = 2, .width = 2, .channels = 3 }, pixels, (struct image_view){ 0 },
                    &scale, got);
    for (size_t i = 0; i < 12; i++) /* two roundings in another order */
        assert_true(fabs(got[i] - json_number_value(json_array_get(json_object_get(record, "values"), i))) < 1e-6);
    /* Without a mean: -1 .. 1, as in the first releases. */
    assert_int_equal(image_scale_of(&(struct data_normalization){ .n_mean = 0 }, 1, &scale, &e), ST_OK);
    assert_true(scale.scale[0] == 1 / 127.5F && scale.shift[0] == -1);
}

static void an_image_that_no_part_fits_shows_its_middle_as_in_torchvision(void **state) {
    (void)state;
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(expected, "wholes"), i, one) {
        const json_t *scale = json_object_get(one, "scale"), *ratio = json_object_get(one, "ratio");
        const struct data_resized_crop crop = { .min_scale = json_number_value(json_array_get(scale, 0)),
                                                .max_scale = json_number_value(json_array_get(scale, 1)),
                                                .min_ratio = json_number_value(json_array_get(ratio, 0)),
                                                .max_ratio = json_number_value(json_array_get(ratio, 1)) };
        const struct image_box want = box_of(one),
                               got = image_crop_draw(&crop, 1, (int64_t)i, int_of(one, "height"), int_of(one, "width"));
        assert_true(got.top == want.top && got.left == want.left && got.height == want.height &&
                    got.width == want.width);
    }
    assert_int_equal(i, 4);
}

/* ---- parts of files ---- */

/* sampling: of the luma, horizontally and vertically. */
static unsigned char *jpeg_make(int height, int width, int sampling_h, int sampling_v, bool progressive,
                                unsigned long *ret_n) {
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    unsigned char *file = NULL;
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    *ret_n = 0;
    jpeg_mem_dest(&c, &file, ret_n);
    c.image_width = (JDIMENSION)width;
    c.image_height = (JDIMENSION)height;
    c.input_components = 3;
    c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    c.comp_info[0].h_samp_factor = sampling_h;
    c.comp_info[0].v_samp_factor = sampling_v;
    if (progressive)
        jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    CLEANUP(freep) uint8_t *row = malloc((size_t)width * 3);
    uint32_t random = 1;
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width * 3; x++) {
            random = random * 1664525u + 1013904223u;
            row[x] = (uint8_t)(((x * 3 + y * 5) % 200) + (random >> 27));
        }
        JSAMPROW line = row;
        jpeg_write_scanlines(&c, &line, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    return file;
}

static void assert_part(const unsigned char *file, size_t n, int channels, const struct raster *whole,
                        struct image_box box) {
    struct raster r;
    struct err e = { "" };
    if (image_decode(file, n, channels, &box, &r, &e) != ST_OK)
        fail_msg("%s", e.msg);
    assert_true(r.height == box.height && r.width == box.width);
    for (int y = 0; y < box.height; y++)
        for (int x = 0; x < box.width * channels; x++) {
            const int want = whole->data[((box.top + y) * whole->width + box.left) * channels + x],
                      got = r.data[y * box.width * channels + x];
            if (want != got)
                fail_msg("box %d,%d %dx%d, row %d, number %d: %d, in the whole image %d", box.top, box.left, box.height,
                         box.width, y, x, got, want);
        }
    free(r.data);
}

static void assert_parts(const unsigned char *file, size_t n, int channels) {
    enum { BOXES = 150 };
    struct raster whole;
    struct err e = { "" };
    int height, width;
    if (image_decode(file, n, channels, NULL, &whole, &e) != ST_OK)
        fail_msg("%s", e.msg);
    assert_int_equal(image_size(file, n, &height, &width, &e), ST_OK);
    assert_true(height == whole.height && width == whole.width);
    const struct data_resized_crop crop = { 0.005, 1, 0.2, 5 };
    for (int i = 0; i < BOXES; i++)
        assert_part(file, n, channels, &whole, image_crop_draw(&crop, 5, i, height, width));
    assert_part(file, n, channels, &whole, (struct image_box){ 0, 0, height, width });
    assert_part(file, n, channels, &whole, (struct image_box){ height - 1, width - 1, 1, 1 });
    free(whole.data);
}

static void a_part_of_a_file_has_the_pixels_of_the_whole_image(void **state) {
    (void)state;
    static const int samplings[][2] = { { 1, 1 }, { 2, 1 }, { 2, 2 }, { 1, 2 }, { 4, 1 } };
    for (size_t s = 0; s < sizeof samplings / sizeof *samplings; s++)
        for (int kind = 0; kind < 4; kind++) {
            unsigned long n;
            unsigned char *file = jpeg_make(101, 151, samplings[s][0], samplings[s][1], kind % 2, &n);
            assert_parts(file, n, kind / 2 ? 1 : 3);
            free(file);
        }
    struct bytes b;
    recorded("rgb.png", &b);
    assert_parts((const unsigned char *)b.data, b.len, 3);
    bytes_done(&b);
}

/* ---- draws ---- */

static void parts_are_drawn_over_the_whole_range(void **state) {
    (void)state;
    enum { DRAWS = 4000, H = 375, W = 500 };
    const struct data_resized_crop crop = { 0.08, 1, 0.75, 4 / 3.0 };
    double area = 0, log_ratio = 0, smallest = 1, largest = 0;
    int corner[2][2] = { { 0 } };
    for (int i = 0; i < DRAWS; i++) {
        const struct image_box b = image_crop_draw(&crop, 3, i, H, W);
        assert_true(b.top >= 0 && b.left >= 0 && b.height >= 1 && b.width >= 1);
        assert_true(b.top + b.height <= H && b.left + b.width <= W);
        const double part = (double)b.height * b.width / (H * W), ratio = (double)b.width / b.height;
        assert_true(ratio > 0.74 && ratio < 1.35);
        smallest = part < smallest ? part : smallest;
        largest = part > largest ? part : largest;
        area += part / DRAWS;
        log_ratio += log(ratio) / DRAWS;
        corner[2 * b.top + b.height > H][2 * b.left + b.width > W]++;
    }
    assert_true(smallest > 0.075 && smallest < 0.09 && largest > 0.9 && largest <= 1);
    assert_true(fabs(area - 0.435) < 0.015); /* torchvision's: large parts of a wrong ratio do not fit */
    assert_true(fabs(log_ratio) < 0.05);
    for (int i = 0; i < 4; i++)
        assert_in_range(corner[i / 2][i % 2], DRAWS / 4 - 150, DRAWS / 4 + 150);
}

static void changes_of_colors_are_drawn_over_their_range_in_every_order(void **state) {
    (void)state;
    enum { DRAWS = 3000 };
    const struct data_augmentation a = { .brightness = 0.4, .contrast = 1.5, .saturation = 0.1 };
    int orders[27] = { 0 };
    double mean[3] = { 0 };
    for (int i = 0; i < DRAWS; i++) {
        const struct image_color c = image_color_draw(&a, 8, i);
        orders[c.order[0] * 9 + c.order[1] * 3 + c.order[2]]++;
        assert_true(c.factor[IMAGE_BRIGHTNESS] >= 0.6F && c.factor[IMAGE_BRIGHTNESS] <= 1.4F);
        assert_true(c.factor[IMAGE_CONTRAST] >= 0 && c.factor[IMAGE_CONTRAST] <= 2.5F);
        assert_true(c.factor[IMAGE_SATURATION] >= 0.9F && c.factor[IMAGE_SATURATION] <= 1.1F);
        for (int k = 0; k < 3; k++)
            mean[k] += (double)c.factor[k] / DRAWS;
    }
    assert_true(fabs(mean[0] - 1) < 0.02 && fabs(mean[1] - 1.25) < 0.06 && fabs(mean[2] - 1) < 0.01);
    int drawn = 0;
    for (int i = 0; i < 27; i++)
        drawn += orders[i] > DRAWS / 6 - 120 && orders[i] < DRAWS / 6 + 120;
    assert_int_equal(drawn, 6);
}

/* ---- samples ---- */

static void put_recorded(const char *name, const char *from) {
    char path[256];
    struct bytes b;
    struct err e = { "" };
    snprintf(path, sizeof path, "%s/%s", folder, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(dir_make(path, 0755, &e), ST_OK);
    *slash = '/';
    recorded(from, &b);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(b.data, 1, b.len, f), b.len);
    fclose(f);
    bytes_done(&b);
}

#define EVERYTHING                                                                                                     \
    { .flip = true, .resized_crop = { 0.2, 1, 0.75, 4 / 3.0 }, .brightness = 0.4, .contrast = 0.4, .saturation = 0.4 }

static struct source *images_of(struct data_augmentation augment, int size, int resize) {
    struct data_config config = { .kind = &data_images,
                                  .images = { .train = folder,
                                              .validation = folder,
                                              .size = size,
                                              .resize = resize,
                                              .augment = augment,
                                              .normalize = { { 0.4, 0.5, 0.6 }, { 0.2, 0.25, 0.3 }, 3, 3 } } };
    struct source *s = NULL;
    struct err e = { "" };
    if (source_open(&config, &(struct source_options){ .threads = 2 }, &s, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return s;
}

static void a_sample_is_the_same_on_every_rank_and_thread_and_after_a_resume(void **state) {
    (void)state;
    enum { STEPS = 12, MICRO = 2, K = 4, SIDE = 12, ALL = MICRO * 3 * SIDE * SIDE };
    static float record[STEPS][K][ALL];
    static const int all[] = { 0, 1, 2, 3 }, some[] = { 2, 3 };
    struct err e = { "" };
    CLEANUP(source_closep) struct source *s = images_of((struct data_augmentation)EVERYTHING, SIDE, 14);
    struct loader_config config = { .source = s,
                                    .seed = 4,
                                    .global_batch = K * MICRO,
                                    .micro_batch = MICRO,
                                    .micro_batches = all,
                                    .n_micro_batches = K,
                                    .steps = STEPS,
                                    .threads = 4 };
    CLEANUP(loader_closep) struct loader *one = NULL, *other = NULL;
    struct loader_batch b;
    assert_int_equal(loader_open(&config, &one, &e), ST_OK);
    for (int step = 0; step < STEPS; step++)
        for (int k = 0; k < K; k++) {
            assert_int_equal(loader_next(one, step, k, &b, &e), ST_OK);
            memcpy(record[step][k], b.of[BATCH_IMAGES], sizeof record[0][0]);
        }
    config.micro_batches = some;
    config.n_micro_batches = 2;
    config.first_step = 5;
    config.first_sample = 5 * config.global_batch;
    config.threads = 1;
    assert_int_equal(loader_open(&config, &other, &e), ST_OK);
    for (int step = 5; step < STEPS; step++)
        for (int k = 2; k < K; k++) {
            assert_int_equal(loader_next(other, step, k, &b, &e), ST_OK);
            assert_memory_equal(b.of[BATCH_IMAGES], record[step][k], sizeof record[0][0]);
        }
    /* Another number of the sample, or another seed, is another picture. */
    assert_memory_not_equal(record[0][0], record[0][1], sizeof record[0][0]);
    float changed[ALL];
    struct batch to = { .of = { [BATCH_IMAGES] = changed } };
    assert_int_equal(source_read(s, SOURCE_TRAIN, 5, 0, MICRO, &to, &e), ST_OK);
    assert_memory_not_equal(changed, record[0][0], sizeof changed);
}

static void validation_shows_the_middle_whatever_training_shows(void **state) {
    (void)state;
    enum { SIDE = 12, N = 3 * SIDE * SIDE };
    struct err e = { "" };
    CLEANUP(source_closep) struct source *changed = images_of((struct data_augmentation)EVERYTHING, SIDE, 14);
    CLEANUP(source_closep) struct source *plain = images_of((struct data_augmentation){ 0 }, SIDE, 14);
    const int64_t n = source_info(plain)->samples[SOURCE_VALIDATION];
    assert_int_equal(n, 3);
    for (int64_t i = 0; i < 2 * n; i++) {
        float a[N], b[N];
        struct batch to_a = { .of = { [BATCH_IMAGES] = a } }, to_b = { .of = { [BATCH_IMAGES] = b } };
        assert_int_equal(source_read(changed, SOURCE_VALIDATION, 1, i, 1, &to_a, &e), ST_OK);
        assert_int_equal(source_read(plain, SOURCE_VALIDATION, 2, i % n, 1, &to_b, &e), ST_OK);
        assert_memory_equal(a, b, sizeof a);
    }
}

/* Without a resized crop, the colours of a sample are those of its crop, black borders included. */
static void colors_are_changed_after_crop_and_flip(void **state) {
    (void)state;
    enum { SIDE = 8, N = SIDE * SIDE };
    const struct image_shape shape = { .height = SIDE, .width = SIDE, .channels = 3 };
    const struct data_augmentation a = { .crop_padding = 3, .flip = true, .contrast = 0.9, .saturation = 0.9 };
    struct image_making m;
    struct err e = { "" };
    uint8_t pixels[N * 3], workspace[N * 3];
    for (int i = 0; i < N * 3; i++)
        pixels[i] = (uint8_t)(40 + i);
    assert_int_equal(image_making_init(&m, &shape, &a, &(struct data_normalization){ .n_mean = 0 }, &e), ST_OK);
    assert_int_equal(image_making_bytes(&m), sizeof workspace);
    for (int sample = 0; sample < 200; sample++) {
        float got[N * 3], shown[N * 3];
        uint8_t bytes[N * 3];
        const struct image_view view = image_view_draw(&a, 7, sample);
        const struct image_color color = image_color_draw(&a, 7, sample);
        image_make(&m, true, 7, sample, pixels, workspace, got);
        image_to_floats(&shape, pixels, view, &m.scale, shown);
        for (int i = 0; i < N; i++)
            for (int c = 0; c < 3; c++)
                bytes[3 * i + c] = (uint8_t)lrintf((shown[c * N + i] + 1) * 127.5F);
        image_color_apply(&color, bytes, N, 3);
        for (int i = 0; i < N; i++)
            for (int c = 0; c < 3; c++)
                assert_int_equal(lrintf((got[c * N + i] + 1) * 127.5F), bytes[3 * i + c]);
    }
}

static void settings_that_cannot_be_are_refused(void **state) {
    (void)state;
    static const struct {
        struct data_augmentation augment;
        struct data_normalization normalize;
        int channels;
        const char *says;
    } table[] = {
        { { .crop_padding = -1 }, { .n_mean = 0 }, 3, "a crop padding of -1" },
        { { .crop_padding = 1, .resized_crop = { 0.1, 1, 1, 1 } }, { .n_mean = 0 }, 3, "not both" },
        { { .resized_crop = { 0, 1, 1, 1 } }, { .n_mean = 0 }, 3, "a part of 0 to 1" },
        { { .resized_crop = { 0.5, 0.4, 1, 1 } }, { .n_mean = 0 }, 3, "a part of 0.5 to 0.4" },
        { { .resized_crop = { 0.5, 1.1, 1, 1 } }, { .n_mean = 0 }, 3, "a part of 0.5 to 1.1" },
        { { .resized_crop = { 0.5, 1, 0, 1 } }, { .n_mean = 0 }, 3, "a ratio of the sides from 0 to 1" },
        { { .resized_crop = { 0.5, 1, 2, 1 } }, { .n_mean = 0 }, 3, "a ratio of the sides from 2 to 1" },
        { { .brightness = -0.1 }, { .n_mean = 0 }, 3, "a change of brightness -0.1" },
        { { .contrast = 101 }, { .n_mean = 0 }, 3, "contrast 101" },
        { { .saturation = 0.1 }, { .n_mean = 0 }, 1, "images of 1 channel have no saturation" },
        { { .flip = true }, { .n_mean = 1, .n_std = 1, .std = { 1 } }, 3, "1 means and 1 standard deviations" },
        { { .flip = true }, { .n_mean = 3, .n_std = 0 }, 3, "3 means and 0 standard deviations" },
        { { .flip = true }, { .n_mean = 1, .n_std = 1 }, 1, "a standard deviation of 0" },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct image_shape shape = { .height = 2, .width = 2, .channels = table[i].channels };
        struct image_making m;
        struct err e = { "" };
        assert_int_equal(image_making_init(&m, &shape, &table[i].augment, &table[i].normalize, &e),
                         ST_INVALID_ARGUMENT);
        if (!strstr(e.msg, table[i].says))
            fail_msg("case %zu says \"%s\"", i, e.msg);
    }
}

int main(void) {
    struct bytes text;
    if (!mkdtemp(folder))
        return 1;
    recorded("augment.json", &text);
    expected = json_loadb(text.data, text.len, 0, NULL);
    bytes_done(&text);
    put_recorded("ant/1.png", "rgb.png");
    put_recorded("bee/1.jpg", "colour.jpg");
    put_recorded("bee/2.jpg", "progressive.jpg");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_cut_out_and_scaled_as_torchvision_does),
        cmocka_unit_test(middles_are_cut_out_as_torchvision_does),
        cmocka_unit_test(colors_are_changed_as_torchvision_does),
        cmocka_unit_test(values_are_normalised_as_torchvision_does),
        cmocka_unit_test(an_image_that_no_part_fits_shows_its_middle_as_in_torchvision),
        cmocka_unit_test(a_part_of_a_file_has_the_pixels_of_the_whole_image),
        cmocka_unit_test(parts_are_drawn_over_the_whole_range),
        cmocka_unit_test(changes_of_colors_are_drawn_over_their_range_in_every_order),
        cmocka_unit_test(a_sample_is_the_same_on_every_rank_and_thread_and_after_a_resume),
        cmocka_unit_test(validation_shows_the_middle_whatever_training_shows),
        cmocka_unit_test(colors_are_changed_after_crop_and_flip),
        cmocka_unit_test(settings_that_cannot_be_are_refused),
    };
    int failed = expected ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
    struct err e;
    status_t st = dir_remove(folder, &e);
    json_decref(expected);
    return failed || st != ST_OK;
}
