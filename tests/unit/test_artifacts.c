/* Files that a program logs: what another attempt, whose process still runs, can change. */
#include "executor/program/tracking/artifacts.h"

#include "base/beneath.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { WAIT_MS = 60 * 1000 };

struct rank {
    struct points *points;
    struct artifacts *a;
    int job;
    bool advanced;
    char stored[1000], events[1000];
};

static void on_row(void *ctx, int64_t step, char *const *names, const double *values, size_t n) {
    (void)ctx, (void)step, (void)names, (void)values, (void)n;
}

static void on_event(void *ctx, const char *kind, const char *message) {
    struct rank *r = ctx;
    const size_t used = strlen(r->events);
    (void)kind;
    snprintf(r->events + used, sizeof r->events - used, "%s|", message);
}

static void on_stored(void *ctx, const char *path, int64_t bytes, const char *sha256) {
    struct rank *r = ctx;
    const size_t used = strlen(r->stored);
    (void)sha256;
    snprintf(r->stored + used, sizeof r->stored - used, "%s %lld|", path, (long long)bytes);
}

static void on_advanced(void *ctx, struct artifact *f, bool ended) {
    struct rank *r = ctx;
    (void)f, (void)ended;
    r->advanced = true;
}

static void rank_begin(struct rank *r, const char *folder, int attempt, int rank) {
    memset(r, 0, sizeof *r);
    r->points = points_new(&(struct points_sink){ r, on_row, on_event });
    r->a = artifacts_new(r->points, &(struct artifacts_sink){ on_stored, r, on_advanced, r });
    r->job = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(r->job >= 0);
    artifacts_folder(r->a, r->job, attempt, rank);
    closep(&r->job);
}

static void rank_end(struct rank *r) {
    artifacts_free(r->a);
    points_free(r->points);
}

static void wait(struct rank *r) {
    for (r->advanced = false; !r->advanced;) {
        struct pollfd p = { .fd = artifacts_fd(r->a), .events = POLLIN };
        assert_int_equal(poll(&p, 1, WAIT_MS), 1);
        artifacts_run(r->a);
    }
}

static void put_bytes(struct rank *r, struct artifact *f, const char *text) {
    if (artifact_write(f, text, strlen(text)))
        wait(r);
}

static void put_end(struct rank *r, struct artifact *f) {
    if (artifact_end(f))
        wait(r);
}

static void put(struct rank *r, const char *path, const char *text) {
    struct artifact *f = artifacts_begin(r->a, path);
    put_bytes(r, f, text);
    put_end(r, f);
}

/* "": there is no such file. */
static const char *content(const char *folder, const char *path) {
    static char text[100];
    char name[400];
    snprintf(name, sizeof name, "%s/artifacts/%s", folder, path);
    FILE *f = fopen(name, "r");
    const size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = '\0';
    return text;
}

static void total_is(const char *folder, int64_t bytes, int64_t files) {
    int64_t total[2] = { -1, -1 };
    char name[400];
    snprintf(name, sizeof name, "%s/artifacts/.total", folder);
    FILE *f = fopen(name, "r");
    assert_non_null(f);
    assert_int_equal(fread(total, sizeof total, 1, f), 1);
    fclose(f);
    assert_int_equal(total[0], bytes);
    assert_int_equal(total[1], files);
}

static void a_process_of_an_older_attempt_changes_no_file_of_a_newer_one(void **state) {
    const char *folder = *state;
    struct rank older, newer;
    rank_begin(&older, folder, 1, 0);
    rank_begin(&newer, folder, 2, 0);
    struct artifact *first = artifacts_begin(older.a, "deep/model");
    put_bytes(&older, first, "older");
    struct artifact *second = artifacts_begin(newer.a, "deep/model");
    put_bytes(&newer, second, "half ");
    put_end(&older, first);
    assert_string_equal(content(folder, "attempt-2/deep/model"), "");
    put_bytes(&newer, second, "whole");
    put_end(&newer, second);
    assert_string_equal(newer.stored, "deep/model 10|");
    assert_string_equal(content(folder, "attempt-2/deep/model"), "half whole");
    put(&older, "deep/model", "again");
    assert_string_equal(content(folder, "attempt-2/deep/model"), "half whole");
    rank_end(&older);
    rank_end(&newer);
}

static void a_newer_attempt_replaces_files_of_the_older_ones_and_their_bytes(void **state) {
    const char *folder = *state;
    struct rank r;
    rank_begin(&r, folder, 1, 3);
    put(&r, "a/b", "12345");
    put(&r, "a/b", "1234567890");
    put(&r, "c", "");
    total_is(folder, 10, 2);
    struct artifact *unfinished = artifacts_begin(r.a, "d");
    put_bytes(&r, unfinished, "x");
    assert_string_equal(content(folder, "attempt-1/.new-3-4"), "x");
    struct rank next;
    rank_begin(&next, folder, 2, 3);
    put(&next, "a/b", "123");
    assert_string_equal(content(folder, "attempt-1/.new-3-4"), "");
    assert_string_equal(content(folder, "attempt-1/rank-3/a/b"), "");
    assert_string_equal(content(folder, "attempt-2/rank-3/a/b"), "123");
    total_is(folder, 3, 2);
    put_end(&r, unfinished); /* its file is gone */
    assert_non_null(strstr(r.events, "the file 'rank-3/d' is not kept"));
    total_is(folder, 4, 3); /* counted before the file gets its name */
    rank_end(&r);
    rank_end(&next);
}

static void the_bounds_are_those_of_all_attempts(void **state) {
    const char *folder = *state;
    struct rank r;
    rank_begin(&r, folder, 1, 0);
    put(&r, "a", "x");
    char name[400];
    snprintf(name, sizeof name, "%s/artifacts/.total", folder);
    const int64_t total[2] = { ARTIFACTS_BYTES, ARTIFACTS_MAX };
    FILE *f = fopen(name, "r+");
    assert_non_null(f);
    assert_int_equal(fwrite(total, sizeof total, 1, f), 1);
    fclose(f);
    rank_end(&r);
    rank_begin(&r, folder, 2, 0);
    put(&r, "a", "y"); /* replaces one */
    put(&r, "b", "");
    put(&r, "a", "zz");
    assert_string_equal(r.stored, "a 1|");
    assert_non_null(strstr(r.events, "'b' is not kept: the job has 10000 files already"));
    assert_non_null(strstr(r.events, "'a' is not kept: the files of the job would have more than 1 GiB"));
    assert_string_equal(content(folder, "attempt-2/a"), "y");
    rank_end(&r);
}

static void a_lock_that_another_rank_holds_delays_the_file_and_nothing_else(void **state) {
    const char *folder = *state;
    struct rank r;
    char name[400];
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    rank_begin(&r, folder, 1, 0);
    put(&r, "a", "x");
    snprintf(name, sizeof name, "%s/artifacts/.total", folder);
    const int fd = open(name, O_RDWR | O_CLOEXEC);
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
    struct artifact *b = artifacts_begin(r.a, "b"), *c = artifacts_begin(r.a, "c");
    put_bytes(&r, b, "y");
    put_bytes(&r, c, "z");
    assert_true(artifact_end(b)); /* returns at once: the thread waits for the lock */
    assert_true(artifact_end(c));
    artifacts_run(r.a);
    assert_true(artifacts_busy(r.a));
    close(fd);
    while (artifacts_busy(r.a))
        wait(&r);
    assert_string_equal(r.stored, "a 1|b 1|c 1|");
    rank_end(&r);
}

static void files_that_are_not_stored_when_the_time_is_over_are_reported(void **state) {
    const char *folder = *state;
    struct rank r;
    char name[400];
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    rank_begin(&r, folder, 1, 0);
    put(&r, "a", "x");
    snprintf(name, sizeof name, "%s/artifacts/.total", folder);
    const int fd = open(name, O_RDWR | O_CLOEXEC);
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
    struct artifact *b = artifacts_begin(r.a, "b");
    put_bytes(&r, b, "y");
    assert_true(artifact_end(b));
    artifacts_end(r.a);
    assert_non_null(strstr(r.events, "'b' is not kept: the program has ended"));
    close(fd);
    while (artifacts_busy(r.a))
        wait(&r);
    assert_string_equal(r.stored, "a 1|");
    rank_end(&r);
}

static int setup(void **state) {
    const char *tmp = getenv("TMPDIR");
    char template[300];
    snprintf(template, sizeof template, "%s/artifacts-XXXXXX", tmp ? tmp : "/tmp");
    char *folder = mkdtemp(template);
    *state = folder ? strdup(folder) : NULL;
    return *state ? 0 : -1;
}

static int teardown(void **state) {
    const int fd = open(*state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct err e;
    const bool good = fd >= 0 && beneath_remove(fd, "artifacts", "artifacts", &e) == ST_OK && rmdir(*state) == 0;
    close(fd);
    free(*state);
    return good ? 0 : -1;
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_process_of_an_older_attempt_changes_no_file_of_a_newer_one),
        IN_FOLDER(a_newer_attempt_replaces_files_of_the_older_ones_and_their_bytes),
        IN_FOLDER(the_bounds_are_those_of_all_attempts),
        IN_FOLDER(a_lock_that_another_rank_holds_delays_the_file_and_nothing_else),
        IN_FOLDER(files_that_are_not_stored_when_the_time_is_over_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
