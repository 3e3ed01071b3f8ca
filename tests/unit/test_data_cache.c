/* The cache of data alone: what it finds, what it removes, and what it does with damage. */
#include "executor/data/part.h"
#include "executor/data/space.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/file.h"

static char folder[PATH_MAX];

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/test_data_cache.XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    return dir_remove(folder, NULL) == ST_OK ? 0 : -1;
}

static struct data_cache *cache_open(int64_t max_bytes) {
    struct data_cache *c = NULL;
    struct err e = { "" };
    if (data_cache_open(folder, max_bytes, &c, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return c;
}

static void key_of(int i, char ret[SHA256_HEX]) { snprintf(ret, SHA256_HEX, "%064x", i); }

/* Adds an object of `bytes` bytes, each of which is `content`. */
static void add(struct data_cache *c, int i, char content, int bytes, char ret[SHA256_HEX]) {
    char key[SHA256_HEX], *data = malloc((size_t)bytes);
    uint8_t digest[SHA256_BYTES];
    struct part part;
    bool busy = true;
    assert_non_null(data);
    memset(data, content, (size_t)bytes);
    sha256_of(data, (size_t)bytes, digest);
    sha256_hex(digest, ret);
    key_of(i, key);
    assert_int_equal(part_open(c, key, bytes, &part, &busy, NULL), ST_OK);
    assert_false(busy);
    assert_int_equal(pwrite(part.file, data, (size_t)bytes, 0), bytes);
    assert_int_equal(part_complete(&part, NULL), ST_OK);
    assert_int_equal(data_cache_publish(c, key, part.file, ret, bytes, NULL), ST_OK);
    part_close(&part);
    free(data);
}

static struct cache_entry find(struct data_cache *c, int i, int64_t bytes) {
    char key[SHA256_HEX];
    const char *keys = key;
    struct cache_entry entry;
    key_of(i, key);
    assert_int_equal(data_cache_find(c, 1, &keys, &bytes, &entry, NULL), ST_OK);
    return entry;
}

static bool reserve(struct data_cache *c, int64_t bytes, struct space *ret) {
    struct err e = { "" };
    if (space_reserve(c, bytes, 0, NULL, ret, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return ret->reserved;
}

static void what_is_added_is_found_with_its_size_and_by_other_processes(void **state) {
    char sha256[SHA256_HEX];
    struct data_cache *c = cache_open(1 << 20), *other = cache_open(1 << 20);
    (void)state;
    add(c, 1, 'a', 1000, sha256);
    assert_int_equal(find(other, 1, 1000).state, CACHE_GOOD);
    assert_int_equal(find(other, 1, -1).bytes, 1000);
    assert_string_equal(find(other, 1, -1).sha256, sha256);
    assert_int_equal(find(other, 1, 999).state, CACHE_UNCHECKED);
    assert_int_equal(find(other, 2, 1000).state, CACHE_MISSING);
    data_cache_close(other);
    data_cache_close(c);
}

static void a_copy_that_was_written_to_is_checked_and_not_found_after_that(void **state) {
    char sha256[SHA256_HEX], path[PATH_MAX + 100];
    struct data_cache *c = cache_open(1 << 20);
    (void)state;
    add(c, 1, 'a', 1000, sha256);
    snprintf(path, sizeof path, "%s/objects/%s", folder, sha256);
    assert_int_equal(chmod(path, 0644), 0);
    int file = open(path, O_WRONLY);
    assert_int_equal(write(file, "a", 1), 1); /* the same byte: it is good, but nobody knows */
    close(file);
    struct cache_entry entry = find(c, 1, 1000);
    assert_int_equal(entry.state, CACHE_UNCHECKED);
    assert_int_equal(data_cache_check(c, &entry, NULL), ST_OK);
    assert_int_equal(entry.state, CACHE_GOOD);
    assert_int_equal(find(c, 1, 1000).state, CACHE_GOOD);
    file = open(path, O_WRONLY);
    assert_int_equal(write(file, "b", 1), 1);
    close(file);
    entry = find(c, 1, 1000);
    assert_int_equal(data_cache_check(c, &entry, NULL), ST_OK);
    assert_int_equal(entry.state, CACHE_MISSING);
    assert_int_equal(find(c, 1, 1000).state, CACHE_UNCHECKED);
    data_cache_close(c);
}

/* The bytes of a file are replaced as a power cut may do it: its times are those of before. */
static void lose_bytes(const char *sha256) {
    char path[PATH_MAX + 100];
    struct stat st;
    snprintf(path, sizeof path, "%s/objects/%s", folder, sha256);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(chmod(path, 0644), 0);
    int file = open(path, O_WRONLY);
    assert_int_equal(write(file, "\0\0\0\0", 4), 4);
    assert_int_equal(futimens(file, (const struct timespec[]){ st.st_atim, st.st_mtim }), 0);
    close(file);
}

static void after_a_start_of_the_host_a_small_copy_is_read_before_it_is_used(void **state) {
    char good[SHA256_HEX], lost[SHA256_HEX], large[SHA256_HEX];
    struct data_cache *c = cache_open(1 << 30), *later = cache_open(1 << 30);
    (void)state;
    assert_int_equal(strlen(c->boot), CACHE_BOOT_BYTES);
    add(c, 1, 'a', 1000, good);
    add(c, 2, 'b', 1000, lost);
    add(c, 3, 'c', CACHE_SYNC_BYTES, large);
    memset(later->boot, '0', CACHE_BOOT_BYTES);
    lose_bytes(lost);
    assert_int_equal(find(c, 1, 1000).state, CACHE_GOOD);
    struct cache_entry entry = find(later, 1, 1000);
    assert_int_equal(entry.state, CACHE_UNCHECKED);
    assert_int_equal(data_cache_check(later, &entry, NULL), ST_OK);
    assert_int_equal(entry.state, CACHE_GOOD);
    assert_int_equal(find(later, 1, 1000).state, CACHE_GOOD);
    entry = find(later, 2, 1000);
    assert_int_equal(entry.state, CACHE_UNCHECKED);
    assert_int_equal(data_cache_check(later, &entry, NULL), ST_OK);
    assert_int_equal(entry.state, CACHE_MISSING);
    assert_int_equal(find(later, 3, CACHE_SYNC_BYTES).state, CACHE_GOOD); /* it was written through */
    data_cache_close(later);
    data_cache_close(c);
}

/* Nobody could see that the host has been started again. */
static void without_an_id_of_the_start_all_copies_are_written_through(void **state) {
    char sha256[SHA256_HEX];
    struct data_cache *c = cache_open(1 << 20), *later = cache_open(1 << 20);
    (void)state;
    *c->boot = '\0';
    add(c, 1, 'a', 1000, sha256);
    assert_int_equal(find(later, 1, 1000).state, CACHE_GOOD);
    data_cache_close(later);
    data_cache_close(c);
}

static void an_index_that_leads_elsewhere_finds_nothing(void **state) {
    static const char *const targets[] = {
        "../objects/x", "/etc/passwd", "../objects/../lock",
        "../objects/zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz"
    };
    struct data_cache *c = cache_open(1 << 20);
    char key[SHA256_HEX];
    (void)state;
    for (int i = 0; i < (int)(sizeof targets / sizeof *targets); i++) {
        key_of(i, key);
        assert_int_equal(symlinkat(targets[i], c->index, key), 0);
        assert_int_equal(find(c, i, -1).state, CACHE_MISSING);
    }
    data_cache_close(c);
}

static void space_is_made_of_what_nobody_uses_oldest_first(void **state) {
    char sha256[4][SHA256_HEX];
    struct space space;
    struct data_cache *c = cache_open(3000);
    (void)state;
    for (int i = 0; i < 3; i++)
        add(c, i, (char)('a' + i), 1000, sha256[i]);
    assert_false(reserve(c, 1000, &space)); /* this process uses what it has added */
    assert_int_equal(space.in_use, 3000);
    c = data_cache_close(c);
    c = cache_open(3000);
    assert_int_equal(find(c, 0, 1000).state, CACHE_GOOD); /* it is in use, and the newest */
    assert_true(reserve(c, 1000, &space));
    assert_int_equal(find(c, 1, 1000).state, CACHE_MISSING);
    assert_int_equal(find(c, 2, 1000).state, CACHE_GOOD);
    assert_int_equal(faccessat(c->index, "0000000000000000000000000000000000000000000000000000000000000001", F_OK,
                               AT_SYMLINK_NOFOLLOW),
                     -1);
    data_cache_close(c);
}

static void what_one_process_may_still_add_is_not_there_for_another(void **state) {
    struct space space;
    char sha256[SHA256_HEX];
    struct data_cache *c = cache_open(3000), *other = cache_open(3000);
    (void)state;
    assert_true(reserve(c, 2000, &space));
    assert_false(reserve(other, 2000, &space));
    assert_int_equal(space.promised, 2000);
    add(c, 1, 'a', 1000, sha256);
    assert_false(reserve(other, 2000, &space)); /* 1000 are there, and 1000 may follow */
    assert_int_equal(space.promised, 1000);
    c = data_cache_close(c);
    assert_true(reserve(other, 2000, &space)); /* nobody uses the object */
    data_cache_close(other);
}

static void a_part_belongs_to_one_process_and_the_next_one_goes_on_with_it(void **state) {
    struct data_cache *c = cache_open(1LL << 30);
    char key[SHA256_HEX];
    struct part part, second;
    bool busy = true;
    (void)state;
    key_of(1, key);
    const int64_t bytes = 2LL * PART_PIECE_BYTES + 5;
    assert_int_equal(part_open(c, key, bytes, &part, &busy, NULL), ST_OK);
    assert_int_equal(part.n, 3);
    assert_int_equal(part_piece_bytes(&part, 2), 5);
    assert_int_equal(part_open(c, key, bytes, &second, &busy, NULL), ST_OK);
    assert_true(busy);
    assert_int_equal(part_set_done(&part, 1, true, NULL), ST_OK);
    assert_int_equal(part_set_done(&part, 0, false, NULL), ST_OK); /* from another host: not for the next one */
    assert_true(part.done[0] == '1');
    part_close(&part);
    assert_int_equal(part_open(c, key, bytes, &part, &busy, NULL), ST_OK);
    assert_true(!busy && part.done[0] != '1' && part.done[1] == '1' && part.done[2] != '1');
    /* Another start of the host: nothing counts. */
    assert_int_equal(pwrite(part.file, "00000000", 8, bytes + part.n), 8);
    part_close(&part);
    assert_int_equal(part_open(c, key, bytes, &part, &busy, NULL), ST_OK);
    assert_true(part.done[1] != '1');
    part_discard(c, key, &part);
    data_cache_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)
        TEST(what_is_added_is_found_with_its_size_and_by_other_processes),
        TEST(a_copy_that_was_written_to_is_checked_and_not_found_after_that),
        TEST(after_a_start_of_the_host_a_small_copy_is_read_before_it_is_used),
        TEST(without_an_id_of_the_start_all_copies_are_written_through),
        TEST(an_index_that_leads_elsewhere_finds_nothing),
        TEST(space_is_made_of_what_nobody_uses_oldest_first),
        TEST(what_one_process_may_still_add_is_not_there_for_another),
        TEST(a_part_belongs_to_one_process_and_the_next_one_goes_on_with_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
