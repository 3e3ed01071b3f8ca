/* Names, completeness and manifests of programs' checkpoints, without a service. */
#include "engine/checkpoint/checksummed.h"
#include "executor/program/checkpoint_format.h"
#include "executor/program/zip_end.h"
#include "executor/worker/file_manifest.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cmocka.h>

static int64_t step_of(const char *format, const char *name) {
    Trainyard__V1__ProgramCheckpoints spec = TRAINYARD__V1__PROGRAM_CHECKPOINTS__INIT;
    int64_t step = -1;
    spec.format = (char *)(uintptr_t)format;
    const struct checkpoint_format f = checkpoint_format_of(&spec);
    assert_string_equal(f.name, format);
    return f.step(name, &step) ? step : -1;
}

static void a_name_gives_the_step_of_its_format_and_no_other(void **state) {
    (void)state;
    assert_int_equal(step_of("rename", "step-0"), 0);
    assert_int_equal(step_of("rename", "step-0012"), 12);
    static const char *const none[] = { "step-",   "step-1.tmp", "step-1x",
                                        "astep-1", "step--1",    "step-1234567890123456789" };
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_int_equal(step_of("rename", none[i]), -1);
    assert_int_equal(step_of("hugging_face", "checkpoint-500"), 500);
    assert_int_equal(step_of("hugging_face", "step-500"), -1);
    assert_int_equal(step_of("lightning", "epoch=3-step=500.ckpt"), 500);
    assert_int_equal(step_of("lightning", "epoch=3-step=500-v1.ckpt"), 500);
    assert_int_equal(step_of("lightning", "last.ckpt"), -1);
    assert_int_equal(step_of("lightning", "epoch=3-step=500.ckpt.tmp"), -1);
    assert_int_equal(step_of("dcp", "step-9"), 9);
    assert_int_equal(step_of("orbax", "9"), 9);
    assert_int_equal(step_of("orbax", "9.orbax-checkpoint-tmp-17"), -1);
    assert_int_equal(step_of("torch_save", "ckpt_step00040.pt"), 40);
    assert_int_equal(step_of("torch_save", "model-step_40.pth"), 40);
    assert_int_equal(step_of("torch_save", "steps-of-step=4.pt"), 4);
    assert_int_equal(step_of("torch_save", "epoch-4.pt"), -1);
}

/* ---- zip ---- */

static void put(char *at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++)
        at[i] = (char)(value >> (8 * i));
}

/* A file of 30 bytes, a directory of 46, and the end; with the records of zip64 if asked. */
static size_t zip(char ret[512], bool zip64) {
    size_t n = 76;
    memset(ret, 0, 512);
    put(ret, 0x04034b50, 4);
    put(ret + 30, 0x02014b50, 4);
    if (zip64) {
        put(ret + n, 0x06064b50, 4);
        put(ret + n + 40, 46, 8);
        put(ret + n + 48, 30, 8);
        put(ret + n + 56, 0x07064b50, 4);
        put(ret + n + 64, n, 8);
        n += 76;
    }
    put(ret + n, 0x06054b50, 4);
    put(ret + n + 12, 46, 4);
    put(ret + n + 16, 30, 4);
    return n + 22;
}

static void an_archive_is_whole_only_with_its_last_byte(void **state) {
    (void)state;
    for (int zip64 = 0; zip64 < 2; zip64++) {
        char data[512];
        const size_t n = zip(data, zip64);
        const int fd = memfd_create("zip", MFD_CLOEXEC);
        assert_int_equal(pwrite(fd, data, n, 0), n);
        assert_true(zip_is_whole(fd, (int64_t)n));
        for (size_t cut = 0; cut < n; cut++) {
            assert_int_equal(ftruncate(fd, (off_t)cut), 0);
            assert_false(zip_is_whole(fd, (int64_t)cut));
        }
        close(fd);
    }
}

/* ---- the manifest ---- */

static status_t parse(const char *path, const char *file) {
    char text[1024];
    struct file_manifest *m = NULL;
    snprintf(text, sizeof text, "{\"format\": \"trainyard-files-1\", \"step\": 7, \"path\": \"%s\", \"files\": [%s]}",
             path, file);
    const status_t st = file_manifest_parse(text, strlen(text), &m, NULL);
    file_manifest_free(m);
    return st;
}

#define DIGEST        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define FILE_OF(name) "{\"name\": \"" name "\", \"bytes\": 1, \"sha256\": \"" DIGEST "\"}"
static void a_manifest_names_no_file_outside_of_its_checkpoint(void **state) {
    (void)state;
    assert_int_equal(parse("step-7", FILE_OF("a/b")), ST_OK);
    assert_int_equal(parse("step-7/x", FILE_OF("")), ST_OK);
    assert_int_equal(parse("step-7", FILE_OF("..a/b..")), ST_OK);
    static const char *const names[] = { FILE_OF(".."),
                                         FILE_OF("../a"),
                                         FILE_OF("a/../b"),
                                         FILE_OF("/a"),
                                         FILE_OF("a//b"),
                                         FILE_OF("a/"),
                                         FILE_OF("."),
                                         FILE_OF("") "," FILE_OF("a"),
                                         "",
                                         "1",
                                         "{\"name\": \"a\", \"bytes\": -1, \"sha256\": \"" DIGEST "\"}",
                                         "{\"name\": \"a\", \"bytes\": 1, \"sha256\": \"x\"}" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(parse("step-7", names[i]), ST_DATA_LOSS);
    static const char *const paths[] = { "step-8", "step-77", "step-7/..", "/step-7", "step-7/", "x/step-7", "" };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        assert_int_equal(parse(paths[i], FILE_OF("a")), ST_DATA_LOSS);
}

static void a_manifest_is_read_as_it_was_written_and_a_change_is_detected(void **state) {
    (void)state;
    struct file_manifest m = { .step = 7, .path = (char *)(uintptr_t) "step-7" }, *again = NULL;
    struct bytes text;
    bytes_init(&text, FILE_MANIFEST_BYTES);
    memcpy(file_manifest_add(&m, "a \"\xc3\xa9\"\n", 3)->sha256, DIGEST, SHA256_HEX);
    memcpy(file_manifest_add(&m, "b/c", 4)->sha256, DIGEST, SHA256_HEX);
    assert_int_equal(file_manifest_write(&m, &text, NULL), ST_OK);
    assert_int_equal(checksummed_check(text.data, text.len, NULL), ST_OK);
    assert_int_equal(file_manifest_parse(text.data, text.len, &again, NULL), ST_OK);
    assert_int_equal(again->n, 2);
    assert_string_equal(again->files[0].name, m.files[0].name);
    assert_int_equal(file_manifest_bytes(again), 7);
    text.data[text.len / 2] ^= 1;
    assert_int_equal(checksummed_check(text.data, text.len, NULL), ST_DATA_LOSS);
    memcpy(file_manifest_add(&m, "\xff", 4)->sha256, DIGEST, SHA256_HEX);
    bytes_clear(&text);
    assert_int_equal(file_manifest_write(&m, &text, NULL), ST_INVALID_ARGUMENT);
    bytes_done(&text);
    file_manifest_free(again);
    for (size_t i = 0; i < m.n; i++)
        free(m.files[i].name);
    free(m.files);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_gives_the_step_of_its_format_and_no_other),
        cmocka_unit_test(an_archive_is_whole_only_with_its_last_byte),
        cmocka_unit_test(a_manifest_names_no_file_outside_of_its_checkpoint),
        cmocka_unit_test(a_manifest_is_read_as_it_was_written_and_a_change_is_detected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
