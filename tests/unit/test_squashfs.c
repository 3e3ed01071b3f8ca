/* Images of enroot and apptainer: where their squashfs is, and which variables they set. An end-to-end test,
 * tests/e2e/test_program_image.py, unpacks and runs them. */
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "executor/image/squashfs.h"

#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { HEADER = 128, PART = 585, PARTS = 2, SQUASHFS_AT = 8192 };

static uint8_t image[HEADER + PARTS * PART];

static void number_put(uint8_t *at, int64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        at[i] = (uint8_t)((uint64_t)value >> 8 * i);
}

static uint8_t *part(int i) { return image + HEADER + (size_t)i * PART; }

/* A .sif with a definition file and a squashfs. */
static void image_make(void) {
    memset(image, 0, sizeof image);
    memcpy(image + 32, "SIF_MAGIC", 10);
    memcpy(image + 45, "02", 2);
    number_put(image + 88, PARTS, 8);
    number_put(image + 96, HEADER, 8);
    number_put(part(0), 0x4001, 4);
    part(0)[4] = 1;
    number_put(part(1), 0x4004, 4);
    part(1)[4] = 1;
    number_put(part(1) + 17, SQUASHFS_AT, 8);
    number_put(part(1) + 201, 1, 4);
    number_put(part(1) + 205, 2, 4);
}

static status_t find(size_t n, const char *machine, bool *ret, int64_t *ret_offset, struct err *e) {
    CLEANUP(closep) int fd = memfd_create("image", MFD_CLOEXEC);
    assert_true(fd >= 0 && write(fd, image, n) == (ssize_t)n);
    return squashfs_find(fd, machine, ret, ret_offset, e);
}

static void a_sif_names_the_place_of_its_squashfs(void **state) {
    (void)state;
    bool found = false;
    int64_t offset = 0;
    image_make();
    assert_int_equal(find(sizeof image, "x86_64", &found, &offset, NULL), ST_OK);
    assert_true(found);
    assert_int_equal(offset, SQUASHFS_AT);
}

static void a_squashfs_begins_at_once_and_other_files_are_none(void **state) {
    (void)state;
    bool found = false;
    int64_t offset = 1;
    memcpy(image, "hsqs", 4);
    assert_int_equal(find(sizeof image, "x86_64", &found, &offset, NULL), ST_OK);
    assert_true(found && offset == 0);
    memset(image, 0, sizeof image);
    assert_int_equal(find(sizeof image, "x86_64", &found, &offset, NULL), ST_OK);
    assert_false(found);
    assert_int_equal(find(3, "x86_64", &found, &offset, NULL), ST_OK);
    assert_false(found);
}

static void refused(size_t n, const char *machine, const char *why) {
    struct err e;
    bool found;
    int64_t offset;
    assert_int_equal(find(n, machine, &found, &offset, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, why));
}

static void a_wrong_sif_is_refused(void **state) {
    (void)state;
    image_make();
    refused(sizeof image, "aarch64", "another kind of machine");
    refused(sizeof image - 1, "x86_64", "ends within its list");
    number_put(part(1) + 201, 5, 4);
    refused(sizeof image, "x86_64", "encrypted or no squashfs");
    image_make();
    part(1)[4] = 0;
    refused(sizeof image, "x86_64", "no part for the root");
    image_make();
    number_put(part(1) + 17, -1, 8);
    refused(sizeof image, "x86_64", "a wrong place");
    image_make();
    number_put(image + 88, INT64_MAX, 8);
    refused(sizeof image, "x86_64", "its header is wrong");
    image_make();
    number_put(image + 96, INT64_MAX - 1, 8);
    refused(sizeof image, "x86_64", "its header is wrong");
}

static void write_file(int folder, const char *name, const char *text) {
    CLEANUP(closep) int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

/* In the image /etc leads to /other: a link of the image is one within it. */
static void the_variables_of_both_programs_are_read(void **state) {
    (void)state;
    static const char expected[] = "A=b c\0B=quo\"ted\0C=a $x\0D=\0";
    const char *given = getenv("TMPDIR");
    char folder[PATH_MAX - 64], path[PATH_MAX];
    struct bytes text;
    snprintf(folder, sizeof folder, "%s/test-squashfs-XXXXXX", given ? given : "/tmp");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/variables", folder);
    CLEANUP(closep) int root = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(mkdirat(root, "other", 0700) == 0 && symlinkat("/other", root, "etc") == 0);
    assert_true(mkdirat(root, ".singularity.d", 0700) == 0 && mkdirat(root, ".singularity.d/env", 0700) == 0);
    write_file(root, "other/environment", "A=b c\nB=\"quo\\\"ted\"\n# no variable\n=x\nTRAINYARD_JOB=7\n");
    write_file(root, ".singularity.d/env/10-docker2singularity.sh",
               "#!/bin/sh\nexport C=\"${C:-\"a \\$x\"}\"\nexport D=\"\"\nif true; then\n");
    assert_int_equal(squashfs_variables_write(root, path, NULL), ST_OK);
    bytes_init(&text, 1000);
    assert_int_equal(file_read(path, &text, NULL), ST_OK);
    assert_int_equal(text.len, sizeof expected - 1);
    assert_memory_equal(text.data, expected, sizeof expected - 1);
    bytes_done(&text);
    assert_int_equal(dir_remove(folder, NULL), ST_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sif_names_the_place_of_its_squashfs),
        cmocka_unit_test(a_squashfs_begins_at_once_and_other_files_are_none),
        cmocka_unit_test(a_wrong_sif_is_refused),
        cmocka_unit_test(the_variables_of_both_programs_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
