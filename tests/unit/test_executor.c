/* An executor with a controller that forgets, disappears and comes back outdated. */
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

/* For all that the executor knows, records that were read and not acknowledged are not stored. */
static void a_broken_stream_repeats_what_was_not_acknowledged(void **state) {
    (void)state;
    w.c.silent = true;
    executor_start("30");
    AWAIT(HELLO);
    attempt_start(EPOCH, 1, 60);
    AWAIT(ATTEMPT_ENDED);
    wait_for(some_losses, "some losses");
    database_set_back(1);
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
    assert_int_equal(now(&w.c.repeats), 0); /* the executor has asked where to go on */
    assert_int_equal(now(&w.c.gaps), 0);
    assert_int_equal(now(&w.c.lost), 0);
    assert_int_equal(now(&w.c.losses), 60);
}

static int64_t all_records;
static bool all_are_stored(void) { return w.c.next > all_records; }
static bool all_losses(void) { return w.c.losses >= 60; }
static bool many_records(void) { return w.c.next > 3000; }
static bool some_lost(void) { return w.c.lost > 0; }

static void what_was_acknowledged_is_sent_again_to_a_controller_whose_database_was_set_back(void **state) {
    (void)state;
    executor_start("30");
    AWAIT(HELLO);
    attempt_start(EPOCH, 1, 60);
    int64_t last = AWAIT(ATTEMPT_ENDED)->attempt_ended->ranks[0]->last_sequence;
    wait_for(all_losses, "all losses");
    database_set_back(21);
    AWAIT(HELLO);
    all_records = last;
    wait_for(all_are_stored, "what was rolled back");
    attempt_acknowledge(1);
    empty_is_awaited("spool");
    assert_int_equal(now(&w.c.gaps), 0);
    assert_int_equal(now(&w.c.lost), 0);
    assert_in_range(now(&w.c.losses), 30, 59);
}

/* The spool has 1 MiB and keeps a quarter of that. */
static void what_the_spool_no_longer_has_is_declared_once_and_the_rest_follows(void **state) {
    (void)state;
    executor_start("30");
    AWAIT(HELLO);
    attempt_start(EPOCH, 1, 100000000);
    wait_for(many_records, "more records than are kept");
    database_set_back(100);
    AWAIT(HELLO);
    wait_for(some_lost, "a reported loss");
    const int64_t lost = now(&w.c.lost);
    wait_for(all_losses, "what follows");
    attempt_stop(1, 0);
    const int64_t last = AWAIT(ATTEMPT_ENDED)->attempt_ended->ranks[0]->last_sequence;
    attempt_acknowledge(1);
    empty_is_awaited("spool");
    assert_true(now(&w.c.next) > last);
    /* Gaps are not compared: a batch of the broken stream may arrive after the database was rolled back. */
    assert_int_equal(now(&w.c.lost), lost);
}

static void a_controller_of_another_cluster_or_of_a_forgotten_election_is_refused(void **state) {
    (void)state;
    static const char ours[] = "11111111-2222-3333-4444-555555555555", other[] = "99999999-2222-3333-4444-555555555555";
    w.c.cluster = w.c.nonce = ours;
    executor_start("30");
    const Trainyard__V1__AgentHello *hello = AWAIT(HELLO)->hello;
    assert_string_equal(hello->cluster, "");
    streams_break();
    hello = AWAIT(HELLO)->hello;
    assert_string_equal(hello->cluster, ours);
    assert_string_equal(hello->epoch_nonce, ours);
    assert_int_equal(hello->highest_epoch, EPOCH);
    pthread_mutex_lock(&w.c.lock);
    w.c.nonce = other;
    pthread_mutex_unlock(&w.c.lock);
    streams_break();
    assert_non_null(strstr(AWAIT(REFUSED)->refused->message, "another election"));
    pthread_mutex_lock(&w.c.lock);
    w.c.nonce = ours;
    w.c.cluster = other;
    pthread_mutex_unlock(&w.c.lock);
    const char *said;
    do /* those of the nonce's time */
        said = AWAIT(REFUSED)->refused->message;
    while (strstr(said, "another election"));
    assert_non_null(strstr(said, ours));
    assert_non_null(strstr(said, other));
    attempt_start(EPOCH, 1, 10);
    assert_int_equal(AWAIT(HELLO)->hello->n_attempts, 0);
}

static void a_killed_executor_leaves_no_orphan_and_the_next_one_reports_its_attempts(void **state) {
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

/* The worker repeats the reason that it received. */
static void a_stop_reaches_the_worker_and_one_for_an_unknown_attempt_is_answered(void **state) {
    (void)state;
    executor_start("30");
    AWAIT(HELLO);
    attempt_stop(77, 1000);
    const Trainyard__V1__AttemptEnded *unknown = AWAIT(ATTEMPT_ENDED)->attempt_ended;
    assert_int_equal(unknown->attempt, 77);
    assert_int_equal(unknown->n_ranks, 0);
    attempt_start(EPOCH, 1, 100000000);
    AWAIT(RANK_READY);
    wait_for(some_losses, "some losses"); /* a rank that is stopped before it trains may end without a report */
    attempt_stop(1, 10000);
    const Trainyard__V1__RankEnd *end = AWAIT(RANK_ENDED)->rank_ended->end;
    assert_int_equal(end->cause, TRAINYARD__V1__WORKER_END__CAUSE__STOPPED);
    assert_string_equal(end->message, "asked to stop: a test says so");
}

/* A cancel does not wait for the time that a pause allowed. */
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
    assert_int_equal(end->cause, TRAINYARD__V1__WORKER_END__CAUSE__HOST_FAULT);
    assert_non_null(strstr(end->message, "data.text.files[0]: "));
    assert_non_null(strstr(end->message, "has a symbolic link on its way"));
}

/* Three cores: a rank has all of them, two of them when a second rank starts, and three again when that rank has ended.
 */
static void a_rank_has_the_cores_that_are_free(void **state) {
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* one core: libgomp's barriers are not instrumented */
#endif
    executor_start("30");
    assert_int_equal(AWAIT(HELLO)->hello->cores, 3);
    attempt_start(EPOCH, 1, 100000000);
    const Trainyard__V1__RankStarted *first = AWAIT(RANK_STARTED)->rank_started;
    assert_int_equal(first->threads, 3);
    attempt_start(EPOCH, 2, 100000000);
    const Trainyard__V1__RankThreads *less = AWAIT(RANK_THREADS)->rank_threads;
    assert_int_equal(less->attempt, 1);
    assert_int_equal(less->threads, 2);
    assert_int_equal(AWAIT(RANK_STARTED)->rank_started->threads, 1);
    streams_break(); /* it is reported again */
    AWAIT(HELLO);
    assert_int_equal(AWAIT(RANK_THREADS)->rank_threads->threads + AWAIT(RANK_THREADS)->rank_threads->threads, 3);
    attempt_stop(2, 0);
    const Trainyard__V1__RankThreads *more = AWAIT(RANK_THREADS)->rank_threads;
    assert_int_equal(more->attempt, 1);
    assert_int_equal(more->threads, 3);
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
        EXECUTOR_TEST(what_was_acknowledged_is_sent_again_to_a_controller_whose_database_was_set_back),
        EXECUTOR_TEST(what_the_spool_no_longer_has_is_declared_once_and_the_rest_follows),
        EXECUTOR_TEST(a_controller_of_another_cluster_or_of_a_forgotten_election_is_refused),
        EXECUTOR_TEST(a_killed_executor_leaves_no_orphan_and_the_next_one_reports_its_attempts),
        EXECUTOR_TEST(a_command_of_a_lower_epoch_is_refused),
        EXECUTOR_TEST(a_fenced_attempt_loses_its_workers_and_its_records),
        EXECUTOR_TEST(a_stop_reaches_the_worker_and_one_for_an_unknown_attempt_is_answered),
        EXECUTOR_TEST(a_second_stop_ends_sooner_and_not_later),
        EXECUTOR_TEST(data_outside_of_the_roots_is_refused),
        EXECUTOR_TEST(a_rank_has_the_cores_that_are_free),
        EXECUTOR_TEST(sigterm_ends_the_workers_and_then_the_executor),
        EXECUTOR_TEST(a_second_executor_on_the_directory_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
