/* Unpacking an image: the limits of a layer, whose fault a failure is, and an archive that changes meanwhile. Whole
 * images are tested in tests/e2e/test_program_image.py. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/sha256.h"
#include "executor/environment/image_key.h"
#include "executor/image/archive_failure.h"
#include "executor/image/layer.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { FILES = 2, FILE_BYTES = 1000 };

static char folder[PATH_MAX - 64];

static char *in_folder(const char *name) { return alloc_format("%s/%s", folder, name); }

static int setup(void **state) {
    (void)state;
    const char *given = getenv("TMPDIR");
    char name[PATH_MAX - 64];
    snprintf(name, sizeof name, "%s/test-image-unpack-XXXXXX", given ? given : "/tmp");
    return mkdtemp(name) && realpath(name, folder) ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    return dir_remove(folder, NULL) == ST_OK ? 0 : -1;
}

static void file_make(const char *path, const char *data) {
    assert_int_equal(file_write_atomic(path, data, strlen(data), 0644, NULL), ST_OK);
}

/* ---- a layer ---- */

/* A compressed tar of FILES files with FILE_BYTES zeros each. */
static int layer_make(const char *path) {
    static const char zeros[FILE_BYTES];
    struct archive *a = archive_write_new();
    assert_int_equal(archive_write_set_format_pax_restricted(a), ARCHIVE_OK);
    assert_int_equal(archive_write_add_filter_gzip(a), ARCHIVE_OK);
    assert_int_equal(archive_write_open_filename(a, path), ARCHIVE_OK);
    for (int i = 0; i < FILES; i++) {
        struct archive_entry *entry = archive_entry_new();
        char name[] = "file-0";
        name[5] = (char)('0' + i);
        archive_entry_set_pathname(entry, name);
        archive_entry_set_filetype(entry, AE_IFREG);
        archive_entry_set_perm(entry, 0644);
        archive_entry_set_size(entry, FILE_BYTES);
        assert_int_equal(archive_write_header(a, entry), ARCHIVE_OK);
        assert_int_equal(archive_write_data(a, zeros, FILE_BYTES), FILE_BYTES);
        archive_entry_free(entry);
    }
    assert_int_equal(archive_write_free(a), ARCHIVE_OK);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(file >= 0);
    return file;
}

static void digest_of(int file, char ret[SHA256_HEX]) {
    uint8_t sum[SHA256_BYTES];
    char data[4096];
    struct sha256 s;
    sha256_begin(&s);
    for (ssize_t n; (n = read(file, data, sizeof data)) > 0;)
        sha256_update(&s, data, (size_t)n);
    sha256_final(&s, sum);
    sha256_hex(sum, ret);
}

static status_t apply(const char *digest, struct layer_limits *limits) {
    CLEANUP(freep) char *path = in_folder("layer");
    CLEANUP(freep) char *root = in_folder("root");
    CLEANUP(closep) int file = layer_make(path);
    char own[SHA256_HEX];
    digest_of(file, own);
    assert_int_equal(dir_make(root, 0755, NULL), ST_OK);
    CLEANUP(closep) int to = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return layer_apply(file, digest ? digest : own, to, limits, NULL);
}

static void a_layer_uses_up_what_it_has(void **state) {
    (void)state;
    struct layer_limits limits = { .bytes = FILES * FILE_BYTES + 1, .files = FILES + 1 };
    assert_int_equal(apply(NULL, &limits), ST_OK);
    assert_int_equal(limits.bytes, 1);
    assert_int_equal(limits.files, 1);
}

/* The digest is known only at the end of the first pass: a refusal for the limit comes from within it. */
static void a_layer_above_a_limit_is_not_read_to_its_end(void **state) {
    (void)state;
    struct layer_limits bytes = { .bytes = FILES * FILE_BYTES - 1, .files = FILES };
    struct layer_limits files = { .bytes = FILES * FILE_BYTES, .files = FILES - 1 };
    struct layer_limits enough = { .bytes = FILES * FILE_BYTES, .files = FILES };
    assert_int_equal(apply("wrong", &bytes), ST_RESOURCE_EXHAUSTED);
    assert_int_equal(apply("wrong", &files), ST_RESOURCE_EXHAUSTED);
    assert_int_equal(apply("wrong", &enough), ST_INVALID_ARGUMENT);
}

/* ---- failures ---- */

static void a_full_disk_is_no_fault_of_the_image(void **state) {
    (void)state;
    static const struct {
        int number;
        status_t status;
        const char *sentence;
    } cases[] = {
        { ENOSPC, ST_RESOURCE_EXHAUSTED, "a layer cannot be unpacked: No space left on device" },
        { EDQUOT, ST_RESOURCE_EXHAUSTED, "a layer cannot be unpacked: Disk quota exceeded" },
        { EIO, ST_INTERNAL, "a layer cannot be unpacked: Input/output error" },
        { EACCES, ST_PERMISSION_DENIED, "a layer cannot be unpacked: Permission denied" },
        { EILSEQ, ST_INVALID_ARGUMENT, "a layer cannot be read: said by libarchive" },
    };
    struct archive *a = archive_read_new();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e;
        archive_set_error(a, cases[i].number, "said by libarchive");
        assert_int_equal(archive_failure(a, "a layer", &e), cases[i].status);
        assert_string_equal(e.msg, cases[i].sentence);
    }
    archive_read_free(a);
}

/* ---- an archive that changes ---- */

static Trainyard__V1__ImageSpec image = TRAINYARD__V1__IMAGE_SPEC__INIT;
static Trainyard__V1__EnvironmentBuild order = TRAINYARD__V1__ENVIRONMENT_BUILD__INIT;

static void order_fill(char *archive) {
    static char *root = folder;
    image.archive = archive;
    order.image = &image;
    order.data_roots = &root;
    order.n_data_roots = 1;
}

static status_t reopen(int source) {
    CLEANUP(closep) int fd = -1;
    return image_key_open(&order, source, &fd, NULL);
}

static void an_archive_that_takes_the_place_of_the_checked_one_is_not_unpacked(void **state) {
    (void)state;
    CLEANUP(freep) char *path = in_folder("archive");
    CLEANUP(freep) char *other = in_folder("other");
    CLEANUP(freep) struct environment_key *key = alloc_zeroed(1, sizeof *key);
    CLEANUP(closep) int source = -1;
    order_fill(path);
    file_make(path, "first");
    file_make(other, "other");
    assert_int_equal(image_key_find(&order, key, &source, NULL), ST_OK);
    assert_int_equal(reopen(source), ST_OK);
    file_make(path, "second"); /* renamed to the path; the first file stays open */
    assert_int_equal(reopen(source), ST_INTERNAL);
    assert_true(unlink(path) == 0 && symlink(other, path) == 0);
    assert_int_equal(reopen(source), ST_INTERNAL);
}

static void an_archive_that_is_written_meanwhile_has_another_key(void **state) {
    (void)state;
    CLEANUP(freep) char *path = in_folder("archive");
    CLEANUP(freep) struct environment_key *key = alloc_zeroed(1, sizeof *key);
    CLEANUP(closep) int source = -1;
    order_fill(path);
    file_make(path, "first");
    assert_int_equal(image_key_find(&order, key, &source, NULL), ST_OK);
    assert_int_equal(image_key_check(&order, key, source, NULL), ST_OK);
    CLEANUP(closep) int file = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_int_equal(write(file, "more", 4), 4);
    assert_int_equal(image_key_check(&order, key, source, NULL), ST_INTERNAL);
}

static void a_layout_changes_with_its_index(void **state) {
    (void)state;
    CLEANUP(freep) char *path = in_folder("layout");
    CLEANUP(freep) char *index = in_folder("layout/index.json");
    CLEANUP(freep) struct environment_key *key = alloc_zeroed(1, sizeof *key);
    CLEANUP(closep) int source = -1;
    order_fill(path);
    assert_int_equal(dir_make(path, 0755, NULL), ST_OK);
    file_make(index, "{}");
    assert_int_equal(image_key_find(&order, key, &source, NULL), ST_OK);
    assert_int_equal(image_key_check(&order, key, source, NULL), ST_OK);
    file_make(index, "{ }");
    assert_int_equal(image_key_check(&order, key, source, NULL), ST_INTERNAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_layer_uses_up_what_it_has, setup, teardown),
        cmocka_unit_test_setup_teardown(a_layer_above_a_limit_is_not_read_to_its_end, setup, teardown),
        cmocka_unit_test(a_full_disk_is_no_fault_of_the_image),
        cmocka_unit_test_setup_teardown(an_archive_that_takes_the_place_of_the_checked_one_is_not_unpacked, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(an_archive_that_is_written_meanwhile_has_another_key, setup, teardown),
        cmocka_unit_test_setup_teardown(a_layout_changes_with_its_index, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
