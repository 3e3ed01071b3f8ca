/* The token cache, with real processes: texts are encoded once, to the same tokens as without it, whoever is killed in
 * the middle; and what is damaged, does not fit or changes is never used. */
#include "base/cleanup.h"
#include "base/file.h"
#include "engine/data/corpus.h"
#include "engine/data/text_file.h"
#include "engine/data/token_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { TEXT_BYTES = 5 << 18, SPACE = 1 << 30, PATH_BYTES = 200 };

static char top[] = "/tmp/ty-token-cache-XXXXXX";
static char folder[PATH_BYTES]; /* of the cache of one test */
static char paths[2][PATH_BYTES];
static struct tokenizer *tokenizer;

/* ---- what happens ---- */

struct seen {
    int encoded, damaged, missed;
    char last[640];
};

static void on_notice(void *ctx, const char *kind, const char *message) {
    struct seen *s = ctx;
    s->encoded += strcmp(kind, "text_encoded") == 0;
    s->damaged += strcmp(kind, "token_cache_damaged") == 0;
    s->missed += strcmp(kind, "token_cache_missed") == 0;
    snprintf(s->last, sizeof s->last, "%s", message);
}

static struct token_cache cache_of(struct seen *seen) {
    return (
        struct token_cache){ .folder = folder, .max_bytes = SPACE, .writes = true, .notice = on_notice, .ctx = seen };
}

static status_t corpus_of_text(int text, const struct token_cache *cache, void (*progress)(void *ctx), void *ctx,
                               struct corpus **ret, struct err *e) {
    const char *path = paths[text];
    const struct corpus_config config = { .files = &path,
                                          .n_files = 1,
                                          .tokenizer = tokenizer,
                                          .validation_fraction = 0.25,
                                          .threads = 2,
                                          .cache = cache,
                                          .progress = progress,
                                          .ctx = ctx };
    return corpus_open(&config, ret, e);
}

static struct corpus *opened(int text, const struct token_cache *cache) {
    struct corpus *c = NULL;
    struct err e = { "" };
    if (corpus_of_text(text, cache, NULL, NULL, &c, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return c;
}

static void assert_same(const struct corpus *a, const struct corpus *b) {
    assert_string_equal(corpus_sha256(a), corpus_sha256(b));
    for (int split = 0; split < 2; split++) {
        const int64_t n = corpus_tokens(a, split);
        CLEANUP(freep) int32_t *x = malloc((size_t)n * sizeof *x + 1);
        CLEANUP(freep) int32_t *y = malloc((size_t)n * sizeof *y + 1);
        assert_int_equal(n, corpus_tokens(b, split));
        assert_int_equal(corpus_read(a, split, 0, (int)n, x, NULL), ST_OK);
        assert_int_equal(corpus_read(b, split, 0, (int)n, y, NULL), ST_OK);
        assert_memory_equal(x, y, (size_t)n * sizeof *x);
    }
}

/* The files of the cache whose names end so; the path of the last one. */
static int files_with(const char *end, char ret[PATH_BYTES * 2]) {
    DIR *d = opendir(folder);
    int n = 0;
    for (const struct dirent *entry; d && (entry = readdir(d));) {
        const size_t length = strlen(entry->d_name);
        if (length != 64 + strlen(end) || strcmp(entry->d_name + 64, end) != 0)
            continue;
        snprintf(ret, PATH_BYTES * 2, "%s/%.69s", folder, entry->d_name);
        n++;
    }
    closedir(d);
    return n;
}

static int parts(void) {
    char path[PATH_BYTES * 2];
    return files_with(".part", path);
}

static char *only_file(char ret[PATH_BYTES * 2]) {
    assert_int_equal(files_with("", ret), 1);
    return ret;
}

/* ---- tests ---- */

static void tokens_are_those_of_memory_and_take_none(void **state) {
    (void)state;
    struct seen seen = { 0 };
    const struct token_cache cache = cache_of(&seen);
    CLEANUP(corpus_closep) struct corpus *memory = opened(0, NULL), *first = opened(0, &cache);
    CLEANUP(corpus_closep) struct corpus *second = opened(0, &cache);
    assert_same(first, memory);
    assert_same(second, memory);
    assert_int_equal(seen.encoded, 1);
    assert_int_equal(seen.missed, 0);
    assert_true(corpus_bytes(memory) > 0);
    assert_int_equal(corpus_bytes(first), 0);
    assert_int_equal(corpus_bytes(second), 0);
    assert_int_equal(parts(), 0);
}

static void the_ends_of_files_the_separator_and_the_tokenizer_make_other_tokens(void **state) {
    (void)state;
    struct seen seen = { 0 };
    const struct token_cache cache = cache_of(&seen);
    const char *both[] = { paths[0], paths[1] };
    const struct text_format formats[] = { { .form = TEXT_PLAIN }, { .form = TEXT_PLAIN, .separator = "\n" } };
    char joined[PATH_BYTES];
    const char *one = joined;
    struct bytes text;
    bytes_init(&text, 4 * TEXT_BYTES);
    for (int i = 0; i < 2; i++)
        assert_int_equal(file_read(both[i], &text, NULL), ST_OK);
    snprintf(joined, sizeof joined, "%s/joined.txt", top);
    assert_int_equal(file_write_atomic(joined, text.data, text.len, 0644, NULL), ST_OK);
    bytes_done(&text);
    const struct corpus_config configs[] = {
        { .files = both, .n_files = 2, .tokenizer = tokenizer, .format = &formats[0], .cache = &cache },
        { .files = &one, .n_files = 1, .tokenizer = tokenizer, .format = &formats[0], .cache = &cache },
        { .files = both, .n_files = 2, .tokenizer = tokenizer, .format = &formats[1], .cache = &cache },
        { .files = both,
          .n_files = 1,
          .validation = both + 1,
          .n_validation = 1,
          .tokenizer = tokenizer,
          .cache = &cache },
    };
    for (int i = 0; i < 4; i++) {
        struct corpus_config alone = configs[i];
        alone.cache = NULL;
        CLEANUP(corpus_closep) struct corpus *a = NULL;
        CLEANUP(corpus_closep) struct corpus *b = NULL;
        assert_int_equal(corpus_open(&configs[i], &a, NULL), ST_OK);
        assert_int_equal(seen.encoded, i + 1);
        assert_int_equal(corpus_open(&alone, &b, NULL), ST_OK);
        assert_same(a, b);
    }
    unlink(joined);
}

static void a_small_text_stays_in_memory(void **state) {
    (void)state;
    struct seen seen = { 0 };
    const struct token_cache cache = cache_of(&seen);
    char small[PATH_BYTES];
    const char *path = small;
    snprintf(small, sizeof small, "%s/small.txt", top);
    assert_int_equal(file_write_atomic(small, "some words\n", 11, 0644, NULL), ST_OK);
    const struct corpus_config config = { .files = &path, .n_files = 1, .tokenizer = tokenizer, .cache = &cache };
    CLEANUP(corpus_closep) struct corpus *c = NULL;
    char any[PATH_BYTES * 2];
    assert_int_equal(corpus_open(&config, &c, NULL), ST_OK);
    assert_true(corpus_bytes(c) > 0);
    assert_int_equal(files_with("", any) + seen.encoded + seen.missed, 0);
    unlink(small);
}

/* Set: a child that has the text open writes to the first pipe, and keeps the text open until the second one ends. */
static int *opened_fd, *until_fd;

static void keep_open(void) {
    char byte;
    if (!opened_fd)
        return;
    close(until_fd[1]);
    if (write(opened_fd[1], "x", 1) != 1 || read(until_fd[0], &byte, 1) != 0)
        _exit(103);
}

/* A process that opens the text, and exits with the number of times that it encoded. */
static pid_t child_opens(void (*progress)(void *ctx), void *ctx) {
    fflush(NULL);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    struct seen seen = { 0 };
    const struct token_cache cache = cache_of(&seen);
    struct corpus *c = NULL, *memory = NULL;
    struct err e = { "" };
    if (corpus_of_text(0, &cache, progress, ctx, &c, &e) != ST_OK || corpus_bytes(c) > 0 || seen.missed > 0) {
        fprintf(stderr, "%s %s\n", e.msg, seen.last);
        _exit(100);
    }
    keep_open();
    memory = opened(0, NULL);
    assert_same(c, memory);
    _exit(seen.encoded);
}

static int status_of(pid_t pid) {
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* All of them have the tokens open at the same time, as the ranks of a job do. */
static void processes_that_begin_together_encode_once(void **state) {
    (void)state;
    pid_t pids[4];
    int encoded = 0, all_opened[2], until[2];
    char byte;
    assert_int_equal(pipe(all_opened) | pipe(until), 0);
    opened_fd = all_opened;
    until_fd = until;
    for (int i = 0; i < 4; i++)
        pids[i] = child_opens(NULL, NULL);
    for (int i = 0; i < 4; i++)
        assert_int_equal(read(all_opened[0], &byte, 1), 1);
    opened_fd = until_fd = NULL;
    close(until[1]);
    for (int i = 0; i < 4; i++) {
        const int status = status_of(pids[i]);
        assert_in_range(status, 0, 1);
        encoded += status;
    }
    assert_int_equal(encoded, 1);
    assert_int_equal(parts(), 0);
    close(until[0]);
    close(all_opened[0]);
    close(all_opened[1]);
}

/* In the middle of encoding: says so, and waits to be killed. */
static void stop_in_part(void *ctx) {
    const int *fd = ctx;
    char path[PATH_BYTES * 2], byte;
    struct stat st;
    if (files_with(".part", path) == 0 || stat(path, &st) < 0 || st.st_size == 0)
        return;
    if (write(fd[1], "x", 1) != 1 || read(fd[2], &byte, 1) != 0)
        _exit(101);
    _exit(102);
}

/* Another process waits for the lock of the part. */
static void say_waits(void *ctx) {
    const int *fd = ctx;
    if (parts() > 0 && write(fd[1], "w", 1) != 1)
        _exit(101);
}

static void a_killed_encoder_leaves_its_work_to_the_one_that_waits(void **state) {
    (void)state;
    int said[2], hold[2], waits[2];
    char byte;
    assert_int_equal(pipe(said) | pipe(hold) | pipe(waits), 0);
    int of_first[] = { -1, said[1], hold[0] }, of_second[] = { -1, waits[1] };
    const pid_t first = child_opens(stop_in_part, of_first);
    assert_int_equal(read(said[0], &byte, 1), 1);
    const pid_t second = child_opens(say_waits, of_second);
    for (int ticks = 0; ticks < 3; ticks++) /* the first in its own reading, the others while it waits */
        assert_int_equal(read(waits[0], &byte, 1), 1);
    assert_true(first > 0 && kill(first, SIGKILL) == 0);
    assert_int_equal(status_of(first), -SIGKILL);
    assert_int_equal(status_of(second), 1);
    assert_int_equal(parts(), 0);
    for (int i = 0; i < 2; i++) {
        close(said[i]);
        close(hold[i]);
        close(waits[i]);
    }
}

/* Such as a rank of the same user that has locked it. */
static void a_process_that_holds_the_lock_and_writes_nothing_is_not_waited_for(void **state) {
    (void)state;
    struct seen seen = { 0 };
    struct token_cache cache = cache_of(&seen);
    char byte, path[PATH_BYTES * 2];
    int said[2], hold[2];
    struct stat st;
    cache.still_ms = 1;
    assert_int_equal(pipe(said) | pipe(hold), 0);
    int of_first[] = { -1, said[1], hold[0] };
    const pid_t first = child_opens(stop_in_part, of_first);
    assert_int_equal(read(said[0], &byte, 1), 1);
    assert_int_equal(files_with(".part", path), 1);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600); /* no other user can lock it */
    CLEANUP(corpus_closep) struct corpus *memory = opened(0, NULL), *c = opened(0, &cache);
    assert_same(c, memory);
    assert_int_equal(seen.missed, 1);
    assert_non_null(strstr(seen.last, "another process has locked"));
    assert_true(first > 0 && kill(first, SIGKILL) == 0);
    assert_int_equal(status_of(first), -SIGKILL);
    corpus_close(opened(0, &cache));
    assert_int_equal(seen.encoded, 1);
    for (int i = 0; i < 2; i++) {
        close(said[i]);
        close(hold[i]);
    }
}

static void damage(const char *path, int what) {
    CLEANUP(closep) int fd = open(path, O_RDWR);
    char byte;
    struct stat st;
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    const off_t at[] = { st.st_size - 1, ENCODED_TEXT_HEADER_BYTES, 20, 34,
                         70 }; /* tokens, their number, key, digest */
    if (what == 5) {
        assert_int_equal(ftruncate(fd, st.st_size - 2), 0);
        return;
    }
    if (what == 6) {
        assert_int_equal(ftruncate(fd, 10), 0);
        return;
    }
    assert_int_equal(pread(fd, &byte, 1, at[what]), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at[what]), 1);
}

static void a_damaged_file_is_reported_and_encoded_again(void **state) {
    (void)state;
    struct seen seen = { 0 };
    const struct token_cache cache = cache_of(&seen);
    char path[PATH_BYTES * 2];
    CLEANUP(corpus_closep) struct corpus *memory = opened(0, NULL);
    corpus_close(opened(0, &cache));
    for (int what = 0; what < 7; what++) {
        damage(only_file(path), what);
        CLEANUP(corpus_closep) struct corpus *c = opened(0, &cache);
        assert_same(c, memory);
        assert_int_equal(corpus_bytes(c), 0);
        assert_int_equal(seen.encoded, what + 2);
        assert_int_equal(seen.damaged, what + 1);
    }
    corpus_close(opened(0, &cache));
    assert_int_equal(seen.encoded, 8); /* what was written again is whole */
}

static void a_file_that_shrinks_in_use_is_an_error(void **state) {
    (void)state;
    struct seen seen = { 0 };
    const struct token_cache cache = cache_of(&seen);
    char path[PATH_BYTES * 2];
    int32_t token;
    struct err e = { "" };
    CLEANUP(corpus_closep) struct corpus *c = opened(0, &cache);
    assert_int_equal(truncate(only_file(path), ENCODED_TEXT_HEADER_BYTES), 0);
    assert_int_equal(corpus_read(c, CORPUS_TRAIN, 0, 1, &token, &e), ST_FAILED_PRECONDITION);
    assert_non_null(strstr(e.msg, path));
}

static void a_cache_without_space_leaves_the_tokens_in_memory(void **state) {
    (void)state;
    struct seen seen = { 0 };
    struct token_cache cache = cache_of(&seen);
    CLEANUP(corpus_closep) struct corpus *memory = opened(0, NULL);
    cache.max_bytes = 1 << 20;
    CLEANUP(corpus_closep) struct corpus *c = opened(0, &cache);
    assert_same(c, memory);
    assert_true(corpus_bytes(c) > 0);
    assert_int_equal(seen.missed, 1);
    assert_non_null(strstr(seen.last, "no space"));
    assert_int_equal(parts(), 0);
}

static void the_oldest_file_goes_unless_it_is_in_use(void **state) {
    (void)state;
    struct seen seen = { 0 };
    struct token_cache cache = cache_of(&seen);
    char path[PATH_BYTES * 2];
    struct corpus *first = opened(0, &cache);
    struct stat st;
    assert_int_equal(stat(only_file(path), &st), 0);
    cache.max_bytes = st.st_size + TEXT_BYTES / 2; /* for one of the two */
    CLEANUP(corpus_closep) struct corpus *other = opened(1, &cache);
    assert_int_equal(seen.missed, 1); /* the first one is in use */
    assert_true(corpus_bytes(other) > 0);
    corpus_close(first);
    CLEANUP(corpus_closep) struct corpus *again = opened(1, &cache);
    assert_int_equal(corpus_bytes(again), 0);
    assert_int_equal(files_with("", path), 1); /* the first one is gone */
    assert_int_equal(seen.encoded, 2);
}

static void what_a_killed_process_left_makes_space(void **state) {
    (void)state;
    struct seen seen = { 0 };
    struct token_cache cache = cache_of(&seen);
    char left[PATH_BYTES * 2];
    snprintf(left, sizeof left, "%s/%064d.part", folder, 7);
    assert_int_equal(file_write_atomic(left, "", 0, 0644, NULL), ST_OK);
    assert_int_equal(truncate(left, SPACE - 10), 0);
    CLEANUP(corpus_closep) struct corpus *c = opened(0, &cache);
    assert_int_equal(corpus_bytes(c), 0);
    assert_int_equal(access(left, F_OK), -1);
}

static void a_folder_that_cannot_be_used_leaves_the_tokens_in_memory(void **state) {
    (void)state;
    struct seen seen = { 0 };
    struct token_cache cache = cache_of(&seen);
    cache.folder = "/nonexistent";
    CLEANUP(corpus_closep) struct corpus *c = opened(0, &cache);
    assert_true(corpus_bytes(c) > 0);
    assert_int_equal(seen.missed, 1);
    assert_non_null(strstr(seen.last, "/nonexistent"));
}

/* ---- a cache that only reads ---- */

static int asked;

static status_t encode_elsewhere(void *ctx, const struct data_text *text, struct err *e) {
    (void)ctx, (void)text, (void)e;
    asked++;
    return status_of(child_opens(NULL, NULL)) == 1 ? ST_OK : ST_INTERNAL;
}

static status_t encode_refused(void *ctx, const struct data_text *text, struct err *e) {
    (void)ctx, (void)text;
    return err_set(e, ST_UNAVAILABLE, "there is no encoder");
}

static status_t encode_cancelled(void *ctx, const struct data_text *text, struct err *e) {
    (void)ctx, (void)text;
    return err_set(e, ST_CANCELLED, "asked to stop");
}

static void a_reader_asks_for_a_text_and_writes_nothing(void **state) {
    (void)state;
    struct seen seen = { 0 };
    struct token_cache cache = cache_of(&seen);
    struct corpus *c = NULL;
    char any[PATH_BYTES * 2];
    cache.writes = false;
    CLEANUP(corpus_closep) struct corpus *alone = opened(0, &cache); /* nobody to ask */
    cache.encode = encode_refused;
    CLEANUP(corpus_closep) struct corpus *refused = opened(0, &cache);
    assert_true(corpus_bytes(alone) > 0 && corpus_bytes(refused) > 0);
    assert_int_equal(seen.missed, 2);
    assert_non_null(strstr(seen.last, "there is no encoder"));
    cache.encode = encode_cancelled;
    assert_int_equal(corpus_of_text(0, &cache, NULL, NULL, &c, NULL), ST_CANCELLED);
    assert_int_equal(files_with("", any) + parts(), 0);
    cache.encode = encode_elsewhere;
    for (int i = 0; i < 2; i++) {
        CLEANUP(corpus_closep) struct corpus *found = opened(0, &cache);
        assert_same(found, alone);
        assert_int_equal(corpus_bytes(found), 0);
        assert_int_equal(asked, 1);
    }
    assert_int_equal(seen.encoded, 0);
}

/* ---- a text that changes ---- */

static void change_text(void *ctx) {
    int *calls = ctx;
    CLEANUP(closep) int fd = open(paths[0], O_WRONLY);
    if (++*calls == 1) /* it has been digested */
        assert_int_equal(pwrite(fd, "?", 1, 100), 1);
}

static void a_text_that_changes_after_it_was_digested_gets_no_tokens(void **state) {
    (void)state;
    struct seen seen = { 0 };
    const struct token_cache cache = cache_of(&seen);
    const struct token_cache *caches[] = { &cache, NULL };
    char any[PATH_BYTES * 2], old;
    CLEANUP(closep) int fd = open(paths[0], O_RDWR);
    assert_int_equal(pread(fd, &old, 1, 100), 1);
    for (int i = 0; i < 2; i++) {
        struct corpus *c = NULL;
        struct err e = { "" };
        int calls = 0;
        assert_int_equal(corpus_of_text(0, caches[i], change_text, &calls, &c, &e), ST_FAILED_PRECONDITION);
        assert_non_null(strstr(e.msg, "changed while it was read"));
        assert_int_equal(files_with("", any) + parts(), 0);
        assert_int_equal(pwrite(fd, &old, 1, 100), 1);
    }
}

/* ---- texts and folders ---- */

/* Words that differ, from a counter. */
static void text_write(int i) {
    struct bytes text;
    uint32_t random = 17 + (uint32_t)i;
    bytes_init(&text, TEXT_BYTES + 64);
    while (text.len < TEXT_BYTES) {
        random = random * 1664525 + 1013904223;
        assert_int_equal(
            bytes_printf(&text, NULL, "%.*s%s", (int)(random >> 29), "the quick", random >> 20 & 7 ? " " : "\n"),
            ST_OK);
    }
    snprintf(paths[i], sizeof paths[i], "%s/text-%d.txt", top, i);
    assert_int_equal(file_write_atomic(paths[i], text.data, text.len, 0644, NULL), ST_OK);
    bytes_done(&text);
}

static int folder_make(void **state) {
    static int n;
    (void)state;
    asked = 0;
    snprintf(folder, sizeof folder, "%s/cache-%d", top, n++);
    return mkdir(folder, 0755);
}

static int folder_remove(void **state) {
    (void)state;
    return dir_remove(folder, NULL) == ST_OK ? 0 : -1;
}

static int begin(void **state) {
    (void)state;
    struct err e = { "" };
    char json[512];
    const char *root = getenv("TRAINYARD_SOURCE");
    snprintf(json, sizeof json, "%s/tests/engine/tokenizers/gpt2.json", root ? root : ".");
    if (!mkdtemp(top) || tokenizer_open(NULL, json, &tokenizer, &e) != ST_OK) {
        fprintf(stderr, "%s\n", e.msg);
        return -1;
    }
    text_write(0);
    text_write(1);
    return 0;
}

static int end(void **state) {
    (void)state;
    tokenizer_free(tokenizer);
    return dir_remove(top, NULL) == ST_OK ? 0 : -1;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, folder_make, folder_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(tokens_are_those_of_memory_and_take_none),
        TEST(the_ends_of_files_the_separator_and_the_tokenizer_make_other_tokens),
        TEST(a_small_text_stays_in_memory),
        TEST(processes_that_begin_together_encode_once),
        TEST(a_killed_encoder_leaves_its_work_to_the_one_that_waits),
        TEST(a_process_that_holds_the_lock_and_writes_nothing_is_not_waited_for),
        TEST(a_damaged_file_is_reported_and_encoded_again),
        TEST(a_file_that_shrinks_in_use_is_an_error),
        TEST(a_cache_without_space_leaves_the_tokens_in_memory),
        TEST(the_oldest_file_goes_unless_it_is_in_use),
        TEST(what_a_killed_process_left_makes_space),
        TEST(a_folder_that_cannot_be_used_leaves_the_tokens_in_memory),
        TEST(a_reader_asks_for_a_text_and_writes_nothing),
        TEST(a_text_that_changes_after_it_was_digested_gets_no_tokens),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
