/* Images that are no folder: lists of files give the samples of the folder, and tar archives give their samples in
 * order. Archives are written by libarchive, and what is wrong with one is a sentence. */
#include "base/cleanup.h"
#include "base/file.h"
#include "engine/data/image_tar.h"
#include "engine/data/sampler.h"
#include "engine/data/source.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/ty-lists-XXXXXX";

enum { SIDE = 4, NUMBERS = 3 * SIDE * SIDE };

static void recorded(const char *name, struct bytes *ret) {
    char path[512];
    const char *root = getenv("TRAINYARD_SOURCE");
    struct err e = { "" };
    snprintf(path, sizeof path, "%s/tests/engine/images/%s", root ? root : ".", name);
    bytes_init(ret, 1 << 20);
    if (file_read(path, ret, &e) != ST_OK)
        fail_msg("%s", e.msg);
}

/* A path in the folder, whose folders exist. */
static char *in(const char *name) {
    struct err e = { "" };
    char *path = malloc(256);
    snprintf(path, 256, "%s/%s", folder, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(dir_make(path, 0755, &e), ST_OK);
    *slash = '/';
    return path;
}

static void put(const char *name, const void *data, size_t n) {
    CLEANUP(freep) char *path = in(name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

static void put_recorded(const char *name, const char *from) {
    struct bytes b;
    recorded(from, &b);
    put(name, b.data, b.len);
    bytes_done(&b);
}

static struct source *source_must(const struct data_images *images) {
    struct data_config config = { .kind = &data_images, .images = *images };
    config.images.size = SIDE;
    struct source *s = NULL;
    struct err e = { "" };
    if (source_open(&config, &(struct source_options){ .threads = 2 }, &s, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return s;
}

static void assert_refused(const struct data_images *images, const char *says) {
    struct data_config config = { .kind = &data_images, .images = *images };
    config.images.size = SIDE;
    struct source *s = NULL;
    struct err e = { "" };
    assert_int_equal(source_open(&config, &(struct source_options){ .threads = 1 }, &s, &e), ST_INVALID_ARGUMENT);
    if (!strstr(e.msg, says))
        fail_msg("says \"%s\", not \"%s\"", e.msg, says);
}

static void read_one(const struct source *s, enum source_split split, int64_t i, float image[NUMBERS], int32_t *label) {
    struct err e = { "" };
    struct batch to = { .of = { [BATCH_IMAGES] = image, [BATCH_LABELS] = label } };
    if (source_read(s, split, 3, i, 1, &to, &e) != ST_OK)
        fail_msg("%s", e.msg);
}

static void assert_same_samples(const struct source *a, const struct source *b) {
    assert_string_equal(source_info(a)->sha256, source_info(b)->sha256);
    assert_int_equal(source_info(a)->classes, source_info(b)->classes);
    assert_int_equal(source_info(a)->samples[SOURCE_TRAIN], source_info(b)->samples[SOURCE_TRAIN]);
    for (int64_t i = 0; i < source_info(a)->samples[SOURCE_TRAIN]; i++) {
        float x[NUMBERS], y[NUMBERS];
        int32_t label_x, label_y;
        read_one(a, SOURCE_TRAIN, i, x, &label_x);
        read_one(b, SOURCE_TRAIN, i, y, &label_y);
        assert_int_equal(label_x, label_y);
        assert_memory_equal(x, y, sizeof x);
    }
}

/* The order of whole names is not that of folders: "-" is less than "/". */
static void a_list_has_the_samples_of_the_folder_that_it_lists(void **state) {
    (void)state;
    static const char *const names[] = { "cat-fish/2.png", "cat/b.jpg", "cat/a.JPEG", "ant/1.png", "cat-fish/1.jpg" };
    static const char *const from[] = { "rgb.png", "colour.jpg", "progressive.jpg", "grey.png", "sharp.jpg" };
    struct member_file files[5];
    char name[5][64], copy[5][32];
    for (int i = 0; i < 5; i++) {
        char path[64];
        snprintf(path, sizeof path, "tree/%s", names[i]);
        put_recorded(path, from[i]);
        snprintf(copy[i], sizeof copy[i], "objects/%d", i); /* as in a cache, whose names say nothing */
        put_recorded(copy[i], from[i]);
        snprintf(name[i], sizeof name[i], "s3://bucket/some/train/%s", names[i]);
        files[i] = (struct member_file){ .name = name[i], .path = in(copy[i]) };
    }
    CLEANUP(freep) char *root = in("tree");
    CLEANUP(source_closep)
    struct source *tree = source_must(&(struct data_images){ .train = root }),
                  *list = source_must(&(struct data_images){ .train_files = { files, 5 } });
    assert_int_equal(source_info(tree)->classes, 3);
    assert_same_samples(tree, list);
    assert_true(source_info(list)->memory_bytes >= 5 * 3 * SIDE * SIDE);

    CLEANUP(source_closep)
    struct source *parts = source_must(
                      &(struct data_images){ .train_files = { files, 5 }, .validation_fraction = 0.4 }),
                  *both = source_must(&(struct data_images){ .train = root, .validation_files = { files, 2 } });
    assert_int_equal(source_info(parts)->samples[SOURCE_TRAIN], 3);
    assert_int_equal(source_info(parts)->samples[SOURCE_VALIDATION], 2);
    assert_int_equal(source_info(both)->samples[SOURCE_VALIDATION], 2);
    float image[NUMBERS];
    int32_t label;
    read_one(both, SOURCE_VALIDATION, 0, image, &label); /* cat/b.jpg: "cat" is before "cat-fish" */
    assert_int_equal(label, 1);
    for (int i = 0; i < 5; i++)
        free((char *)(uintptr_t)files[i].path);
}

static void a_list_that_cannot_be_is_one_sentence(void **state) {
    (void)state;
    put_recorded("one/a/1.png", "rgb.png");
    CLEANUP(freep) char *path = in("one/a/1.png"), *root = in("one");
    static const struct {
        const char *name, *says;
    } table[] = {
        { "s3://bucket/train/a/notes.txt", "notes.txt' is no image by its name" },
        { "s3://bucket/1.png", "1.png' is in no folder" },
        { "1.png", "1.png' is in no folder" },
        { "s3://bucket/a//1.png", "1.png' is in no folder" },
        { "s3://bucket/1.tar", "is not a tar archive" },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct member_file file = { .name = table[i].name, .path = path };
        assert_refused(&(struct data_images){ .train_files = { &file, 1 } }, table[i].says);
    }
    const struct member_file other = { .name = "s3://bucket/b/1.png", .path = path };
    assert_refused(&(struct data_images){ .train = root, .validation_files = { &other, 1 } },
                   "b/1.png' is in the folder of a class that the training data do not have");
    const struct member_file mixed[] = { { .name = "/a/1.png", .path = path }, { .name = "/a/1.tar", .path = path } };
    assert_refused(&(struct data_images){ .train_files = { mixed, 2 } }, "1.tar' is no image by its name");
}

/* ---- archives ---- */

struct tar {
    struct archive *to;
    char *path;
};

static struct tar tar_begin(const char *name, int format) {
    struct tar t = { .to = archive_write_new(), .path = in(name) };
    assert_int_equal(archive_write_set_format(t.to, format), ARCHIVE_OK);
    assert_int_equal(archive_write_open_filename(t.to, t.path), ARCHIVE_OK);
    return t;
}

static void tar_put(struct tar *t, const char *name, const void *data, size_t n) {
    struct archive_entry *entry = archive_entry_new();
    archive_entry_set_pathname(entry, name);
    archive_entry_set_size(entry, (la_int64_t)n);
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    assert_true(archive_write_header(t->to, entry) >= ARCHIVE_WARN); /* of a name that is not ASCII */
    assert_int_equal(archive_write_data(t->to, data, n), (la_ssize_t)n);
    archive_entry_free(entry);
}

static void tar_put_recorded(struct tar *t, const char *name, const char *from) {
    struct bytes b;
    recorded(from, &b);
    tar_put(t, name, b.data, b.len);
    bytes_done(&b);
}

static void tar_end(struct tar *t) {
    assert_int_equal(archive_write_close(t->to), ARCHIVE_OK);
    archive_write_free(t->to);
}

/* Names of 20, of 150 and of 1,500 bytes: the last ones are in headers of their own. */
static void archives_of_every_format_give_their_samples_in_order(void **state) {
    (void)state;
    static const int formats[] = { ARCHIVE_FORMAT_TAR_USTAR, ARCHIVE_FORMAT_TAR_GNUTAR,
                                   ARCHIVE_FORMAT_TAR_PAX_INTERCHANGE, ARCHIVE_FORMAT_TAR_PAX_RESTRICTED };
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        char name[32], key[1600], file[1700];
        struct tar t[2];
        for (int i = 0; i < 2; i++) {
            snprintf(name, sizeof name, "format%zu/%d.tar", f, 1 - i); /* the second is read first */
            t[i] = tar_begin(name, formats[f]);
        }
        static const size_t lengths[] = { 5, 150, 1500 };
        for (size_t i = 0; i < (f == 0 ? 2 : 3); i++) {
            memset(key, 'k', lengths[i]);
            snprintf(key + lengths[i], sizeof key - lengths[i], "/%zu", i);
            if (lengths[i] == 150)
                key[80] = '/';
            snprintf(file, sizeof file, "%s.cls", key);
            tar_put(&t[0], file, "2\n", 2);
            snprintf(file, sizeof file, "%s.json", key);
            tar_put(&t[0], file, "{}", 2);
            snprintf(file, sizeof file, "%s.jpg", key);
            tar_put_recorded(&t[0], file, "colour.jpg");
        }
        tar_put_recorded(&t[1], "a.png", "rgb.png");
        tar_put(&t[1], "a.cls", "0", 1);
        tar_put_recorded(&t[1], "b.PNG", "grey.png");
        tar_put(&t[1], "b.cls", " 1 ", 3);
        tar_end(&t[0]);
        tar_end(&t[1]);
        const struct member_file files[] = { { .name = "https://host/1.tar", .path = t[0].path },
                                             { .name = "https://host/0.tar", .path = t[1].path } };
        CLEANUP(source_closep)
        struct source *s = source_must(
            &(struct data_images){ .train_files = { files, 2 }, .validation_files = { files, 2 } });
        const int64_t n = f == 0 ? 4 : 5;
        assert_int_equal(source_info(s)->classes, 3);
        assert_int_equal(source_info(s)->samples[SOURCE_VALIDATION], n);
        for (int64_t i = 0; i < n; i++) {
            float image[NUMBERS];
            int32_t label;
            read_one(s, SOURCE_VALIDATION, i, image, &label);
            assert_int_equal(label, i < 2 ? i : 2);
        }
        free(t[0].path);
        free(t[1].path);
    }
}

static void an_archive_that_cannot_be_is_one_sentence(void **state) {
    (void)state;
    static const struct {
        const char *files[4]; /* of a sample; NULL = the end */
        const char *class, *says;
    } table[] = {
        { { "a.cls" }, "1", "the sample 'a' has no file .jpg, .jpeg or .png" },
        { { "a.png" }, "1", "the sample 'a' has no file .cls" },
        { { "a.png", "b.png", "b.cls" }, "1", "the sample 'a' has no file .cls" },
        { { "a.png", "a.jpg", "a.cls" }, "1", "the sample 'a' has two images" },
        { { "a.png", "a.cls", "a.cls" }, "1", "the sample 'a' has two files .cls" },
        { { "a.png", "a.cls" }, "cat", "a file .cls that is no number from 0" },
        { { "a.png", "a.cls" }, "-1", "a file .cls that is no number from 0" },
        { { "a.png", "a.cls" }, "1 2", "a file .cls that is no number from 0 to 1048575" },
        { { "a.png", "a.cls" }, "1048576", "a file .cls that is no number from 0 to 1048575" },
        { { "a.png", "a.cls" }, "000000000000000000000000000000001", "too long to be a number" },
        { { "a.png", "a.cls" }, "", "a file .cls that is no number from 0" },
        { { ".a.png" }, "1", "has no sample" },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct tar t = tar_begin("wrong/1.tar", ARCHIVE_FORMAT_TAR_USTAR);
        for (int f = 0; f < 4 && table[i].files[f]; f++)
            if (strstr(table[i].files[f], ".cls"))
                tar_put(&t, table[i].files[f], table[i].class, strlen(table[i].class));
            else
                tar_put_recorded(&t, table[i].files[f], "tiny.png");
        tar_end(&t);
        const struct member_file file = { .name = "s3://b/1.tar", .path = t.path };
        assert_refused(&(struct data_images){ .train_files = { &file, 1 } }, table[i].says);
        free(t.path);
    }
}

static void training_and_validation_have_the_same_classes(void **state) {
    (void)state;
    put_recorded("two/a/1.png", "rgb.png");
    put_recorded("two/b/1.png", "rgb.png");
    CLEANUP(freep) char *root = in("two");
    struct tar t[2] = { tar_begin("classes/0.tar", ARCHIVE_FORMAT_TAR_USTAR),
                        tar_begin("classes/1.tar", ARCHIVE_FORMAT_TAR_USTAR) };
    for (int i = 0; i < 2; i++) {
        tar_put_recorded(&t[i], "x.png", "tiny.png");
        tar_put(&t[i], "x.cls", i ? "2" : "1", 1);
        tar_end(&t[i]);
    }
    const struct member_file first = { .name = "0.tar", .path = t[0].path },
                             more = { .name = "1.tar", .path = t[1].path };
    CLEANUP(source_closep)
    struct source *s = source_must(
        &(struct data_images){ .train_files = { &more, 1 }, .validation_files = { &first, 1 } });
    assert_int_equal(source_info(s)->classes, 3);
    assert_refused(&(struct data_images){ .train_files = { &first, 1 }, .validation_files = { &more, 1 } },
                   "the sample 'x' has a class that the training data do not have");
    assert_refused(&(struct data_images){ .train = root, .validation_files = { &first, 1 } },
                   "'0.tar' has numbers of classes, and the training data have names");
    assert_refused(&(struct data_images){ .train_files = { &first, 1 }, .validation = root },
                   "is a class that the training data does not have");
    free(t[0].path);
    free(t[1].path);
}

static status_t count(void *ctx, const char *name, int64_t offset, int64_t bytes, struct err *e) {
    (void)e;
    (*(int *)ctx)++;
    assert_true(*name && offset >= 512 && bytes >= 0);
    return ST_OK;
}

static status_t list_bytes(const uint8_t *data, size_t n, int *ret_files, struct err *e) {
    CLEANUP(freep) char *path = in("bytes.tar");
    put("bytes.tar", data, n);
    struct data_file f;
    assert_int_equal(data_file_open(&f, "tar archive", NULL, path, e), ST_OK);
    *ret_files = 0;
    status_t st = tar_list(&f, count, ret_files, e);
    data_file_close(&f);
    return st;
}

/* Cut at each block, and with each byte of the first header changed: a sentence, or the same files. */
static void a_cut_or_damaged_archive_is_a_sentence(void **state) {
    (void)state;
    struct tar t = tar_begin("whole.tar", ARCHIVE_FORMAT_TAR_PAX_INTERCHANGE);
    tar_put_recorded(&t, "a.png", "tiny.png");
    tar_put(&t, "a.cls", "1", 1);
    tar_put_recorded(&t, "\xc3\xa4.png", "tiny.png"); /* needs a pax header */
    tar_end(&t);
    struct bytes b;
    struct err e = { "" };
    int files;
    bytes_init(&b, 1 << 20);
    assert_int_equal(file_read(t.path, &b, &e), ST_OK);
    assert_int_equal(list_bytes((uint8_t *)b.data, b.len, &files, &e), ST_OK);
    assert_int_equal(files, 3);
    size_t end = b.len;
    while (b.data[end - 1] == '\0') /* the end mark, and what fills the last record */
        end--;
    end = (end + 511) / 512 * 512;
    for (size_t n = 0; n <= end; n += 256) {
        assert_int_equal(list_bytes((uint8_t *)b.data, n, &files, &e), ST_INVALID_ARGUMENT);
        assert_non_null(strstr(e.msg, "bytes.tar': "));
        assert_non_null(strstr(e.msg, "at byte"));
    }
    for (size_t i = 0; i < 512; i++) {
        b.data[i] ^= 0x15;
        if (list_bytes((uint8_t *)b.data, b.len, &files, &e) == ST_OK)
            assert_true(i >= 148 && i < 156); /* a space, a NUL of the sum */
        b.data[i] ^= 0x15;
    }
    bytes_done(&b);
    free(t.path);
}

int main(void) {
    if (!mkdtemp(folder))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_has_the_samples_of_the_folder_that_it_lists),
        cmocka_unit_test(a_list_that_cannot_be_is_one_sentence),
        cmocka_unit_test(archives_of_every_format_give_their_samples_in_order),
        cmocka_unit_test(an_archive_that_cannot_be_is_one_sentence),
        cmocka_unit_test(training_and_validation_have_the_same_classes),
        cmocka_unit_test(a_cut_or_damaged_archive_is_a_sentence),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    struct err e;
    status_t st = dir_remove(folder, &e);
    return failed || st != ST_OK;
}
