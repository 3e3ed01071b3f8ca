/* Paths below a folder: no path leads out of it, symbolic links are not followed, and secrets are never read as data.
 */
#include "base/beneath.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/roots.h"
#include "base/secret.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        struct err why_ = { "" };                                                                                      \
        struct err *e = &why_;                                                                                         \
        if ((call) != ST_OK)                                                                                           \
            fail_msg("%s: %s", #call, why_.msg);                                                                       \
    } while (0)

#define FAILS(call, status, words)                                                                                     \
    do {                                                                                                               \
        struct err why_ = { "" };                                                                                      \
        struct err *e = &why_;                                                                                         \
        assert_int_equal(call, status);                                                                                \
        if (!strstr(why_.msg, words))                                                                                  \
            fail_msg("%s does not say '%s'", why_.msg, words);                                                         \
    } while (0)

static char base[64];

static const char *in(const char *name) {
    static char paths[4][160];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s%s%s", base, *name ? "/" : "", name);
    return path;
}

static void put(const char *name, const char *text) {
    struct err e;
    assert_int_equal(file_write_atomic(in(name), text, strlen(text), 0600, &e), ST_OK);
}

static bool there(const char *name) { return faccessat(AT_FDCWD, in(name), F_OK, AT_SYMLINK_NOFOLLOW) == 0; }

/* inside/ and outside/, each with a file, and links from inside/ to outside/. */
static int make(void **state) {
    (void)state;
    snprintf(base, sizeof base, "/tmp/trainyard-beneath-XXXXXX");
    assert_non_null(mkdtemp(base));
    assert_int_equal(mkdir(in("inside"), 0755) | mkdir(in("outside"), 0755) | mkdir(in("inside/folder"), 0755), 0);
    put("inside/file", "inside");
    put("inside/folder/file", "deeper");
    put("outside/file", "outside");
    assert_int_equal(symlink(in("outside/file"), in("inside/link")), 0);
    assert_int_equal(symlink("file", in("inside/near")), 0);
    assert_int_equal(symlink(in("outside"), in("inside/out")), 0);
    return symlink(in("inside"), in("alias"));
}

static int clean(void **state) {
    (void)state;
    return dir_remove(base, NULL) == ST_OK ? 0 : -1;
}

static int root_of(const char *name) {
    int fd = open(in(name), O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void reads(int fd, const char *text) {
    char got[160];
    ssize_t n = read(fd, got, sizeof got - 1);
    assert_true(n >= 0);
    got[n] = '\0';
    assert_string_equal(got, text);
    close(fd);
}

static void a_name_stays_below_its_folder(void **state) {
    (void)state;
    CLEANUP(closep) int root = root_of("inside");
    int fd = -1;
    OK(beneath_open(root, "folder/file", O_RDONLY, "p", &fd, e));
    reads(fd, "deeper");
    static const char *const led[] = { "link", "near", "out/file", "out" };
    for (size_t i = 0; i < sizeof led / sizeof *led; i++) {
        FAILS(beneath_open(root, led[i], O_RDONLY, led[i], &fd, e), ST_PERMISSION_DENIED, "symbolic link");
        FAILS(beneath_open(root, led[i], O_PATH | O_NOFOLLOW, led[i], &fd, e), ST_PERMISSION_DENIED, "symbolic link");
    }
    FAILS(beneath_open(root, "../outside/file", O_RDONLY, "p", &fd, e), ST_PERMISSION_DENIED, "leads out");
    FAILS(beneath_open(root, "/etc/passwd", O_RDONLY, "p", &fd, e), ST_PERMISSION_DENIED, "leads out");
    FAILS(beneath_open(root, "none", O_RDONLY, "'none' as told", &fd, e), ST_NOT_FOUND, "'none' as told");
}

static void folders_are_made_below_and_never_through_a_link(void **state) {
    (void)state;
    CLEANUP(closep) int root = root_of("inside");
    int fd = -1;
    OK(beneath_make(root, "a/b//c", 0700, "p", &fd, e));
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    close(fd);
    OK(beneath_make(root, "a/b/c", 0700, "p", NULL, e));
    FAILS(beneath_make(root, "out/new", 0700, "p", NULL, e), ST_PERMISSION_DENIED, "symbolic link");
    assert_false(there("outside/new"));
    FAILS(beneath_make(root, "a/../../outside/new", 0700, "p", NULL, e), ST_PERMISSION_DENIED, "..");
    FAILS(beneath_make(root, "file/new", 0700, "p", NULL, e), ST_ALREADY_EXISTS, "file");
    assert_int_equal(chmod(in("inside/a"), 01777), 0);
    FAILS(beneath_make(root, "a/new", 0700, "p", NULL, e), ST_PERMISSION_DENIED, "all users");
    assert_false(there("inside/a/new"));
}

static void removing_follows_no_link_and_takes_only_folders(void **state) {
    (void)state;
    CLEANUP(closep) int root = root_of("inside");
    /* Links within a folder are removed; their targets stay. */
    assert_int_equal(symlink(in("outside"), in("inside/folder/out")), 0);
    assert_int_equal(mkdir(in("inside/folder/deep"), 0700), 0);
    put("inside/folder/deep/file", "x");
    OK(beneath_remove(root, "folder", "p", e));
    assert_false(there("inside/folder"));
    assert_true(there("outside/file"));
    OK(beneath_remove(root, "folder", "p", e));
    OK(beneath_remove(root, "folder/deep", "p", e));
    /* A folder on the path, or the folder itself, was replaced by a link to a folder elsewhere. */
    assert_int_equal(mkdir(in("outside/step"), 0700), 0);
    FAILS(beneath_remove(root, "out/step", "p", e), ST_PERMISSION_DENIED, "symbolic link");
    FAILS(beneath_remove(root, "out", "p", e), ST_FAILED_PRECONDITION, "not a folder");
    FAILS(beneath_remove(root, "file", "p", e), ST_FAILED_PRECONDITION, "not a folder");
    FAILS(beneath_remove(root, "../outside", "p", e), ST_PERMISSION_DENIED, "leads out");
    FAILS(beneath_remove(root, "", "p", e), ST_INVALID_ARGUMENT, "not the name");
    assert_true(there("outside/step") && there("inside/file") && there("inside/out"));
}

static void a_path_is_admitted_below_the_roots_alone(void **state) {
    (void)state;
    char root[160], alias[160], other[160];
    snprintf(root, sizeof root, "%s", in("inside"));
    snprintf(alias, sizeof alias, "%s", in("alias"));
    snprintf(other, sizeof other, "%s", in("inside/out"));
    const char *one[] = { root }, *linked[] = { alias }, *nested[] = { root, other };
    struct roots roots = { .option = "--data-root", .paths = one, .n = 1 };
    int fd = -1;
    OK(roots_open(&roots, in("inside/file"), O_RDONLY, &fd, e));
    reads(fd, "inside");
    FAILS(roots_open(&roots, in("inside/link"), O_RDONLY, &fd, e), ST_PERMISSION_DENIED, "symbolic link");
    /* The message for a path outside does not reveal whether the path exists. */
    FAILS(roots_open(&roots, in("outside/file"), O_RDONLY, &fd, e), ST_PERMISSION_DENIED, "lies below no --data-root");
    FAILS(roots_open(&roots, in("outside/none"), O_RDONLY, &fd, e), ST_PERMISSION_DENIED, "lies below no --data-root");
    FAILS(roots_open(&roots, in("insidefile"), O_RDONLY, &fd, e), ST_PERMISSION_DENIED, "lies below no --data-root");
    FAILS(roots_open(&roots, in("inside/../outside/file"), O_RDONLY, &fd, e), ST_INVALID_ARGUMENT, "'..'");
    FAILS(roots_open(&roots, "inside/file", O_RDONLY, &fd, e), ST_INVALID_ARGUMENT, "absolute");
    /* A root may be a link, because its owner chose the path. Its real path is allowed too. */
    roots.paths = linked;
    OK(roots_open(&roots, in("alias/file"), O_RDONLY, &fd, e));
    reads(fd, "inside");
    OK(roots_open(&roots, in("inside/file"), O_RDONLY, &fd, e));
    reads(fd, "inside");
    /* The longest root applies. */
    roots = (struct roots){ .option = "--data-root", .paths = nested, .n = 2 };
    OK(roots_open(&roots, in("inside/out/file"), O_RDONLY, &fd, e));
    reads(fd, "outside");
    roots.n = 0;
    FAILS(roots_open(&roots, in("inside/file"), O_RDONLY, &fd, e), ST_PERMISSION_DENIED, "no --data-root is given");
    OK(roots_open(NULL, in("inside/link"), O_RDONLY, &fd, e));
    reads(fd, "outside");
}

static void what_is_excepted_stays_closed_by_every_name(void **state) {
    (void)state;
    put("outside/token", "text that looks like nothing");
    assert_int_equal(link(in("outside/token"), in("inside/innocent")), 0);
    assert_int_equal(mkdir(in("inside/state"), 0700), 0);
    put("inside/state/spool", "x");
    char paths[2][160];
    snprintf(paths[0], sizeof paths[0], "%s", in("outside/token"));
    snprintf(paths[1], sizeof paths[1], "%s", in("alias/state"));
    struct roots_except except[2];
    OK(roots_except_find(paths[0], &except[0], e));
    OK(roots_except_find(paths[1], &except[1], e));
    const char *all[] = { "/" };
    struct roots roots = { .option = "--data-root", .paths = all, .n = 1, .except = except, .n_except = 2 };
    int fd = -1;
    static const char *const closed[] = { "outside/token", "inside/innocent", "inside/state", "inside/state/spool" };
    for (size_t i = 0; i < sizeof closed / sizeof *closed; i++)
        FAILS(roots_open(&roots, in(closed[i]), O_RDONLY, &fd, e), ST_PERMISSION_DENIED, "belongs to the service");
    OK(roots_open(&roots, in("inside/file"), O_RDONLY, &fd, e));
    reads(fd, "inside");
    const char *below[] = { base };
    roots.paths = below;
    FAILS(roots_make(&roots, in("inside/state/a/b"), 0700, &fd, e), ST_PERMISSION_DENIED, "belongs to the service");
    char opened[160];
    assert_int_equal(mkdir(in("inside/state/a"), 0700), 0);
    snprintf(opened, sizeof opened, "%s", in("inside/state/a"));
    roots.opened = opened; /* but this folder in an excepted one */
    OK(roots_make(&roots, in("inside/state/a/b"), 0700, &fd, e));
    closep(&fd);
    FAILS(roots_make(&roots, in("inside/state/b"), 0700, &fd, e), ST_PERMISSION_DENIED, "belongs to the service");
    roots.paths = all;
    FAILS(roots_open(&roots, "/proc/self/environ", O_RDONLY, &fd, e), ST_PERMISSION_DENIED, "");
    FAILS(roots_open(&roots, "/proc/version", O_RDONLY, &fd, e), ST_PERMISSION_DENIED, "kernel's");
}

#define DIGITS "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define TOKEN  SECRET_TOKEN_PREFIX DIGITS

static void keys_and_tokens_are_found_anywhere_in_a_file(void **state) {
    (void)state;
    static const struct {
        const char *text, *words;
    } table[] = {
        { "-----BEGIN PRIVATE KEY-----\nMIG\n-----END PRIVATE KEY-----\n", "private key" },
        { "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n-----BEGIN RSA PRIVATE KEY-----\r\nMIG",
          "private key" },
        { "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n", "private key" },
        { TOKEN "\n", "access token" },
        { "  " TOKEN, "access token" },
        { "TRAINYARD_TOKEN=" TOKEN "\nHOME=/root\n", "access token" },
        { TOKEN "\n" TOKEN "\n", "access token" },
        { SECRET_KEY_PREFIX DIGITS "\n", "key for secrets" },
        { "a text about " SECRET_KEY_PREFIX "files\n", NULL },
        { "{\"text\": \"" SECRET_TOKEN_PREFIX " " TOKEN "\"}", "access token" },
        { "-----BEGIN CERTIFICATE-----\nMII, and no PRIVATE KEY-----\n", NULL },
        { "a text about " SECRET_TOKEN_PREFIX "tokens\n", NULL },
        { SECRET_TOKEN_PREFIX "0123456789abcdef..., a prefix and 64 hex digits\n", NULL },
        { "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n", NULL },
        { "", NULL },
    };
    const char *paths[] = { base };
    struct roots roots = { .option = "--data-root", .paths = paths, .n = 1 };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        int fd = -1;
        put("inside/secret", table[i].text);
        if (table[i].words) {
            FAILS(roots_open(&roots, in("inside/secret"), O_RDONLY, &fd, e), ST_PERMISSION_DENIED, table[i].words);
        } else {
            OK(roots_open(&roots, in("inside/secret"), O_RDONLY, &fd, e));
            reads(fd, table[i].text);
        }
    }
}

/* Binary content is checked too: here it begins with NUL. */
static void the_beginning_of_a_larger_file_is_searched(void **state) {
    (void)state;
    static const char *const secrets[] = { TOKEN, "-----BEGIN PRIVATE KEY-----\nMIG\n" };
    const char *paths[] = { base };
    struct roots roots = { .option = "--data-root", .paths = paths, .n = 1 };
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++) {
        const size_t n = strlen(secrets[i]);
        CLEANUP(closep) int fd = open(in("inside/large"), O_RDWR | O_CREAT | O_TRUNC, 0600);
        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, 4 << 20), 0);
        assert_int_equal(pwrite(fd, secrets[i], n, SECRET_LOOKED_AT_BYTES), (ssize_t)n);
        int opened = -1;
        OK(roots_open(&roots, in("inside/large"), O_RDONLY, &opened, e));
        close(opened);
        assert_int_equal(pwrite(fd, secrets[i], n, SECRET_LOOKED_AT_BYTES - (off_t)n), (ssize_t)n);
        FAILS(roots_open(&roots, in("inside/large"), O_RDONLY, &opened, e), ST_PERMISSION_DENIED, "never read as data");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_name_stays_below_its_folder, make, clean),
        cmocka_unit_test_setup_teardown(folders_are_made_below_and_never_through_a_link, make, clean),
        cmocka_unit_test_setup_teardown(removing_follows_no_link_and_takes_only_folders, make, clean),
        cmocka_unit_test_setup_teardown(a_path_is_admitted_below_the_roots_alone, make, clean),
        cmocka_unit_test_setup_teardown(what_is_excepted_stays_closed_by_every_name, make, clean),
        cmocka_unit_test_setup_teardown(keys_and_tokens_are_found_anywhere_in_a_file, make, clean),
        cmocka_unit_test_setup_teardown(the_beginning_of_a_larger_file_is_searched, make, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
