/* Keys of secrets: only the key that encrypted a value decrypts it, and only under the same name. */
#include "service/controller/keyring.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        struct err e = { "" };                                                                                         \
        if ((call) != ST_OK)                                                                                           \
            fail_msg("%s: %s", #call, e.msg);                                                                          \
    } while (0)
#define FAILS(call, status, text)                                                                                      \
    do {                                                                                                               \
        struct err e = { "" };                                                                                         \
        assert_int_equal((call), (status));                                                                            \
        if (!strstr(e.msg, (text)))                                                                                    \
            fail_msg("%s does not have '%s'", e.msg, (text));                                                          \
    } while (0)

static char folder[64];

static int setup(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/trainyard-keyring-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

static const char *path_of(const char *name) {
    static char paths[8][96];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static struct keyring *with(const char *first, const char *second) {
    const char *const files[] = { first, second };
    struct keyring *k = NULL;
    OK(keyring_open(files, second ? 2 : 1, &k, &e));
    return k;
}

static void a_value_is_read_with_its_key_and_name_only(void **state) {
    (void)state;
    const char *a = path_of("a"), *b = path_of("b");
    OK(keyring_make_file(a, &e));
    OK(keyring_make_file(b, &e));
    CLEANUP(keyring_closep) struct keyring *one = with(a, NULL), *both = with(b, a), *other = with(b, NULL);
    uint8_t ciphertext[100], opened[100];
    OK(keyring_encrypt(one, "NAME", "the value", 9, ciphertext, &e));
    assert_null(memmem(ciphertext, 9 + KEYRING_EXTRA_BYTES, "the value", 9));
    OK(keyring_decrypt(both, keyring_id(one, 0), "NAME", ciphertext, 9 + KEYRING_EXTRA_BYTES, opened, &e));
    assert_memory_equal(opened, "the value", 9);
    FAILS(keyring_decrypt(one, keyring_id(one, 0), "OTHER", ciphertext, 9 + KEYRING_EXTRA_BYTES, opened, &e),
          ST_DATA_LOSS, "'OTHER' has changed in the database");
    FAILS(keyring_decrypt(other, keyring_id(one, 0), "NAME", ciphertext, 9 + KEYRING_EXTRA_BYTES, opened, &e),
          ST_FAILED_PRECONDITION, keyring_id(one, 0));
    FAILS(keyring_decrypt(both, keyring_id(other, 0), "NAME", ciphertext, 9 + KEYRING_EXTRA_BYTES, opened, &e),
          ST_DATA_LOSS, "'NAME'");
}

static void a_change_of_any_byte_and_a_cut_are_refused_and_leave_no_bytes(void **state) {
    (void)state;
    const char *a = path_of("a");
    OK(keyring_make_file(a, &e));
    CLEANUP(keyring_closep) struct keyring *k = with(a, NULL);
    uint8_t ciphertext[40], opened[40], zeros[40] = { 0 };
    const size_t n = 5 + KEYRING_EXTRA_BYTES;
    OK(keyring_encrypt(k, "N", "value", 5, ciphertext, &e));
    for (size_t i = 0; i < n; i++) {
        ciphertext[i] ^= 1;
        FAILS(keyring_decrypt(k, keyring_id(k, 0), "N", ciphertext, n, opened, &e), ST_DATA_LOSS, "'N'");
        assert_memory_equal(opened, zeros, 5);
        ciphertext[i] ^= 1;
    }
    for (size_t less = 0; less < n; less++)
        FAILS(keyring_decrypt(k, keyring_id(k, 0), "N", ciphertext, less, opened, &e), ST_DATA_LOSS, "'N'");
    OK(keyring_decrypt(k, keyring_id(k, 0), "N", ciphertext, n, opened, &e));
}

static void the_same_value_is_never_encrypted_to_the_same_bytes(void **state) {
    (void)state;
    const char *a = path_of("a");
    OK(keyring_make_file(a, &e));
    CLEANUP(keyring_closep) struct keyring *k = with(a, NULL);
    uint8_t first[40], second[40];
    OK(keyring_encrypt(k, "N", "value", 5, first, &e));
    OK(keyring_encrypt(k, "N", "value", 5, second, &e));
    assert_memory_not_equal(first, second, 12);
    assert_memory_not_equal(first + 12, second + 12, 21);
}

static void a_file_that_others_may_read_is_refused_and_one_key_counts_once(void **state) {
    (void)state;
    const char *a = path_of("a"), *copy = path_of("copy");
    const char *const files[] = { a, copy };
    struct keyring *k = NULL;
    OK(keyring_make_file(a, &e));
    FAILS(keyring_make_file(a, &e), ST_ALREADY_EXISTS, "a key is never replaced");
    assert_int_equal(link(a, copy), 0);
    OK(keyring_open(files, 2, &k, &e));
    assert_int_equal(keyring_size(k), 1);
    assert_int_equal(strlen(keyring_id(k, 0)), 16);
    assert_true(keyring_has(k, keyring_id(k, 0)));
    assert_false(keyring_has(k, ""));
    keyring_close(k);
    static const mode_t wrong[] = { 0640, 0604, 0620, 0602, 0610, 0601 };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(chmod(a, wrong[i]), 0);
        FAILS(keyring_open(files, 1, &k, &e), ST_PERMISSION_DENIED, "run chmod 600");
    }
}

static void without_a_key_nothing_is_encrypted(void **state) {
    (void)state;
    CLEANUP(keyring_closep) struct keyring *k = NULL;
    uint8_t ciphertext[40];
    OK(keyring_open(NULL, 0, &k, &e));
    FAILS(keyring_encrypt(k, "N", "value", 5, ciphertext, &e), ST_FAILED_PRECONDITION, "make-secret-key");
    FAILS(keyring_decrypt(k, "0123456789abcdef", "N", ciphertext, 33, ciphertext, &e), ST_FAILED_PRECONDITION,
          "0123456789abcdef");
    const char *const many[KEYRING_MAX_KEYS + 1] = { "/x" };
    struct keyring *none = NULL;
    FAILS(keyring_open(many, KEYRING_MAX_KEYS + 1, &none, &e), ST_INVALID_ARGUMENT, "at most 8");
}

#define IN_FOLDER(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_value_is_read_with_its_key_and_name_only),
        IN_FOLDER(a_change_of_any_byte_and_a_cut_are_refused_and_leave_no_bytes),
        IN_FOLDER(the_same_value_is_never_encrypted_to_the_same_bytes),
        IN_FOLDER(a_file_that_others_may_read_is_refused_and_one_key_counts_once),
        IN_FOLDER(without_a_key_nothing_is_encrypted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
