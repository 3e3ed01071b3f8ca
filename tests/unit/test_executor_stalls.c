/* Stalls: of a worker, of its thread, of the spool behind a controller that stores nothing, of the disk, and of the
 * agent. */
#include "api/codec/frame.h"
#include "base/clock.h"
#include "base/file.h"
#include "tests/unit/executor_host.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { FULL_STEPS = 3000 }; /* more records than the smallest spool holds */

/* ---- workers ---- */

static void a_worker_gets_the_hang_timeout_of_its_executor(void **state) {
    (void)state;
    char worker[96], said[96];
    snprintf(worker, sizeof worker, "%s/worker", w.folder);
    snprintf(said, sizeof said, "%s/worker.said", w.folder);
    assert_int_equal(mkfifo(said, 0600), 0);
    FILE *f = fopen(worker, "w");
    fprintf(f, "#!/bin/sh\nexec cat <&3 >'%s'\n", said);
    fclose(f);
    assert_int_equal(chmod(worker, 0700), 0);
    executor_start_with(worker, "45");
    AWAIT(HELLO);
    attempt_start(EPOCH, 1, 1);
    const int fd = open(said, O_RDONLY);
    struct frame_reader reader;
    ProtobufCMessage *message = NULL;
    frame_reader_init(&reader, 1 << 20);
    assert_int_equal(frame_reader_wait(&reader, fd, &trainyard__v1__worker_command__descriptor, &message, NULL), ST_OK);
    const Trainyard__V1__WorkerCommand *command = (const Trainyard__V1__WorkerCommand *)message;
    assert_int_equal(command->command_case, TRAINYARD__V1__WORKER_COMMAND__COMMAND_START);
    assert_int_equal(command->start->hang_ms, 45000);
    protobuf_c_message_free_unpacked(message, NULL);
    frame_reader_done(&reader);
    close(fd);
}

static void a_stopped_worker_is_a_hang_and_is_killed(void **state) {
    (void)state;
    executor_start("8"); /* busy processors are no hang: here and below */
    AWAIT(HELLO);
    attempt_start(EPOCH, 1, 100000000);
    const Trainyard__V1__RankStarted *started = AWAIT(RANK_STARTED)->rank_started;
    AWAIT(RANK_READY);
    int64_t begun = clock_mono_ms();
    kill(started->pid, SIGSTOP);
    const Trainyard__V1__RankEnd *end = AWAIT(RANK_ENDED)->rank_ended->end;
    assert_string_equal(end->message, "gave no sign of life for 8 s and was killed");
    assert_in_range(clock_mono_ms() - begun, 6900, PATIENCE_MS);
}

/* Stops the thread that computes, and no other. Returns what the executor says when it has killed the rank. */
static const char *stop_computing(int attempt) {
    attempt_start(EPOCH, attempt, 100000000);
    const pid_t pid = AWAIT(RANK_STARTED)->rank_started->pid;
    AWAIT(RANK_READY);
    assert_int_equal(ptrace(PTRACE_SEIZE, pid, NULL, NULL), 0);
    assert_int_equal(ptrace(PTRACE_INTERRUPT, pid, NULL, NULL), 0);
    int status;
    assert_int_equal(waitpid(pid, &status, __WALL), pid);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(waitpid(pid, &status, __WALL), pid); /* a tracer hears of the death before the parent does */
    assert_true(WIFSIGNALED(status));
    return AWAIT(RANK_ENDED)->rank_ended->end->message;
}

/* The thread may be stopped while it holds the lock of the records: then the rank cannot show that it lives. */
static void a_rank_that_lives_without_progress_is_killed_two_seconds_later(void **state) {
    (void)state;
    const char *message;
    int attempt = 1;
    executor_start("8");
    AWAIT(HELLO);
    while (strcmp(message = stop_computing(attempt), "gave no sign of life for 8 s and was killed") == 0 && attempt < 5)
        attempt++;
    assert_string_equal(message,
                        "made no progress for 10 s and was killed; --hang-timeout of its executor allows more");
}

/* ---- a spool that is not emptied ---- */

/* The controller stores nothing until the spool is full and the worker waits. This wait is not a hang, and no loss
 * value is lost. */
static void a_full_spool_makes_training_wait_and_does_not_count_as_a_hang(void **state) {
    (void)state;
    w.c.silent = true;
    executor_start("8");
    AWAIT(HELLO);
    attempt_start(EPOCH, 1, FULL_STEPS);
    while (AWAIT(HEARTBEAT)->heartbeat->spool_bytes < (1 << 20) * 8 / 10) {
    }
    int64_t full = AWAIT(HEARTBEAT)->heartbeat->spool_bytes;
    assert_in_range(full, (1 << 20) * 8 / 10, 1 << 20);
    for (int i = 0; i < 6; i++) /* two seconds apart: longer than a hang takes */
        AWAIT(HEARTBEAT);
    assert_false(was_received(TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_RANK_ENDED));
    pthread_mutex_lock(&w.c.lock);
    w.c.silent = false;
    pthread_mutex_unlock(&w.c.lock);
    streams_break(); /* what was not acknowledged is sent again, and now stored */
    const Trainyard__V1__RankEnd *end = AWAIT(RANK_ENDED)->rank_ended->end;
    if (end->cause != TRAINYARD__V1__WORKER_END__CAUSE__FINISHED)
        fail_msg("the rank ended with: %s", end->message);
    AWAIT(ATTEMPT_ENDED);
    attempt_acknowledge(1);
    empty_is_awaited("spool");
    assert_int_equal(now(&w.c.losses), FULL_STEPS);
    assert_in_range(now(&w.c.waits), 1, 100); /* once, and again while the backlog goes */
}

static void an_executor_that_was_stopped_blames_no_worker(void **state) {
    (void)state;
    executor_start("8");
    AWAIT(HELLO);
    attempt_start(EPOCH, 1, 100000000);
    AWAIT(RANK_READY);
    kill(w.executor, SIGSTOP);
    poll(NULL, 0, 12000); /* more than the time that makes a hang has to pass; nothing else happens in it */
    kill(w.executor, SIGCONT);
    AWAIT(HEARTBEAT);
    AWAIT(HEARTBEAT);
    assert_false(was_received(TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_RANK_ENDED));
}

/* The controller acknowledges nothing, the spool is full, and the worker waits. Then the attempt is fenced. */
static void fencing_frees_a_full_spool(void **state) {
    (void)state;
    w.c.silent = true;
    executor_start("30");
    AWAIT(HELLO);
    attempt_start(EPOCH, 1, 100000000);
    while (AWAIT(HEARTBEAT)->heartbeat->spool_bytes < (1 << 20) * 9 / 10) {
    }
    pthread_mutex_lock(&w.c.lock);
    w.c.silent = false;
    w.c.fence = true;
    pthread_mutex_unlock(&w.c.lock);
    streams_break();
    assert_int_equal(AWAIT(RANK_ENDED)->rank_ended->end->signal, SIGKILL);
    AWAIT(ATTEMPT_ENDED);
    empty_is_awaited("spool");
}

/* ---- a disk that blocks ---- */

/* The temporary file of an attempt's record. As a named pipe it blocks the writer until the test reads. */
static void disk_path(char ret[128]) { snprintf(ret, 128, "%s/attempt.new", w.directory); }

static void disk_stop(void) {
    char path[128];
    disk_path(path);
    assert_int_equal(mkfifo(path, 0600), 0);
}

static void disk_go(void) {
    char path[128], record[4096];
    disk_path(path);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    while (read(fd, record, sizeof record) > 0) {
    }
    close(fd);
}

/* Waits for the first worker. Its next step is to write the attempt's record. */
static void child_is_awaited(void) {
    char path[64];
    int child;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)w.executor, (int)w.executor);
    for (int64_t deadline = clock_mono_ms() + PATIENCE_MS; !found && clock_mono_ms() < deadline; sched_yield()) {
        FILE *f = fopen(path, "r");
        found = f && fscanf(f, "%d", &child) == 1;
        if (f)
            fclose(f);
    }
    assert_true(found);
}

static void seen_forget(void) {
    pthread_mutex_lock(&w.c.lock);
    w.c.seen = w.c.n_messages;
    pthread_mutex_unlock(&w.c.lock);
}

static void a_disk_that_blocks_does_not_delay_heartbeats(void **state) {
    (void)state;
    executor_start("30");
    AWAIT(HELLO);
    disk_stop();
    attempt_start(EPOCH, 1, 10);
    child_is_awaited();
    seen_forget();
    AWAIT(HEARTBEAT);
    AWAIT(HEARTBEAT);
    assert_false(was_received(TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_RANK_STARTED));
    disk_go();
    const Trainyard__V1__RankEnd *end = AWAIT(RANK_ENDED)->rank_ended->end;
    assert_int_equal(end->cause, TRAINYARD__V1__WORKER_END__CAUSE__FINISHED);
    AWAIT(ATTEMPT_ENDED);
    attempt_acknowledge(1);
    empty_is_awaited("attempts");
}

static void log_is_awaited(const char *event) {
    char path[96];
    bool found = false;
    snprintf(path, sizeof path, "%s/log", w.folder);
    for (int64_t deadline = clock_mono_ms() + PATIENCE_MS; !found && clock_mono_ms() < deadline; poll(NULL, 0, 20)) {
        struct bytes text;
        bytes_init(&text, 1 << 20);
        found = file_read(path, &text, NULL) == ST_OK && text.len && strstr(text.data, event);
        bytes_done(&text);
    }
    assert_true(found);
}

/* The controller would not receive reports of its ranks again, so the lease must end. */
static void an_agent_that_is_stalled_for_too_long_sends_no_heartbeats_until_it_continues(void **state) {
    (void)state;
    executor_start("1");
    AWAIT(HELLO);
    disk_stop();
    attempt_start(EPOCH, 1, 100000000);
    log_is_awaited("heartbeats_end");
    seen_forget();
    disk_go();
    AWAIT(RANK_STARTED);
    AWAIT(HEARTBEAT);
    log_is_awaited("event_loop_stalled");
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        EXECUTOR_TEST(a_worker_gets_the_hang_timeout_of_its_executor),
        EXECUTOR_TEST(a_stopped_worker_is_a_hang_and_is_killed),
        EXECUTOR_TEST(a_rank_that_lives_without_progress_is_killed_two_seconds_later),
        EXECUTOR_TEST(a_full_spool_makes_training_wait_and_does_not_count_as_a_hang),
        EXECUTOR_TEST(an_executor_that_was_stopped_blames_no_worker),
        EXECUTOR_TEST(a_disk_that_blocks_does_not_delay_heartbeats),
        EXECUTOR_TEST(an_agent_that_is_stalled_for_too_long_sends_no_heartbeats_until_it_continues),
        EXECUTOR_TEST(fencing_frees_a_full_spool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
