/* `trainyard delete`, with the real programs and a real PostgreSQL: files and rows are deleted. If a controller is
 * killed during the deletion, the next controller completes it. */
#include "tests/store/store_fixture.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_MS 120000 /* longer than any wait */

struct program_fixture {
    struct pg *pg;
    char conninfo[256], directory[64], address[128], bin[4096], log[80];
    pid_t controller;
};

static int group_setup(void **state) {
    struct program_fixture *y = calloc(1, sizeof *y);
    y->pg = pg_start();
    snprintf(y->bin, sizeof y->bin, "%s/bin", getenv("TRAINYARD_BUILD"));
    *state = y;
    return 0;
}

static int group_teardown(void **state) {
    pg_stop(((struct program_fixture *)*state)->pg);
    free(*state);
    return 0;
}

static void path_of(const struct program_fixture *y, const char *name, char ret[160]) {
    snprintf(ret, 160, "%s/%s", y->directory, name);
}

/* checkpoints: a folder in the fixture's folder. days: NULL = keep all jobs. */
static void start(struct program_fixture *y, const char *checkpoints, const char *days) {
    char program[4200], folder[160], ready[256];
    int out[2];
    snprintf(program, sizeof program, "%s/trainyard-controller", y->bin);
    path_of(y, checkpoints, folder);
    const char *argv[] = { program,     "--database",
                           y->conninfo, "--listen",
                           y->address,  "--checkpoints",
                           folder,      days ? "--keep-ended-days" : NULL,
                           days,        NULL };
    int log = open(y->log, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(log >= 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    const struct process p = {
        .program = program, .argv = argv, .fds = { { PROCESS_NULL, 0 }, { out[1], 1 }, { log, 2 } }, .n_fds = 3
    };
    OK(process_start(&p, &y->controller, &e));
    close(log);
    close(out[1]);
    ssize_t n = read(out[0], ready, sizeof ready);
    assert_true(n > 6 && strncmp(ready, "ready ", 6) == 0);
    close(out[0]);
}

static void stop(struct program_fixture *y, int signal) {
    if (y->controller)
        kill(y->controller, signal);
    if (y->controller)
        waitpid(y->controller, NULL, 0);
    y->controller = 0;
}

/* Returns the exit status of a command of trainyard. */
static int run(const struct program_fixture *y, const char *command) {
    char shell[5000];
    snprintf(shell, sizeof shell, "TRAINYARD_CONTROLLER=%s %s/trainyard %s >/dev/null", y->address, y->bin, command);
    int status = system(shell);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void await_number(const struct program_fixture *y, const char *sql, long long wanted) {
    deadline_ms_t deadline = deadline_in(PATIENCE_MS);
    while (pg_number(y->conninfo, sql) != wanted)
        if (clock_mono_ms() > deadline)
            fail_msg("%s is not %lld", sql, wanted);
}

static void await_logged(const struct program_fixture *y, const char *text) {
    deadline_ms_t deadline = deadline_in(PATIENCE_MS);
    for (bool seen = false; !seen;) {
        struct bytes all;
        bytes_init(&all, 1 << 20);
        OK(file_read(y->log, &all, &e));
        seen = all.data && memmem(all.data, all.len, text, strlen(text));
        bytes_done(&all);
        if (clock_mono_ms() > deadline)
            fail_msg("'%s' is not logged", text);
    }
}

static int setup(void **state) {
    struct program_fixture *y = *state;
    char spec[160];
    snprintf(y->conninfo, sizeof y->conninfo, "%s", pg_database(y->pg, true));
    snprintf(y->directory, sizeof y->directory, "/tmp/delete-test-XXXXXX");
    assert_non_null(mkdtemp(y->directory));
    snprintf(y->address, sizeof y->address, "unix:%s/s", y->directory);
    snprintf(y->log, sizeof y->log, "%s/log", y->directory);
    path_of(y, "spec.yaml", spec);
    static const char text[] =
        "name: n\nmodel: {gpt: {layers: 1, heads: 1, width: 8, context: 8}}\n"
        "data: {text: {files: [\"file:///nowhere/text\"]}}\ntrain: {steps: 10, global_batch: 4}\n";
    OK(file_write_atomic(spec, text, sizeof text - 1, 0600, &e));
    return 0;
}

static int teardown(void **state) {
    struct program_fixture *y = *state;
    stop(y, SIGTERM);
    return dir_remove(y->directory, NULL) == ST_OK ? 0 : -1;
}

/* A cancelled job, and the traces of an attempt: a checkpoint, a profile, events. */
static void cancelled_job(struct program_fixture *y, int64_t job) {
    char command[200], sql[1200], folder[300];
    snprintf(command, sizeof command, "submit --wait-for-hosts %s/spec.yaml", y->directory);
    assert_int_equal(run(y, command), 0);
    snprintf(command, sizeof command, "cancel %lld", (long long)job);
    assert_int_equal(run(y, command), 0);
    snprintf(folder, sizeof folder, "%s/checkpoints/%lld/attempt-1", y->directory, (long long)job);
    snprintf(sql, sizeof sql,
             "INSERT INTO attempt (job, number, state, epoch, from_step, end_time) VALUES (%1$lld, 1, 4, 1, 0, now());"
             "UPDATE job SET attempt = 1 WHERE id = %1$lld;"
             "INSERT INTO checkpoint (job, attempt, step, world_size, shards, directory, state, commit_time) "
             "VALUES (%1$lld, 1, 5, 1, 1, '%2$s/step-5', 2, now());"
             "INSERT INTO event SELECT %1$lld, n, now(), 1, 'note', 3, '', NULL FROM generate_series(100, 5099) n",
             (long long)job, folder);
    pg_run(y->conninfo, sql);
}

static void make_files(struct program_fixture *y, int64_t job) {
    static const char *const names[] = { "step-5/rank-0.safetensors", "profile/rank-0.json" };
    char path[400];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/checkpoints/%lld/attempt-1/%s", y->directory, (long long)job, names[i]);
        *strrchr(path, '/') = '\0';
        OK(dir_make(path, 0700, &e));
        path[strlen(path)] = '/';
        OK(file_write_atomic(path, "x", 1, 0600, &e));
    }
}

static void a_controller_killed_while_it_deletes_is_gone_on_with(void **state) {
    struct program_fixture *y = *state;
    char folder[160];
    start(y, "checkpoints", NULL);
    cancelled_job(y, 1);
    cancelled_job(y, 2);
    make_files(y, 1);
    make_files(y, 2);
    struct pg_open *open = pg_begin(y->conninfo, "SELECT 1 FROM event WHERE job = 1 AND number = 5099 FOR UPDATE");
    assert_int_equal(run(y, "delete 1"), 0);
    assert_int_equal(run(y, "get 1"), 4);
    pg_await_blocked(y->pg, y->conninfo, 1);
    path_of(y, "checkpoints/1", folder);
    assert_int_equal(access(folder, F_OK), -1); /* files first */
    stop(y, SIGKILL);
    pg_commit(open);
    assert_in_range(pg_number(y->conninfo, "SELECT count(*) FROM event WHERE job = 1"), 1, 4999);
    start(y, "checkpoints", NULL);
    assert_int_equal(run(y, "get 1"), 4);
    await_number(y, "SELECT count(*) FROM job WHERE id = 1", 0);
    assert_int_equal(pg_number(y->conninfo, "SELECT count(*) FROM event WHERE job = 1"), 0);
    assert_int_equal(run(y, "delete 1"), 4);
    assert_int_equal(run(y, "get 2"), 0);
    path_of(y, "checkpoints/2/attempt-1/step-5/rank-0.safetensors", folder);
    assert_int_equal(access(folder, F_OK), 0);
    assert_int_equal(pg_number(y->conninfo, "SELECT count(*) FROM event WHERE job = 2 AND kind = 'note'"), 5000);
}

static void a_checkpoint_is_pinned_unpinned_and_deleted_with_its_files(void **state) {
    struct program_fixture *y = *state;
    char folder[160];
    start(y, "checkpoints", NULL);
    cancelled_job(y, 1);
    make_files(y, 1);
    path_of(y, "checkpoints/1/attempt-1/step-5", folder);
    assert_int_equal(run(y, "checkpoint pin jobs/1/checkpoints/1"), 0);
    assert_int_equal(pg_number(y->conninfo, "SELECT count(*) FROM checkpoint WHERE pinned"), 1);
    assert_int_equal(run(y, "checkpoint delete jobs/1/checkpoints/1"), 1);
    assert_int_equal(run(y, "delete 1"), 1);
    assert_int_equal(run(y, "checkpoint unpin jobs/1/checkpoints/1"), 0);
    assert_int_equal(access(folder, F_OK), 0);
    assert_int_equal(run(y, "checkpoint delete jobs/1/checkpoints/1"), 0);
    await_number(y, "SELECT count(*) FROM checkpoint WHERE state = 5", 1);
    assert_int_equal(access(folder, F_OK), -1);
    assert_int_equal(run(y, "checkpoint pin jobs/1/checkpoints/1"), 1);
    assert_int_equal(run(y, "checkpoint pin jobs/1/checkpoints/99"), 4);
    assert_int_equal(run(y, "checkpoint unpin jobs/1/checkpoints/99"), 4);
    assert_int_equal(run(y, "checkpoint delete jobs/1/checkpoints/99"), 4);
    assert_int_equal(run(y, "checkpoint burn jobs/1/checkpoints/1"), 2);
}

static void a_job_that_has_not_ended_is_not_deleted(void **state) {
    struct program_fixture *y = *state;
    char command[200];
    start(y, "checkpoints", NULL);
    snprintf(command, sizeof command, "submit --wait-for-hosts %s/spec.yaml", y->directory);
    assert_int_equal(run(y, command), 0);
    assert_int_equal(run(y, "delete 1"), 1);
    assert_int_equal(run(y, "get 1"), 0);
}

static void jobs_that_ended_long_ago_are_deleted_where_that_is_asked_for(void **state) {
    struct program_fixture *y = *state;
    start(y, "checkpoints", NULL);
    cancelled_job(y, 1);
    cancelled_job(y, 2);
    make_files(y, 1);
    pg_run(y->conninfo, "UPDATE job SET end_time = now() - interval '49 hours' WHERE id = 1;"
                        "UPDATE job SET end_time = now() - interval '47 hours' WHERE id = 2");
    stop(y, SIGTERM);
    start(y, "checkpoints", NULL);
    assert_int_equal(run(y, "get 1"), 0);
    stop(y, SIGTERM);
    start(y, "checkpoints", "2");
    await_number(y, "SELECT count(*) FROM job", 1);
    assert_int_equal(run(y, "get 2"), 0);
}

static void a_deleted_job_waits_until_its_checkpoints_are_in_reach(void **state) {
    struct program_fixture *y = *state;
    char folder[160];
    start(y, "away", NULL);
    cancelled_job(y, 1);
    cancelled_job(y, 2);
    pg_run(y->conninfo, "UPDATE checkpoint SET directory = replace(directory, '/checkpoints/', '/away/')");
    assert_int_equal(run(y, "delete 1"), 0);
    await_logged(y, "the folder of its checkpoints is not in reach");
    assert_int_equal(run(y, "delete 2"), 0);
    await_logged(y, "jobs_not_removed jobs=2 job=1 "); /* one line for all */
    assert_int_equal(pg_number(y->conninfo, "SELECT count(*) FROM checkpoint WHERE state = 4"), 2);
    stop(y, SIGTERM);
    path_of(y, "away", folder);
    OK(dir_make(folder, 0700, &e));
    start(y, "away", NULL);
    await_number(y, "SELECT count(*) FROM job", 0);
}

#define OWN_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        OWN_TEST(a_controller_killed_while_it_deletes_is_gone_on_with),
        OWN_TEST(a_checkpoint_is_pinned_unpinned_and_deleted_with_its_files),
        OWN_TEST(a_job_that_has_not_ended_is_not_deleted),
        OWN_TEST(jobs_that_ended_long_ago_are_deleted_where_that_is_asked_for),
        OWN_TEST(a_deleted_job_waits_until_its_checkpoints_are_in_reach),
    };
    return cmocka_run_group_tests_name("delete", tests, group_setup, group_teardown);
}
