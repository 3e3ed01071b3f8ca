/* Images: files against recorded values of Pillow (images/record.py), folders, idx files. */
#include "base/cleanup.h"
#include "base/file.h"
#include "engine/data/decode.h"
#include "engine/data/image_view.h"
#include "engine/data/loader.h"
#include "engine/data/resize.h"
#include "engine/data/sampler.h"
#include "engine/data/source.h"
#include "tests/engine/image_files.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jpeglib.h>

#include <cmocka.h>

static void recorded(const char *name, struct bytes *ret) {
    char path[512];
    const char *root = getenv("TRAINYARD_SOURCE");
    struct err e = { "" };
    snprintf(path, sizeof path, "%s/tests/engine/images/%s", root ? root : ".", name);
    bytes_init(ret, 1 << 20);
    if (file_read(path, ret, &e) != ST_OK)
        fail_msg("%s", e.msg);
}

static const char *put_recorded(const char *name, const char *from) {
    struct bytes b;
    recorded(from, &b);
    const char *path = put(name, b.data, b.len);
    bytes_done(&b);
    return path;
}

static const char *in(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void same_bytes(const char *file, const char *what, const uint8_t *got, size_t n, const char *hex) {
    assert_int_equal(strlen(hex), 2 * n);
    for (size_t i = 0; i < n; i++) {
        unsigned want;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &want), 1);
        if (want != got[i])
            fail_msg("%s: byte %zu %s is %u, recorded %u", file, i, what, got[i], want);
    }
}

static void files_are_read_and_resized_as_pillow_does(void **state) {
    (void)state;
    enum { SIZE = 16 };
    struct bytes text;
    recorded("expected.json", &text);
    CLEANUP(json_decrefp) json_t *expected = json_loadb(text.data, text.len, 0, NULL);
    bytes_done(&text);
    assert_true(json_object_size(expected) >= 12);
    const char *file;
    json_t *kinds;
    json_object_foreach(expected, file, kinds) {
        struct bytes b;
        recorded(file, &b);
        for (int channels = 1; channels <= 3; channels += 2) {
            json_t *want = json_object_get(kinds, channels == 1 ? "1" : "3");
            struct raster r;
            struct err e = { "" };
            if (image_decode(b.data, b.len, channels, NULL, &r, &e) != ST_OK)
                fail_msg("%s: %s", file, e.msg);
            assert_int_equal(r.width, json_integer_value(json_object_get(want, "width")));
            assert_int_equal(r.height, json_integer_value(json_object_get(want, "height")));
            same_bytes(file, "decoded", r.data, (size_t)(r.width * r.height * channels),
                       json_string_value(json_object_get(want, "pixels")));
            uint8_t small[SIZE * SIZE * 3];
            assert_int_equal(raster_fit(&r, SIZE, SIZE, small, &e), ST_OK);
            same_bytes(file, "resized", small, (size_t)(SIZE * SIZE * channels),
                       json_string_value(json_object_get(want, "fit")));
            free(r.data);
        }
        bytes_done(&b);
    }
}

/* The definition: a number for each channel, row and column, 0 outside of the picture. */
static float number_at(const struct image_shape *s, const uint8_t *pixels, struct image_view view, int c, int y,
                       int x) {
    const int row = y + view.down, column = (view.flip ? s->width - 1 - x : x) + view.right;
    const bool inside = row >= 0 && row < s->height && column >= 0 && column < s->width;
    return (float)(inside ? pixels[(row * s->width + column) * s->channels + c] : 0) * 2 - 1;
}

static void shifted_and_flipped_pictures_have_the_numbers_of_their_definition(void **state) {
    (void)state;
    enum { H = 3, W = 5, SHIFT = 7 };
    uint8_t pixels[H * W * 3];
    float numbers[H * W * 3];
    const struct image_scale scale = { .scale = { 2, 2, 2 }, .shift = { -1, -1, -1 } };
    for (int i = 0; i < H * W * 3; i++)
        pixels[i] = (uint8_t)(i + 1);
    for (int channels = 1; channels <= 3; channels += 2)
        for (int flip = 0; flip <= 1; flip++)
            for (int down = -SHIFT; down <= SHIFT; down++)
                for (int right = -SHIFT; right <= SHIFT; right++) {
                    const struct image_shape shape = { .height = H, .width = W, .channels = channels };
                    const struct image_view view = { .down = down, .right = right, .flip = flip };
                    image_to_floats(&shape, pixels, view, &scale, numbers);
                    for (int i = 0; i < channels * H * W; i++)
                        if (numbers[i] != number_at(&shape, pixels, view, i / (H * W), i / W % H, i % W))
                            fail_msg("flip %d, %d down, %d right: number %d is %g", flip, down, right, i,
                                     (double)numbers[i]);
                }
}

static void an_image_whose_shorter_side_fits_is_only_cropped(void **state) {
    (void)state;
    struct bytes b;
    struct raster r;
    struct err e = { "" };
    recorded("rgb.png", &b); /* 37 x 24 */
    assert_int_equal(image_decode(b.data, b.len, 3, NULL, &r, &e), ST_OK);
    bytes_done(&b);
    uint8_t middle[24 * 24 * 3];
    assert_int_equal(raster_fit(&r, 24, 24, middle, &e), ST_OK);
    for (int y = 0; y < 24; y++)
        assert_memory_equal(middle + y * 24 * 3, r.data + (y * 37 + (37 - 24) / 2) * 3, 24 * 3);
    free(r.data);
}

/* Every file that is truncated at any byte gives an error and no image (except for the end marker of a JPEG, which is
 * its last two bytes, and the checksum of the last chunk of a PNG). */
static void a_cut_file_is_a_sentence_wherever_it_is_cut(void **state) {
    (void)state;
    static const char *const files[] = { "rgb.png", "palette.png", "colour.jpg", "progressive.jpg", "grey.jpg" };
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        struct bytes b;
        recorded(files[f], &b);
        for (size_t n = 0; n + 2 < b.len; n++) {
            CLEANUP(freep) char *cut = malloc(n + 1); /* the sanitizer detects a read past its end */
            memcpy(cut, b.data, n);
            struct raster r;
            struct err e = { "" };
            if (image_decode(cut, n, 3, NULL, &r, &e) != ST_INVALID_ARGUMENT || strlen(e.msg) < 10)
                fail_msg("%s cut after %zu of %zu bytes: %s", files[f], n, b.len, e.msg);
        }
        bytes_done(&b);
    }
}

/* A PNG whose header claims 100,000 pixels a side is refused before memory is taken for it. */
static void an_image_that_is_too_large_is_refused(void **state) {
    (void)state;
    struct bytes b;
    struct raster r;
    struct err e = { "" };
    recorded("rgb.png", &b);
    b.data[17] = 1; /* width 65,536 + 37 */
    assert_int_equal(image_decode(b.data, b.len, 3, NULL, &r, &e), ST_INVALID_ARGUMENT);
    bytes_done(&b);
    assert_int_equal(raster_allocate(&r, IMAGE_SIDE + 1, 1, 3, &e), ST_INVALID_ARGUMENT);
    assert_int_equal(raster_allocate(&r, IMAGE_SIDE, IMAGE_SIDE, 3, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "16384 x 16384 pixels"));
}

/* 128 scans of 16 x 16 pixels, each of one coefficient and one bit of it. */
static void a_progressive_image_with_too_many_scans_is_refused(void **state) {
    (void)state;
    jpeg_scan_info scans[128] = { { 0 } };
    for (int i = 0; i < 128; i++)
        scans[i] = (jpeg_scan_info){ .comps_in_scan = 1, .Ss = i % 64, .Se = i % 64, .Ah = i / 64, .Al = 1 - i / 64 };
    for (int few = 0; few < 2; few++) {
        struct jpeg_compress_struct c;
        struct jpeg_error_mgr errors;
        unsigned char *file = NULL, row[16];
        unsigned long n = 0;
        c.err = jpeg_std_error(&errors);
        jpeg_create_compress(&c);
        jpeg_mem_dest(&c, &file, &n);
        c.image_width = c.image_height = 16;
        c.input_components = 1;
        c.in_color_space = JCS_GRAYSCALE;
        jpeg_set_defaults(&c);
        c.scan_info = scans;
        c.num_scans = few ? 64 : 128;
        jpeg_start_compress(&c, TRUE);
        for (int y = 0; y < 16; y++) {
            JSAMPROW line = memset(row, 9 * y, sizeof row);
            jpeg_write_scanlines(&c, &line, 1);
        }
        jpeg_finish_compress(&c);
        jpeg_destroy_compress(&c);
        struct raster r;
        struct err e = { "" };
        status_t st = image_decode(file, n, 1, NULL, &r, &e);
        if (few && st == ST_OK)
            free(r.data);
        assert_string_equal(e.msg, few ? "" : "it is not a complete JPEG: more than 100 scans");
        free(file);
    }
}

/* --- folders ---*/

static status_t open_images(struct data_images images, struct source **ret, struct err *e) {
    struct data_config config = { .kind = &data_images, .images = images };
    return source_open(&config, &(struct source_options){ .threads = 2 }, ret, e);
}

static struct source *images_of(struct data_images images) {
    struct source *s = NULL;
    struct err e = { "" };
    if (open_images(images, &s, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return s;
}

static void a_folder_a_class_in_the_order_of_names(void **state) {
    (void)state;
    struct err e = { "" };
    put_recorded("set/zebra/1.png", "rgb.png");
    put_recorded("set/zebra/2.JPG", "colour.jpg");
    put_recorded("set/ant/x.jpeg", "progressive.jpg");
    put_recorded("set/Bee/1.png", "grey.png");
    put("set/zebra/notes.txt", "no image", 8);
    put("set/zebra/.hidden.png", "no image", 8);
    put("set/readme.png", "in no class", 11);
    CLEANUP(source_closep) struct source *s = images_of((struct data_images){ .train = in("set"), .size = 8 });
    const struct source_info *info = source_info(s);
    assert_int_equal(info->classes, 3); /* Bee, ant, zebra */
    assert_int_equal(info->samples[SOURCE_TRAIN], 4);
    assert_int_equal(info->samples[SOURCE_VALIDATION], 0);
    assert_int_equal(source_elements(s, BATCH_IMAGES), 3 * 8 * 8);
    assert_int_equal(source_elements(s, BATCH_LABELS), 1);
    assert_int_equal(source_elements(s, BATCH_TOKENS), 0);
    float images[8][3 * 8 * 8];
    int32_t labels[8], counts[3] = { 0 };
    struct batch to = { .of = { [BATCH_IMAGES] = images, [BATCH_LABELS] = labels } };
    assert_int_equal(source_read(s, SOURCE_TRAIN, 1, 0, 8, &to, &e), ST_OK); /* two epochs */
    for (int b = 0; b < 8; b++)
        counts[labels[b]]++;
    assert_int_equal(counts[0], 2);
    assert_int_equal(counts[1], 2);
    assert_int_equal(counts[2], 4);
    for (size_t i = 0; i < sizeof images / sizeof(float); i++)
        assert_true(images[i / 192][i % 192] >= -1 && images[i / 192][i % 192] <= 1);
    /* The grey image in three equal planes: png_decode and raster_fit give the result of Pillow at 8 x 8. */
    struct bytes b;
    struct raster r;
    uint8_t small[8 * 8 * 3];
    recorded("grey.png", &b);
    assert_int_equal(image_decode(b.data, b.len, 3, NULL, &r, &e), ST_OK);
    assert_int_equal(raster_fit(&r, 8, 8, small, &e), ST_OK);
    free(r.data);
    bytes_done(&b);
    for (int n = 0; n < 8; n++)
        for (int c = 0; labels[n] == 0 && c < 3; c++)
            for (int i = 0; i < 64; i++)
                assert_true(fabsf(images[n][c * 64 + i] - ((float)small[3 * i + c] / 127.5f - 1)) < 1e-6f);
    assert_int_equal(source_read(s, SOURCE_VALIDATION, 1, 0, 1, &to, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "data: there are no validation samples");
}

static void wrong_folders_and_images_are_one_sentence_with_the_name(void **state) {
    (void)state;
    struct bytes b;
    recorded("rgb.png", &b);
    put("corrupt/a/1.png", b.data, b.len);
    put("corrupt/a/2.png", b.data, b.len / 2);
    bytes_done(&b);
    put("text/a/1.png", "hello, I am no image", 20);
    put("bare/1.png", "x", 1);
    put("hollow/a/1.txt", "x", 1);
    put_recorded("good/a/1.png", "rgb.png");
    put_recorded("more/a/1.png", "rgb.png");
    put_recorded("more/b/1.png", "rgb.png");
    assert_int_equal(truncate(put("vast/a/1.png", "\x89PNG", 4), (off_t)IMAGE_FILE_BYTES + 1), 0);
    static char paths[8][64];
    static const char *const names[] = { "corrupt", "text", "bare", "hollow", "nowhere", "good", "more", "vast" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        snprintf(paths[i], sizeof paths[i], "%s/%s", folder, names[i]);
    struct {
        struct data_images images;
        status_t status;
        const char *says;
    } table[] = {
        { { .train = paths[0] }, ST_INVALID_ARGUMENT, "corrupt/a/2.png' cannot be read: it is not a complete PNG" },
        { { .train = paths[1] }, ST_INVALID_ARGUMENT, "text/a/1.png' cannot be read: it begins neither as a PNG" },
        { { .train = paths[2] }, ST_NOT_FOUND, "bare' has no folder of images" },
        { { .train = paths[3] }, ST_INVALID_ARGUMENT, "hollow/a' is a class without a PNG or JPEG file" },
        { { .train = paths[4] }, ST_NOT_FOUND, "nowhere': No such file" },
        { { .train = paths[5], .validation = paths[6] },
          ST_INVALID_ARGUMENT,
          "more/b' is a class that the training data does not have" },
        { { .train = paths[7] }, ST_INVALID_ARGUMENT, "vast/a/1.png' has 268435457 bytes; at most 268435456" },
        { { .train = paths[5], .channels = 2 }, ST_INVALID_ARGUMENT, "images of 2 channels" },
        { { .train = paths[5], .size = 9000 }, ST_INVALID_ARGUMENT, "an image side of 9000" },
        { { .train = paths[5], .validation_fraction = 1 }, ST_INVALID_ARGUMENT, "a validation fraction of 1" },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct source *s = NULL;
        struct err e = { "" };
        assert_int_equal(open_images(table[i].images, &s, &e), table[i].status);
        if (!strstr(e.msg, table[i].says))
            fail_msg("case %zu says \"%s\"", i, e.msg);
    }
}

/* --data-root admits a folder: a link in it must not open another. */
static void a_link_out_of_the_folder_is_refused_and_one_within_is_followed(void **state) {
    (void)state;
    struct err e = { "" };
    char path[256], target[256];
    put_recorded("secret/a/1.png", "rgb.png");
    put_recorded("linked/a/1.png", "rgb.png");
    snprintf(path, sizeof path, "%s/linked/b", folder);
    assert_int_equal(symlink("a", path), 0);
    snprintf(path, sizeof path, "%s/linked/a/2.png", folder);
    assert_int_equal(symlink("1.png", path), 0);
    struct source *s = images_of((struct data_images){ .train = in("linked"), .size = 4 });
    assert_int_equal(source_info(s)->samples[SOURCE_TRAIN], 4);
    assert_int_equal(source_info(s)->classes, 2);
    source_close(s);

    struct {
        const char *link, *to;
        bool absolute;
    } out[] = { { "linked/a/3.png", "../../secret/a/1.png", false },
                { "linked/a/3.png", "secret/a/1.png", true },
                { "linked/c", "../secret/a", false },
                { "linked/c", "secret/a", true } };
    for (size_t i = 0; i < sizeof out / sizeof *out; i++) {
        snprintf(target, sizeof target, "%s%s%s", out[i].absolute ? folder : "", out[i].absolute ? "/" : "", out[i].to);
        snprintf(path, sizeof path, "%s/%s", folder, out[i].link);
        assert_int_equal(symlink(target, path), 0);
        assert_int_equal(open_images((struct data_images){ .train = in("linked"), .size = 4 }, &s, &e),
                         ST_INVALID_ARGUMENT);
        if (!strstr(e.msg, out[i].link) || !strstr(e.msg, "leads out of the folder that it is in"))
            fail_msg("link %zu to %s says \"%s\"", i, target, e.msg);
        assert_int_equal(unlink(path), 0);
    }
}

/* A set beyond the cache is decoded while it is read: 512 MiB hold 10 pictures of 4,096 pixels a side and 3 channels.
 */
static void a_set_that_fits_no_cache_is_decoded_when_it_is_read(void **state) {
    (void)state;
    struct err e = { "" };
    enum { SIDE = 4096, FILES = 12 };
    for (int i = 0; i < FILES; i++) {
        char name[32];
        snprintf(name, sizeof name, "large/%c/%d.png", 'a' + i % 2, i);
        put_recorded(name, "tiny.png");
    }
    struct data_images small = { .train = in("large"), .size = 4 }, large = { .train = in("large"), .size = SIDE };
    CLEANUP(source_closep) struct source *s = images_of(large), *cached = images_of(small);
    assert_int_equal(source_info(cached)->reading_threads, 1);
    assert_true(source_info(s)->reading_threads > 1);
    struct loader_config config = { .source = cached, .global_batch = 8, .micro_batch = 8 };
    assert_int_equal(loader_threads(&config), 1); /* cached, and few numbers */
    config.source = s;
    assert_int_equal(loader_threads(&config), LOADER_THREADS);
    CLEANUP(freep) float *image = malloc(sizeof *image * SIDE * SIDE * 3);
    int32_t label;
    struct batch to = { .of = { [BATCH_IMAGES] = image, [BATCH_LABELS] = &label } };
    assert_int_equal(source_read(s, SOURCE_TRAIN, 1, 0, 1, &to, &e), ST_OK);
    assert_true(image[0] > -1);
    put("large/a/0.png", "broken", 6); /* the first of all files */
    int sample = 0;
    while (sampler_index(SOURCE_TRAIN, 1, FILES, sample) != 0)
        sample++;
    assert_int_equal(source_read(s, SOURCE_TRAIN, 1, sample, 1, &to, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "large/a/0.png' cannot be read"));
}

static void a_fraction_for_validation_is_taken_out_of_training(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++) {
        char name[32];
        snprintf(name, sizeof name, "split/%c/%d.png", 'a' + i % 2, i);
        put_recorded(name, i % 2 ? "rgb.png" : "grey.png");
    }
    CLEANUP(source_closep)
    struct source *s = images_of((struct data_images){ .train = in("split"), .validation_fraction = 0.2, .size = 4 });
    assert_int_equal(source_info(s)->samples[SOURCE_TRAIN], 16);
    assert_int_equal(source_info(s)->samples[SOURCE_VALIDATION], 4);
    int32_t labels[16];
    struct batch to = { .of = { [BATCH_LABELS] = labels } };
    struct err e;
    int ones = 0;
    assert_int_equal(source_read(s, SOURCE_VALIDATION, 1, 0, 4, &to, &e), ST_OK);
    for (int i = 0; i < 4; i++)
        ones += labels[i];
    assert_int_equal(ones, 2); /* both classes, equally often */
}

static void the_digest_is_of_names_labels_and_contents(void **state) {
    (void)state;
    char first[65];
    put_recorded("digest/a/1.png", "rgb.png");
    put_recorded("digest/b/1.png", "grey.png");
    struct source *s = images_of((struct data_images){ .train = in("digest"), .size = 4 });
    snprintf(first, sizeof first, "%s", source_info(s)->sha256);
    source_close(s);
    s = images_of((struct data_images){ .train = in("digest"), .size = 4 });
    assert_string_equal(source_info(s)->sha256, first);
    source_close(s);
    put_recorded("digest/b/1.png", "alpha.png");
    s = images_of((struct data_images){ .train = in("digest"), .size = 4 });
    assert_string_not_equal(source_info(s)->sha256, first);
    source_close(s);
}

/* --- idx ---*/

static void idx_files_hold_images_and_labels(void **state) {
    (void)state;
    struct err e = { "" };
    CLEANUP(source_closep)
    struct source *s = idx_of(idx_images("i", 10, 3, 4), idx_labels("l", 10, 5), (struct data_augmentation){ 0 });
    assert_int_equal(source_info(s)->classes, 5);
    const struct source_input *input = source_find(s, BATCH_IMAGES);
    assert_int_equal(input->n_dims, 3);
    assert_int_equal(input->dim[0], 1);
    assert_int_equal(input->dim[1], 3);
    assert_int_equal(input->dim[2], 4);
    float images[10][12];
    int32_t labels[10], seen = 0;
    struct batch to = { .of = { [BATCH_IMAGES] = images, [BATCH_LABELS] = labels } };
    assert_int_equal(source_read(s, SOURCE_TRAIN, 1, 0, 10, &to, &e), ST_OK);
    for (int b = 0; b < 10; b++) {
        int which = (int)roundf((images[b][0] + 1) * 127.5f) / 12;
        assert_int_equal(labels[b], which % 5);
        seen |= 1 << which;
        for (int i = 0; i < 12; i++)
            assert_int_equal(roundf((images[b][i] + 1) * 127.5f), 1 + which * 12 + i);
    }
    assert_int_equal(seen, (1 << 10) - 1);
}

static void broken_idx_files_are_one_sentence_with_file_and_place(void **state) {
    (void)state;
    static char images[128], labels[128], other[128], fewer[128], magic[128], cut[128], small[128], nine[128];
    snprintf(images, sizeof images, "%s", idx_images("images", 10, 3, 4));
    snprintf(labels, sizeof labels, "%s", idx_labels("labels", 10, 5));
    snprintf(other, sizeof other, "%s", idx_images("other", 10, 4, 3));
    snprintf(fewer, sizeof fewer, "%s", idx_labels("fewer", 9, 5));
    snprintf(nine, sizeof nine, "%s", idx_labels("nine", 10, 9));
    snprintf(magic, sizeof magic, "%s", put("magic", "\0\0\x0d\3\0\0\0\0", 8));
    snprintf(small, sizeof small, "%s", put("small", "\0\0\x08", 3));
    snprintf(cut, sizeof cut, "%s", idx_images("cut", 10, 3, 4));
    assert_int_equal(truncate(cut, 16 + 119), 0);
    struct {
        const char *images, *labels, *validation_images, *validation_labels, *says;
    } table[] = {
        { magic, labels, NULL, NULL, "magic' has the magic 00000d03 at byte 0" },
        { labels, labels, NULL, NULL, "labels' has the magic 00000801 at byte 0" },
        { small, labels, NULL, NULL, "small' ends at byte 3" },
        { cut, labels, NULL, NULL, "cut' needs 136 bytes by its header and has 135" },
        { images, fewer, NULL, NULL, "fewer' has 9 labels for 10 images" },
        { images, NULL, NULL, NULL, "No such file" },
        { images, labels, other, labels, "other' has images of 3 x 4, training has 4 x 3" },
        { images, labels, images, nine, "nine' has the label 8, training has none above 4" },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct data_config config = { .kind = &data_idx,
                                      .idx = { .train_images = table[i].images,
                                               .train_labels = table[i].labels,
                                               .validation_images = table[i].validation_images,
                                               .validation_labels = table[i].validation_labels } };
        struct source *s = NULL;
        struct err e = { "" };
        assert_int_not_equal(source_open(&config, &(struct source_options){ 0 }, &s, &e), ST_OK);
        if (!strstr(e.msg, table[i].says))
            fail_msg("case %zu says \"%s\"", i, e.msg);
    }
}

static void assert_idx_refused(const char *images, const char *labels, struct data_augmentation augment,
                               const char *says) {
    struct data_config config = { .kind = &data_idx,
                                  .idx = { .train_images = images, .train_labels = labels, .augment = augment } };
    struct source *s = NULL;
    struct err e = { "" };
    assert_int_equal(source_open(&config, &(struct source_options){ 0 }, &s, &e), ST_INVALID_ARGUMENT);
    if (!strstr(e.msg, says))
        fail_msg("'%s', and not '%s'", e.msg, says);
}

static void an_idx_file_whose_head_cannot_be_is_refused(void **state) {
    (void)state;
    static const struct {
        uint8_t bytes[24];
        size_t n;
        const char *says;
    } table[] = {
        { { 1, 0, 8, 3 }, 24, "has the magic 01000803 at byte 0" },
        { { 0, 1, 8, 3 }, 24, "has the magic 00010803 at byte 0" },
        { { 0, 0, 8, 5 }, 24, "has the magic 00000805 at byte 0" },
        { { 0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2 }, 12, "ends at byte 12, in its dimensions" },
        { { 0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1 }, 24, "has the dimension 0 at byte 8" },
        { { 0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0 }, 24, "has the dimension 65536 at byte 12" },
        { { 0, 0, 8, 4, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2 }, 22, "has images of 2 channels: 1 and 3" },
        { { 0, 0, 8, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1 }, 16, "has no images" },
    };
    static char images[128], one[128], none[128];
    const struct data_augmentation plain = { 0 };
    snprintf(one, sizeof one, "%s", idx_labels("one-label", 1, 1));
    snprintf(none, sizeof none, "%s", idx_labels("no-label", 0, 1));
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        snprintf(images, sizeof images, "%s", put("head", table[i].bytes, table[i].n));
        assert_idx_refused(images, i + 1 == sizeof table / sizeof *table ? none : one, plain, table[i].says);
    }
    snprintf(images, sizeof images, "%s", idx_images("padded", 1, 2, 2));
    assert_idx_refused(images, one, (struct data_augmentation){ .crop_padding = -1 }, "a crop padding of -1");
    assert_idx_refused(images, one, (struct data_augmentation){ .crop_padding = 8193 }, "a crop padding of 8193");
    assert_idx_refused(images, one, (struct data_augmentation){ .mixup = -0.1 }, "a mixup of -0.1");
    assert_idx_refused(images, one, (struct data_augmentation){ .mixup = 101 }, "a mixup of 101");
}

static void an_image_has_at_least_one_pixel_and_not_too_many(void **state) {
    (void)state;
    static const int64_t sizes[][2] = {
        { 0, 1 }, { 1, 0 }, { IMAGE_SIDE + 1, 1 }, { 1, IMAGE_SIDE + 1 }, { IMAGE_SIDE, IMAGE_PIXELS / IMAGE_SIDE + 1 }
    };
    struct raster r = { 0 };
    struct err e;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_int_equal(raster_allocate(&r, sizes[i][0], sizes[i][1], 3, &e), ST_INVALID_ARGUMENT);
    assert_int_equal(raster_allocate(&r, 1, IMAGE_SIDE, 3, &e), ST_OK);
    free(r.data);
}

/* CMYK, as for printers. */
static void a_jpeg_of_four_colours_is_refused(void **state) {
    (void)state;
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    unsigned char *file = NULL, pixel[4] = { 1, 2, 3, 4 }, *row = pixel;
    unsigned long n = 0;
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &file, &n);
    c.image_width = c.image_height = 1;
    c.input_components = 4;
    c.in_color_space = JCS_CMYK;
    jpeg_set_defaults(&c);
    jpeg_start_compress(&c, TRUE);
    jpeg_write_scanlines(&c, &row, 1);
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    struct raster r = { 0 };
    struct err e;
    assert_int_equal(image_decode(file, n, 3, NULL, &r, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "it is a JPEG of 4 colour components; 1 and 3 are read");
    free(file);
}

int main(void) {
    if (!mkdtemp(folder))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_read_and_resized_as_pillow_does),
        cmocka_unit_test(shifted_and_flipped_pictures_have_the_numbers_of_their_definition),
        cmocka_unit_test(an_image_whose_shorter_side_fits_is_only_cropped),
        cmocka_unit_test(a_cut_file_is_a_sentence_wherever_it_is_cut),
        cmocka_unit_test(an_image_that_is_too_large_is_refused),
        cmocka_unit_test(a_progressive_image_with_too_many_scans_is_refused),
        cmocka_unit_test(a_folder_a_class_in_the_order_of_names),
        cmocka_unit_test(wrong_folders_and_images_are_one_sentence_with_the_name),
        cmocka_unit_test(a_link_out_of_the_folder_is_refused_and_one_within_is_followed),
        cmocka_unit_test(a_set_that_fits_no_cache_is_decoded_when_it_is_read),
        cmocka_unit_test(a_fraction_for_validation_is_taken_out_of_training),
        cmocka_unit_test(the_digest_is_of_names_labels_and_contents),
        cmocka_unit_test(idx_files_hold_images_and_labels),
        cmocka_unit_test(broken_idx_files_are_one_sentence_with_file_and_place),
        cmocka_unit_test(an_idx_file_whose_head_cannot_be_is_refused),
        cmocka_unit_test(an_image_has_at_least_one_pixel_and_not_too_many),
        cmocka_unit_test(a_jpeg_of_four_colours_is_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    struct err e;
    status_t st = dir_remove(folder, &e);
    return failed || st != ST_OK;
}
