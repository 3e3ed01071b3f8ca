/* A program's code as an archive: which files belong to it, the same bytes for the same files, and what is refused when
 * it is unpacked. */
#include "api/code/entry.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/limits.h"
#include "cli/code/ignore.h"
#include "cli/code/pack.h"
#include "executor/code/cache.h"
#include "executor/code/download.h"
#include "executor/code/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        struct err e = { "" };                                                                                         \
        status_t st_ = (call);                                                                                         \
        if (st_ != ST_OK)                                                                                              \
            fail_msg("%s: %s: %s", #call, status_name(st_), e.msg);                                                    \
    } while (0)
#define FAILS(call, status, text)                                                                                      \
    do {                                                                                                               \
        struct err e = { "" };                                                                                         \
        status_t st_ = (call);                                                                                         \
        assert_string_equal(status_name(st_), status_name(status));                                                    \
        if (!strstr(e.msg, text))                                                                                      \
            fail_msg("'%s' does not contain '%s'", e.msg, text);                                                       \
    } while (0)

struct place {
    char path[64];
};

static int setup(void **state) {
    struct place *p = *state = alloc_zeroed(1, sizeof *p);
    snprintf(p->path, sizeof p->path, "/dev/shm/test-code-XXXXXX");
    return mkdtemp(p->path) && chdir(p->path) == 0 ? 0 : -1;
}

static int teardown(void **state) {
    struct place *p = *state;
    status_t st = chdir("/") == 0 ? dir_remove_readonly(p->path, NULL) : ST_INTERNAL;
    free(p);
    return st == ST_OK ? 0 : -1;
}

static void write_file(const char *path, const char *text, mode_t mode) {
    char folder[200];
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    OK(dir_make(folder, 0700, &e));
    OK(file_write_atomic(path, text, strlen(text), 0600, &e));
    assert_int_equal(chmod(path, mode), 0);
}

static char *read_text(const char *path) {
    struct bytes b;
    bytes_init(&b, 1 << 20);
    OK(file_read(path, &b, &e));
    assert_int_equal(bytes_append(&b, "", 0, NULL), ST_OK);
    return bytes_take(&b);
}

/* ---- names ---- */

static void names_that_leave_the_folder_are_refused(void **state) {
    (void)state;
    static const char *const good[] = { "a", "a/b.py", ".hidden", "a b", "größe", "..a", "a/..b" };
    static const char *const bad[] = { "", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/.", "./a" };
    struct err e;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(code_name_check(good[i], &e), ST_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(code_name_check(bad[i], &e), ST_INVALID_ARGUMENT);
    char deep[2 * LIMIT_CODE_DEPTH + 2] = "a";
    for (int i = 1; i < LIMIT_CODE_DEPTH; i++)
        strcat(deep, "/a");
    assert_int_equal(code_name_check(deep, &e), ST_OK);
    strcat(deep, "/a");
    assert_int_equal(code_name_check(deep, &e), ST_INVALID_ARGUMENT);
}

static void links_that_leave_the_folder_are_refused(void **state) {
    (void)state;
    static const char *const good[][2] = {
        { "l", "a" }, { "l", "a/b" }, { "d/l", "../a" }, { "d/e/l", "../../a/b" }, { "l", "./a" }, { "d/l", ".." },
    };
    static const char *const bad[][2] = {
        { "l", "/a" },   { "l", ".." },          { "l", "../a" }, { "d/l", "../../a" },
        { "l", "a/.." }, { "d/l", "a/../../b" }, { "l", "" },
    };
    struct err e;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (code_link_check(good[i][0], good[i][1], &e) != ST_OK)
            fail_msg("%s -> %s: %s", good[i][0], good[i][1], e.msg);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (code_link_check(bad[i][0], bad[i][1], &e) != ST_INVALID_ARGUMENT)
            fail_msg("%s -> %s is allowed", bad[i][0], bad[i][1]);
}

/* ---- patterns ---- */

static void patterns_match_as_those_of_git(void **state) {
    (void)state;
    static const struct {
        const char *patterns, *path;
        bool out;
    } cases[] = {
        { "*.log", "a.log", true },
        { "*.log", "deep/er/a.log", true },
        { "*.log", "a.logs", false },
        { "# *.py\n\n*.pt", "a.py", false },
        { "/a.py", "a.py", true },
        { "/a.py", "sub/a.py", false },
        { "sub/a.py", "sub/a.py", true },
        { "sub/a.py", "other/sub/a.py", false },
        { "data/", "data/x/y", true },
        { "data/", "src/data/y", true },
        { "data/", "data", false },
        { "data", "data", true },
        { "*.py\n!train.py", "train.py", false },
        { "*.py\n!train.py", "other.py", true },
        { "data/\n!data/keep.py", "data/keep.py", true },
        { "**/x", "x", true },
        { "**/x", "a/b/x", true },
        { "a/**/x", "a/x", true },
        { "a/**/x", "a/b/c/x", true },
        { "a/**/x", "b/a/x", false },
        { "a/**", "a/b", true },
        { "a/**", "b", false },
        { "a/*", "a/b/c", true },
        { "/*\n!/src/", "src/a.py", false },
        { "/*\n!/src/", "a.py", true },
        { "run?", "run1", true },
        { "run?", "run", false },
        { "[ab].py", "a.py", true },
        { "[!ab].py", "a.py", false },
        { "\\#x", "#x", true },
        { "\\!x", "!x", true },
        { "x   ", "x", true },
        { "x\r\n", "x", true },
        { "", "x", false },
        { "/", "x", false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CLEANUP(ignore_freep) struct ignore *ig = NULL;
        OK(ignore_new(cases[i].patterns, &ig, &e));
        if (ignore_matches(ig, cases[i].path, false) != cases[i].out)
            fail_msg("'%s' and '%s'", cases[i].patterns, cases[i].path);
    }
}

static void patterns_are_bounded(void **state) {
    (void)state;
    struct ignore *ig;
    struct bytes b;
    bytes_init(&b, 1 << 20);
    for (int i = 0; i < IGNORE_RULES + 1; i++)
        OK(bytes_append(&b, "a\n", 2, &e));
    FAILS(ignore_new(b.data, &ig, &e), ST_INVALID_ARGUMENT, "more than 1000 patterns");
    bytes_clear(&b);
    for (int i = 0; i < IGNORE_PARTS + 1; i++)
        OK(bytes_append(&b, "**/", 3, &e));
    FAILS(ignore_new(b.data, &ig, &e), ST_INVALID_ARGUMENT, "parts");
    bytes_done(&b);
    /* A pattern whose comparison would take for ever with a search that tries each way. */
    CLEANUP(ignore_freep) struct ignore *slow = NULL;
    OK(ignore_new("**/a/**/a/**/a/**/a/**/a/**/a/**/a/**/a/**/b", &slow, &e));
    assert_false(ignore_matches(slow, "a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/c", false));
}

/* ---- packing ---- */

static void fill(const char *folder, mode_t mode) {
    char path[100];
    snprintf(path, sizeof path, "%s/b.py", folder);
    write_file(path, "print()\n", mode & ~0111u);
    snprintf(path, sizeof path, "%s/a/run.sh", folder);
    write_file(path, "true\n", mode | 0100);
    snprintf(path, sizeof path, "%s/größe", folder);
    write_file(path, "", mode & ~0111u);
    snprintf(path, sizeof path, "%s/a/link", folder);
    assert_int_equal(symlink("../b.py", path), 0);
    snprintf(path, sizeof path, "%s/empty", folder);
    OK(dir_make(path, 0700, &e));
    char deep[400];
    snprintf(deep, sizeof deep, "%s/%0120d/%0120d/%0100d", folder, 1, 2, 3);
    char *slash = strrchr(deep, '/');
    *slash = '\0';
    OK(dir_make(deep, 0700, &e));
    *slash = '/';
    OK(file_write_atomic(deep, "x", 1, 0600, &e));
}

static void the_same_files_give_the_same_bytes_whatever_their_times_modes_and_order_are(void **state) {
    (void)state;
    struct code_pack one, two;
    fill("one", 0644);
    const mode_t mask = umask(077);
    write_file("two/zz", "", 0600); /* another order in the folder */
    fill("two", 0700);
    umask(mask);
    assert_int_equal(unlink("two/zz"), 0);
    const struct timespec times[2] = { { .tv_sec = 1 }, { .tv_sec = 1234567890 } };
    assert_int_equal(utimensat(AT_FDCWD, "two/b.py", times, 0), 0);
    OK(code_pack("one", &one, &e));
    OK(code_pack("two", &two, &e));
    assert_string_equal(one.archive, two.archive);
    assert_int_equal(one.bytes, two.bytes);
    assert_int_equal(one.list->n, 5);
    code_pack_done(&two);
    assert_int_equal(chmod("two/b.py", 0700), 0); /* the executable bit is part of the code */
    OK(code_pack("two", &two, &e));
    assert_string_not_equal(one.archive, two.archive);
    code_pack_done(&one);
    code_pack_done(&two);
}

static void what_was_packed_is_unpacked_read_only(void **state) {
    (void)state;
    struct code_pack p;
    struct stat st;
    fill("one", 0644);
    OK(code_pack("one", &p, &e));
    assert_int_equal(mkdir("copy", 0700), 0);
    assert_int_equal(lseek(p.fd, 0, SEEK_SET), 0);
    OK(code_unpack(p.fd, "copy", &e));
    CLEANUP(freep) char *text = read_text("copy/a/link");
    assert_string_equal(text, "print()\n");
    assert_int_equal(stat("copy/größe", &st), 0);
    assert_int_equal(st.st_mode & 07777, 0444);
    assert_int_equal(stat("copy/a/run.sh", &st), 0);
    assert_int_equal(st.st_mode & 07777, 0555);
    assert_int_equal(stat("copy/a", &st), 0);
    assert_int_equal(st.st_mode & 07777, 0555);
    assert_int_equal(stat("copy", &st), 0);
    assert_int_equal(st.st_mode & 07777, 0555);
    assert_int_equal(access("copy/empty", F_OK), -1);
    code_pack_done(&p);
    OK(dir_remove_readonly("copy", &e));
    assert_int_equal(access("copy", F_OK), -1);
}

/* ---- hostile archives ---- */

struct item {
    const char *name, *link, *hard;
    mode_t type, mode;
    int64_t size; /* declared; the bytes are zeros */
};

static int tar_of(const struct item *items, size_t n) {
    int fd = memfd_create("tar", MFD_CLOEXEC);
    struct archive *tar = archive_write_new();
    struct archive_entry *entry = archive_entry_new();
    static char zeros[4096];
    archive_write_set_format_pax_restricted(tar);
    assert_int_equal(archive_write_open_fd(tar, fd), ARCHIVE_OK);
    for (size_t i = 0; i < n; i++) {
        archive_entry_clear(entry);
        archive_entry_set_pathname(entry, items[i].name);
        archive_entry_set_filetype(entry, items[i].type);
        archive_entry_set_perm(entry, items[i].mode);
        archive_entry_set_size(entry, items[i].size);
        if (items[i].link)
            archive_entry_set_symlink(entry, items[i].link);
        if (items[i].hard)
            archive_entry_set_hardlink(entry, items[i].hard);
        assert_int_equal(archive_write_header(tar, entry), ARCHIVE_OK);
        for (int64_t at = 0; at < items[i].size; at += (int64_t)sizeof zeros)
            archive_write_data(tar, zeros, sizeof zeros);
    }
    archive_entry_free(entry);
    archive_write_close(tar);
    archive_write_free(tar);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

static void refused(const struct item *items, size_t n, const char *text) {
    CLEANUP(closep) int fd = tar_of(items, n);
    assert_int_equal(mkdir("copy", 0700), 0);
    FAILS(code_unpack(fd, "copy", &e), ST_INVALID_ARGUMENT, text);
    OK(dir_remove_readonly("copy", &e));
}

#define REFUSED(text, ...)                                                                                             \
    do {                                                                                                               \
        const struct item items_[] = { __VA_ARGS__ };                                                                  \
        refused(items_, sizeof items_ / sizeof *items_, (text));                                                       \
    } while (0)

static void an_archive_of_another_client_cannot_write_outside(void **state) {
    (void)state;
    write_file("victim/file", "unchanged", 0644);
    REFUSED("not a relative path", { "../victim/file", NULL, NULL, AE_IFREG, 0644, 8 });
    REFUSED("not a relative path", { "/dev/shm/x", NULL, NULL, AE_IFREG, 0644, 8 });
    REFUSED("does not stay in the folder", { "l", "../victim", NULL, AE_IFLNK, 0777, 0 });
    REFUSED("does not stay in the folder", { "l", "/etc", NULL, AE_IFLNK, 0777, 0 });
    REFUSED("unpack 'l/x'", { "l", "d", NULL, AE_IFLNK, 0777, 0 }, { "l/x", NULL, NULL, AE_IFREG, 0644, 8 });
    REFUSED("neither a file nor a link", { "h", NULL, "../victim/file", AE_IFREG, 0644, 0 });
    REFUSED("not a relative path", { "d", NULL, NULL, AE_IFDIR, 0755, 0 });
    REFUSED("neither a file nor a link", { "n", NULL, NULL, AE_IFCHR, 0644, 0 });
    REFUSED("neither a file nor a link", { "p", NULL, NULL, AE_IFIFO, 0644, 0 });
    REFUSED("unpack 'a'", { "a", NULL, NULL, AE_IFREG, 0644, 8 }, { "a", NULL, NULL, AE_IFREG, 0644, 8 });
    refused(NULL, 0, "has no file");
    CLEANUP(freep) char *text = read_text("victim/file");
    assert_string_equal(text, "unchanged");
}

static void a_setuid_bit_is_not_unpacked(void **state) {
    (void)state;
    struct stat st;
    CLEANUP(closep) int fd = tar_of(&(struct item){ "s", NULL, NULL, AE_IFREG, 06755, 8 }, 1);
    assert_int_equal(mkdir("copy", 0700), 0);
    OK(code_unpack(fd, "copy", &e));
    assert_int_equal(stat("copy/s", &st), 0);
    assert_int_equal(st.st_mode & 07777, 0555);
}

static void a_truncated_or_foreign_file_is_no_archive(void **state) {
    (void)state;
    CLEANUP(closep) int fd = tar_of(&(struct item){ "s", NULL, NULL, AE_IFREG, 0644, 8192 }, 1);
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(mkdir("copy", 0700), 0);
    FAILS(code_unpack(fd, "copy", &e), ST_INVALID_ARGUMENT, "cannot be read");
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(pwrite(fd, "#!/bin/sh\n", 10, 0), 10);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    FAILS(code_unpack(fd, "copy", &e), ST_INVALID_ARGUMENT, "");
}

/* The kernel answers EIO where a process has no memory. */
static void a_disk_that_cannot_be_read_is_no_fault_of_the_archive(void **state) {
    (void)state;
    CLEANUP(closep) int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(mkdir("copy", 0700), 0);
    FAILS(code_unpack(fd, "copy", &e), ST_RESOURCE_EXHAUSTED, "cannot be read");
}

/* ---- the download ---- */

/* NOT_FOUND and INVALID_ARGUMENT would mean that no host can run the job. */
static void a_token_or_certificate_that_is_missing_or_half_written_is_a_fault_of_the_host(void **state) {
    (void)state;
    static char missing[] = "missing", empty[] = "./empty", controller[] = "127.0.0.1:1", none[] = "";
    const struct code_cache cache = { .path = "." };
    Trainyard__V1__CodeFetch fetch = TRAINYARD__V1__CODE_FETCH__INIT;
    write_file(empty, "", 0600);
    fetch.controller = controller;
    fetch.token = none;
    char *const files[] = { missing, empty };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        fetch.tls_ca = fetch.tls_cert = fetch.tls_key = none;
        fetch.token_file = files[i];
        FAILS(code_download(&fetch, &cache, "a", -1, &e), ST_INTERNAL, "open the connection to the controller");
        fetch.token_file = none;
        fetch.tls_ca = fetch.tls_cert = fetch.tls_key = files[i];
        FAILS(code_download(&fetch, &cache, "a", -1, &e), ST_INTERNAL, "open the connection to the controller");
    }
}

/* ---- the cache ---- */

struct source {
    int64_t bytes;
    char fill;
    int downloads;
};

static status_t give(void *ctx, const struct code_cache *cache, const char *archive, int file, struct err *e) {
    struct source *s = ctx;
    (void)archive;
    s->downloads++;
    TRY(code_cache_reserve(cache, file, s->bytes, e));
    char *data = malloc((size_t)s->bytes);
    memset(data, s->fill, (size_t)s->bytes);
    status_t st = fd_write_all(file, data, (size_t)s->bytes, e);
    free(data);
    return st;
}

static void name_of(const struct source *s, char ret[SHA256_HEX]) {
    uint8_t digest[SHA256_BYTES];
    char *data = malloc((size_t)s->bytes);
    memset(data, s->fill, (size_t)s->bytes);
    sha256_of(data, (size_t)s->bytes, digest);
    sha256_hex(digest, ret);
    free(data);
}

static int open_cached(struct code_cache *cache, struct source *s) {
    char name[SHA256_HEX];
    int fd;
    name_of(s, name);
    cache->ctx = s;
    OK(code_cache_open(cache, name, &fd, &e));
    return fd;
}

static void the_archive_that_was_not_used_for_longest_makes_space(void **state) {
    (void)state;
    struct source a = { 400 << 10, 'a', 0 }, b = { 400 << 10, 'b', 0 }, c = { 400 << 10, 'c', 0 };
    struct code_cache cache = { .path = "cache", .max_bytes = 1 << 20, .download = give };
    assert_int_equal(mkdir("cache", 0700), 0);
    close(open_cached(&cache, &a));
    close(open_cached(&cache, &b));
    close(open_cached(&cache, &a)); /* used again: b is the oldest */
    close(open_cached(&cache, &c));
    close(open_cached(&cache, &a));
    assert_int_equal(a.downloads, 1);
    close(open_cached(&cache, &b));
    assert_int_equal(b.downloads, 2);
}

static void an_archive_that_is_being_read_is_not_removed(void **state) {
    (void)state;
    struct source a = { 600 << 10, 'a', 0 }, b = { 300 << 10, 'b', 0 }, c = { 300 << 10, 'c', 0 };
    struct code_cache cache = { .path = "cache", .max_bytes = 1 << 20, .download = give };
    assert_int_equal(mkdir("cache", 0700), 0);
    CLEANUP(closep) int reader = open_cached(&cache, &a);
    close(open_cached(&cache, &b));
    close(open_cached(&cache, &c));
    close(open_cached(&cache, &a));
    assert_int_equal(a.downloads, 1);
    close(open_cached(&cache, &b));
    assert_int_equal(b.downloads, 2);
}

static void a_download_that_was_killed_leaves_nothing_that_stays(void **state) {
    (void)state;
    struct source a = { 900 << 10, 'a', 0 };
    struct code_cache cache = { .path = "cache", .max_bytes = 1 << 20, .download = give };
    char part[100], name[SHA256_HEX];
    write_file("cache/0123.part", "of a process that is gone", 0600);
    assert_int_equal(truncate("cache/0123.part", 500 << 10), 0);
    name_of(&a, name);
    snprintf(part, sizeof part, "cache/%s.part", name);
    write_file(part, "half of it", 0600);
    close(open_cached(&cache, &a));
    assert_int_equal(access("cache/0123.part", F_OK), -1);
    assert_int_equal(access(part, F_OK), -1);
}

static void bytes_that_the_name_does_not_promise_are_not_kept(void **state) {
    (void)state;
    struct source a = { 1000, 'a', 0 }, wrong = { 1000, 'x', 0 };
    struct code_cache cache = { .path = "cache", .max_bytes = 1 << 20, .download = give, .ctx = &wrong };
    char name[SHA256_HEX], path[100];
    int fd;
    assert_int_equal(mkdir("cache", 0700), 0);
    name_of(&a, name);
    FAILS(code_cache_open(&cache, name, &fd, &e), ST_DATA_LOSS, "other bytes than its name says");
    snprintf(path, sizeof path, "cache/%s.tar", name);
    assert_int_equal(access(path, F_OK), -1);
    struct source large = { 2 << 20, 'a', 0 };
    name_of(&large, name);
    cache.ctx = &large;
    FAILS(code_cache_open(&cache, name, &fd, &e), ST_RESOURCE_EXHAUSTED, "--code-cache-mib 1");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(names_that_leave_the_folder_are_refused),
        TEST(links_that_leave_the_folder_are_refused),
        TEST(patterns_match_as_those_of_git),
        TEST(patterns_are_bounded),
        TEST(the_same_files_give_the_same_bytes_whatever_their_times_modes_and_order_are),
        TEST(what_was_packed_is_unpacked_read_only),
        TEST(an_archive_of_another_client_cannot_write_outside),
        TEST(a_setuid_bit_is_not_unpacked),
        TEST(a_truncated_or_foreign_file_is_no_archive),
        TEST(a_disk_that_cannot_be_read_is_no_fault_of_the_archive),
        TEST(a_token_or_certificate_that_is_missing_or_half_written_is_a_fault_of_the_host),
        TEST(the_archive_that_was_not_used_for_longest_makes_space),
        TEST(an_archive_that_is_being_read_is_not_removed),
        TEST(a_download_that_was_killed_leaves_nothing_that_stays),
        TEST(bytes_that_the_name_does_not_promise_are_not_kept),
    };
    return cmocka_run_group_tests_name("code", tests, NULL, NULL);
}
