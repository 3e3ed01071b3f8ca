/* What an executor does for its controller, which forgets, goes away and comes back outdated. */
#include "base/clock.h"
#include "base/file.h"
#include "executor/agent/spawn.h"
#include "tests/sanitized.h"
#include "tests/unit/executor_host.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static bool gone(pid_t pid, int64_t start_time) {
    int64_t seen;
    return spawn_start_time(pid, &seen, NULL) != ST_OK || seen != start_time;
}

static bool some_losses(void) { return w.c.losses >= 5; }
static bool nothing_attached(void) { return w.c.attach == NULL; }

static int64_t rss_kib(pid_t pid) {
    char path[40], line[128];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "r");
    long long kib = -1;
    while (f && fgets(line, sizeof line, f))
        sscanf(line, "VmRSS: %lld", &kib);
    if (f)
        fclose(f);
    return kib;
}

static void an_attempt_runs_to_its_end_and_leaves_nothing_behind(void **state) {
    (void)state;
    executor_start("30");
    const Trainyard__V1__AgentHello *hello = AWAIT(HELLO)->hello;
    assert_int_equal(strlen(hello->executor), 16);
    assert_int_equal(hello->incarnation, 1);
    assert_int_equal(hello->slots, atoi(SLOTS));
    assert_int_equal(hello->n_attempts, 0);
    assert_false(hello->may_read_all);
    assert_string_equal(hello->data_roots[0], w.folder);
    attempt_start(EPOCH, 1, 40);
    const Trainyard__V1__RankStarted *started = AWAIT(RANK_STARTED)->rank_started;
    assert_int_equal(started->job, JOB);
    assert_true(started->pid > 0 && started->pid_start_time > 0);
    assert_int_equal(AWAIT(RANK_READY)->rank_ready->joined->from_step, 0);
    const Trainyard__V1__RankEnd *end = AWAIT(RANK_ENDED)->rank_ended->end;
    if (end->cause != TRAINYARD__V1__WORKER_END__CAUSE__FINISHED)
        fail_msg("the rank ended with: %s", end->message);
    assert_int_equal(end->step, 40);
    assert_int_equal(strlen(end->weights_sha256), 64);
    const Trainyard__V1__AttemptEnded *ended = AWAIT(ATTEMPT_ENDED)->attempt_ended;
    assert_int_equal(ended->n_ranks, 1);
    assert_false(folder_is_empty("attempts"));
    attempt_start(EPOCH, 1, 40); /* a repeated start of what has ended is answered by its end */
    assert_int_equal(AWAIT(ATTEMPT_ENDED)->attempt_ended->ranks[0]->cause, end->cause);
    attempt_acknowledge(1);
    empty_is_awaited("attempts");
    empty_is_awaited("spool");
    assert_int_equal(now(&w.c.gaps), 0);
    assert_int_equal(now(&w.c.losses), 40);
    assert_int_equal(now(&w.c.next) - 1, ended->ranks[0]->last_sequence);
    if (!SANITIZED) /* shadow memory is none of the agent's */
        assert_in_range(rss_kib(w.executor), 1, 20 << 10);
}

static void a_broken_stream_repeats_what_was_not_acknowledged(void **state) {
    (void)state;
    w.c.silent = true;
    executor_start("30");
    AWAIT(HELLO);
    attempt_start(EPOCH, 1, 60);
    AWAIT(ATTEMPT_ENDED);
    wait_for(some_losses, "some losses");
    streams_break();
    const Trainyard__V1__AgentHello *hello = AWAIT(HELLO)->hello;
    assert_int_equal(hello->incarnation, 1);
    assert_int_equal(hello->highest_epoch, EPOCH);
    assert_int_equal(hello->n_attempts, 1);
    assert_true(hello->attempts[0]->ended);
    assert_int_equal(hello->attempts[0]->end->ranks[0]->cause, TRAINYARD__V1__WORKER_END__CAUSE__FINISHED);
    pthread_mutex_lock(&w.c.lock);
    w.c.silent = false;
    pthread_mutex_unlock(&w.c.lock);
    attempt_acknowledge(1);
    empty_is_awaited("spool");
    assert_true(now(&w.c.repeats) > 0);
    assert_int_equal(now(&w.c.gaps), 0);
    assert_int_equal(now(&w.c.losses), 60);
}

static void a_killed_executor_leaves_no_orphan_and_the_next_one_tells_its_attempts(void **state) {
    (void)state;
    w.c.silent = true;
    executor_start("30");
    AWAIT(HELLO);
    attempt_start(EPOCH, 1, 100000000);
    const Trainyard__V1__RankStarted *started = AWAIT(RANK_STARTED)->rank_started;
    wait_for(some_losses, "some losses");
    kill(w.executor, SIGKILL);
    executor_wait();
    int64_t deadline = clock_mono_ms() + PATIENCE_MS;
    while (!gone(started->pid, started->pid_start_time) && clock_mono_ms() < deadline)
        sched_yield();
    assert_true(gone(started->pid, started->pid_start_time));
    pthread_mutex_lock(&w.c.lock);
    w.c.silent = false;
    pthread_mutex_unlock(&w.c.lock);

    executor_start("30");
    const Trainyard__V1__AgentHello *hello = AWAIT(HELLO)->hello;
    assert_int_equal(hello->incarnation, 2);
    assert_int_equal(hello->n_attempts, 1);
    assert_true(hello->attempts[0]->ended);
    const Trainyard__V1__RankEnd *end = hello->attempts[0]->end->ranks[0];
    assert_int_equal(end->cause, TRAINYARD__V1__WORKER_END__CAUSE__AGENT_LOST);
    assert_int_equal(hello->attempts[0]->ranks[0]->pid, started->pid);
    attempt_acknowledge(1);
    empty_is_awaited("attempts");
    empty_is_awaited("spool");
    assert_int_equal(now(&w.c.gaps), 0);
    assert_int_equal(now(&w.c.next) - 1, end->last_sequence);
}

static void a_command_of_a_lower_epoch_is_refused(void **state) {
    (void)state;
    executor_start("30");
    AWAIT(HELLO);
    attempt_start(EPOCH - 1, 1, 10);
    const Trainyard__V1__CommandRefused *refused = AWAIT(REFUSED)->refused;
    assert_int_equal(refused->job, JOB);
    assert_string_equal(refused->message, "a command of epoch 4 came after one of epoch 5 was obeyed");
    assert_int_equal(AWAIT(HELLO)->hello->n_attempts, 0); /* it dialled again, and nothing was started */
}

static void a_fenced_attempt_loses_its_workers_and_its_records(void **state) {
    (void)state;
    executor_start("30");
    AWAIT(HELLO);
    attempt_start(EPOCH, 1, 100000000);
    AWAIT(RANK_READY);
    wait_for(some_losses, "some losses");
    pthread_mutex_lock(&w.c.lock);
    w.c.fence = true;
    pthread_mutex_unlock(&w.c.lock);
    const Trainyard__V1__RankEnd *end = AWAIT(RANK_ENDED)->rank_ended->end;
    assert_int_equal(end->signal, SIGKILL);
    assert_string_equal(end->message, "was killed because its attempt is over");
    AWAIT(ATTEMPT_ENDED);
    empty_is_awaited("spool");
}

/* Its worker passes on what it is told. */
static void a_stop_is_heard_and_one_for_an_unknown_attempt_is_answered(void **state) {
    (void)state;
    executor_start("30");
    AWAIT(HELLO);
    attempt_stop(77, 1000);
    const Trainyard__V1__AttemptEnded *unknown = AWAIT(ATTEMPT_ENDED)->attempt_ended;
    assert_int_equal(unknown->attempt, 77);
    assert_int_equal(unknown->n_ranks, 0);
    attempt_start(EPOCH, 1, 100000000);
    AWAIT(RANK_READY);
    attempt_stop(1, 10000);
    const Trainyard__V1__RankEnd *end = AWAIT(RANK_ENDED)->rank_ended->end;
    assert_int_equal(end->cause, TRAINYARD__V1__WORKER_END__CAUSE__STOPPED);
    assert_string_equal(end->message, "told to stop: a test says so");
}

/* A cancel does not wait for what a pause gave time to. */
static void a_second_stop_ends_sooner_and_not_later(void **state) {
    (void)state;
    executor_start("600");
    AWAIT(HELLO);
    attempt_start(EPOCH, 1, 100000000);
    pid_t pid = AWAIT(RANK_STARTED)->rank_started->pid;
    AWAIT(RANK_READY);
    kill(pid, SIGSTOP);
    attempt_stop(1, 600000);
    attempt_stop(1, 200);
    attempt_stop(1, 600000);
    const Trainyard__V1__RankEnd *end = AWAIT(RANK_ENDED)->rank_ended->end;
    assert_string_equal(end->message, "did not stop in time and was killed");
}

static void data_outside_of_the_roots_is_refused(void **state) {
    (void)state;
    executor_start("30");
    AWAIT(HELLO);
    char outside[64] = "/tmp/ty-outside-XXXXXX", link[96];
    close(mkstemp(outside));
    snprintf(link, sizeof link, "%s/link", w.folder);
    assert_int_equal(symlink(outside, link), 0);
    snprintf(w.text, sizeof w.text, "%s", link);
    attempt_start(EPOCH, 1, 10);
    const Trainyard__V1__RankEnd *end = AWAIT(RANK_ENDED)->rank_ended->end;
    unlink(outside);
    assert_int_equal(end->cause, TRAINYARD__V1__WORKER_END__CAUSE__BAD_SPEC);
    assert_non_null(strstr(end->message, "data.text.files[0]: "));
    assert_non_null(strstr(end->message, "is outside of the folders that this executor may read data from"));
}

static void sigterm_ends_the_workers_and_then_the_executor(void **state) {
    (void)state;
    executor_start("30");
    AWAIT(HELLO);
    attempt_start(EPOCH, 1, 100000000);
    const Trainyard__V1__RankStarted *started = AWAIT(RANK_STARTED)->rank_started;
    AWAIT(RANK_READY);
    int64_t begun = clock_mono_ms();
    kill(w.executor, SIGTERM);
    const Trainyard__V1__RankEnd *end = AWAIT(ATTEMPT_ENDED)->attempt_ended->ranks[0];
    assert_int_equal(end->cause, TRAINYARD__V1__WORKER_END__CAUSE__AGENT_LOST);
    assert_int_equal(executor_wait(), 0);
    assert_true(clock_mono_ms() - begun < PATIENCE_MS);
    assert_true(gone(started->pid, started->pid_start_time));
    wait_for(nothing_attached, "the end of its stream");
}

static void a_second_executor_on_the_directory_is_refused(void **state) {
    (void)state;
    executor_start("30");
    AWAIT(HELLO);
    pid_t first = w.executor;
    executor_start("30");
    int status = executor_wait();
    w.executor = first;
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
    char log[96];
    snprintf(log, sizeof log, "%s/log", w.folder);
    struct bytes text;
    bytes_init(&text, 1 << 20);
    assert_int_equal(file_read(log, &text, NULL), ST_OK);
    assert_non_null(strstr(text.data, "trainyard-executor: another trainyard-executor runs on directory"));
    bytes_done(&text);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        EXECUTOR_TEST(an_attempt_runs_to_its_end_and_leaves_nothing_behind),
        EXECUTOR_TEST(a_broken_stream_repeats_what_was_not_acknowledged),
        EXECUTOR_TEST(a_killed_executor_leaves_no_orphan_and_the_next_one_tells_its_attempts),
        EXECUTOR_TEST(a_command_of_a_lower_epoch_is_refused),
        EXECUTOR_TEST(a_fenced_attempt_loses_its_workers_and_its_records),
        EXECUTOR_TEST(a_stop_is_heard_and_one_for_an_unknown_attempt_is_answered),
        EXECUTOR_TEST(a_second_stop_ends_sooner_and_not_later),
        EXECUTOR_TEST(data_outside_of_the_roots_is_refused),
        EXECUTOR_TEST(sigterm_ends_the_workers_and_then_the_executor),
        EXECUTOR_TEST(a_second_executor_on_the_directory_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
