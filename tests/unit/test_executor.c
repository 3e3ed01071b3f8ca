/* The real trainyard-executor with real workers; this test is the controller that it attaches to, so that it can be a
 * bad one: away, forgetful, outdated. */
#include "api/codec/frame.h"
#include "api/codec/text.h"
#include "api/rpc/server.h"
#include "base/clock.h"
#include "base/file.h"
#include "executor/agent/spawn.h"
#include "tests/sanitized.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <trainyard/descriptors.h>
#include <trainyard/v1/dispatch.pb-c.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    MESSAGES_MOST = 4096,
    PATIENCE_MS = 120000, /* means never: with TSan on a busy machine 3000 steps take a while */
    EPOCH = 5,
    JOB = 11,
    FULL_STEPS = 3000, /* more records than the smallest spool holds */
};

/* More than cores: a rank computes on one thread. TSan knows no barriers of OpenMP, and looks up each false race. */
#define SLOTS "256"

extern char **environ;

/* ---- a controller ---- */

struct controller {
    struct rpc_server *server;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct rpc_call *attach, *report;
    Trainyard__V1__AgentMessage *messages[MESSAGES_MOST]; /* in the order of their arrival */
    size_t n_messages, seen;
    bool silent;  /* reports are read and not acknowledged */
    bool fence;   /* they are answered by `fenced` */
    int64_t next; /* the next sequence that was never seen */
    int64_t losses, repeats, waits, gaps;
};

static struct world {
    char folder[48], directory[80], text[96], address[96];
    struct controller c;
    pid_t executor;
    Trainyard__V1__JobSpec *spec;
} w;

static void *copy(const ProtobufCMessage *m) {
    size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *packed = malloc(n + 1);
    protobuf_c_message_pack(m, packed);
    void *ret = protobuf_c_message_unpack(m->descriptor, NULL, n, packed);
    free(packed);
    return ret;
}

static void command_send(Trainyard__V1__ControllerMessage *m) {
    pthread_mutex_lock(&w.c.lock);
    if (w.c.attach)
        assert_int_equal(rpc_send(w.c.attach, &m->base), RPC_SENT);
    pthread_mutex_unlock(&w.c.lock);
}

static void attach_message(struct rpc_call *call, const ProtobufCMessage *message) {
    pthread_mutex_lock(&w.c.lock);
    const Trainyard__V1__AgentMessage *m = (const Trainyard__V1__AgentMessage *)message;
    if (m->message_case == TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_HELLO) {
        rpc_unref(w.c.attach);
        rpc_ref(call);
        w.c.attach = call;
        Trainyard__V1__Welcome welcome = TRAINYARD__V1__WELCOME__INIT;
        Trainyard__V1__ControllerMessage answer = TRAINYARD__V1__CONTROLLER_MESSAGE__INIT;
        answer.epoch = EPOCH;
        answer.message_case = TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_WELCOME;
        answer.welcome = &welcome;
        rpc_send(call, &answer.base);
    }
    if (w.c.n_messages < MESSAGES_MOST)
        w.c.messages[w.c.n_messages++] = copy(message);
    pthread_cond_broadcast(&w.c.changed);
    pthread_mutex_unlock(&w.c.lock);
}

static void attach_half_closed(struct rpc_call *call) { rpc_finish(call, ST_OK, NULL); }

static void attach_done(struct rpc_call *call, status_t status, const char *why) {
    (void)status;
    (void)why;
    pthread_mutex_lock(&w.c.lock);
    if (w.c.attach == call)
        w.c.attach = rpc_unref(call);
    pthread_cond_broadcast(&w.c.changed);
    pthread_mutex_unlock(&w.c.lock);
}

static void batch_take(const Trainyard__V1__ReportBatch *b) {
    for (size_t i = 0; i < b->n_records; i++) {
        int64_t sequence = b->first_sequence + (int64_t)i;
        if (sequence > w.c.next)
            w.c.gaps++;
        if (sequence < w.c.next) {
            w.c.repeats++;
            continue;
        }
        w.c.next = sequence + 1;
        const Trainyard__V1__WorkerRecord *r = b->records[i];
        w.c.waits += r->record_case == TRAINYARD__V1__WORKER_RECORD__RECORD_NOTICE &&
                     strcmp(r->notice->kind, "waited_for_spool") == 0;
        if (r->record_case == TRAINYARD__V1__WORKER_RECORD__RECORD_METRICS)
            for (size_t k = 0; k < r->metrics->n_names; k++)
                w.c.losses += strcmp(r->metrics->names[k], "loss") == 0;
    }
}

static void report_message(struct rpc_call *call, const ProtobufCMessage *message) {
    const Trainyard__V1__ReportBatch *b = (const Trainyard__V1__ReportBatch *)message;
    pthread_mutex_lock(&w.c.lock);
    if (w.c.report != call) {
        rpc_unref(w.c.report);
        rpc_ref(call);
        w.c.report = call;
    }
    batch_take(b);
    Trainyard__V1__ReportAck ack = TRAINYARD__V1__REPORT_ACK__INIT;
    ack.job = b->job;
    ack.attempt = b->attempt;
    ack.rank = b->rank;
    ack.sequence = w.c.next - 1;
    ack.fenced = w.c.fence;
    if (!w.c.silent)
        rpc_send(call, &ack.base);
    pthread_cond_broadcast(&w.c.changed);
    pthread_mutex_unlock(&w.c.lock);
}

static void report_done(struct rpc_call *call, status_t status, const char *why) {
    (void)status;
    (void)why;
    pthread_mutex_lock(&w.c.lock);
    if (w.c.report == call)
        w.c.report = rpc_unref(call);
    pthread_mutex_unlock(&w.c.lock);
}

static const struct rpc_method methods[] = {
    { "Attach", RPC_BIDI, NULL, { .message = attach_message, .half_closed = attach_half_closed, .done = attach_done } },
    { "Report", RPC_BIDI, NULL, { .message = report_message, .half_closed = attach_half_closed, .done = report_done } },
};

static void controller_open(void) {
    struct rpc_server_config config = { .descriptors = trainyard_descriptors,
                                        .descriptors_len = trainyard_descriptors_len };
    struct err why = { "" };
    char bound[RPC_ADDRESS_BYTES];
    if (rpc_server_open(&config, &w.c.server, &why) != ST_OK ||
        rpc_server_add(w.c.server, &trainyard__v1__dispatch_service__descriptor, methods, 2, NULL, &why) != ST_OK ||
        rpc_server_listen(w.c.server, w.address, NULL, bound, &why) != ST_OK ||
        rpc_server_start(w.c.server, &why) != ST_OK)
        fail_msg("%s", why.msg);
}

/* Both streams end, as when the controller dies; the executor dials again. */
static void streams_break(void) {
    pthread_mutex_lock(&w.c.lock);
    if (w.c.attach)
        rpc_finish(w.c.attach, ST_UNAVAILABLE, "the controller is restarted by a test");
    if (w.c.report)
        rpc_finish(w.c.report, ST_UNAVAILABLE, "the controller is restarted by a test");
    pthread_mutex_unlock(&w.c.lock);
}

/* Waits for a condition on the controller, which is locked while it is looked at. */
static void wait_for(bool (*holds)(void), const char *what) {
    struct timespec until = deadline_timespec(deadline_in(PATIENCE_MS));
    pthread_mutex_lock(&w.c.lock);
    bool met;
    while (!(met = holds()))
        if (pthread_cond_clockwait(&w.c.changed, &w.c.lock, CLOCK_MONOTONIC, &until) == ETIMEDOUT)
            break;
    pthread_mutex_unlock(&w.c.lock);
    if (!met)
        fail_msg("waited in vain for %s", what);
}

/* The next message of a kind after those already seen; it belongs to the controller. */
static Trainyard__V1__AgentMessage *await(Trainyard__V1__AgentMessage__MessageCase kind, const char *what) {
    struct timespec until = deadline_timespec(deadline_in(PATIENCE_MS));
    Trainyard__V1__AgentMessage *found = NULL;
    pthread_mutex_lock(&w.c.lock);
    for (bool waiting = true; !found && waiting;) {
        for (; w.c.seen < w.c.n_messages && !found; w.c.seen++)
            if (w.c.messages[w.c.seen]->message_case == kind)
                found = w.c.messages[w.c.seen];
        if (!found)
            waiting = pthread_cond_clockwait(&w.c.changed, &w.c.lock, CLOCK_MONOTONIC, &until) == 0;
    }
    pthread_mutex_unlock(&w.c.lock);
    if (!found)
        fail_msg("waited in vain for %s", what);
    return found;
}
#define AWAIT(kind) await(TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_##kind, #kind)

/* ---- an executor ---- */

static void executor_start_with(const char *worker, const char *hang_s) {
    char program[256], log[96];
    snprintf(program, sizeof program, "%s/bin/trainyard-executor", getenv("TRAINYARD_BUILD"));
    snprintf(log, sizeof log, "%s/log", w.folder);
    const char *argv[] = { program,     "--controller",
                           w.address,   "--directory",
                           w.directory, "--slots",
                           SLOTS,       "--spool-mib",
                           "1",         "--hang-timeout",
                           hang_s,      "--data-root",
                           w.folder,    worker ? "--worker" : NULL,
                           worker,      NULL };
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    assert_int_equal(posix_spawn(&w.executor, program, &actions, NULL, (char *const *)(uintptr_t)argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
}

static void executor_start(const char *hang_s) { executor_start_with(NULL, hang_s); }

static int executor_wait(void) {
    int status;
    assert_int_equal(waitpid(w.executor, &status, 0), w.executor);
    w.executor = 0;
    return status;
}

static int setup(void **state) {
    (void)state;
    memset(&w, 0, sizeof w);
    snprintf(w.folder, sizeof w.folder, "/tmp/ty-executor-XXXXXX");
    assert_non_null(mkdtemp(w.folder));
    snprintf(w.directory, sizeof w.directory, "%s/executor", w.folder);
    snprintf(w.text, sizeof w.text, "%s/text", w.folder);
    snprintf(w.address, sizeof w.address, "unix:%s/socket", w.folder);
    FILE *f = fopen(w.text, "w");
    for (int i = 0; i < 400; i++)
        fprintf(f, "line %d of a text that has some pattern in it\n", i * i);
    fclose(f);
    pthread_mutex_init(&w.c.lock, NULL);
    pthread_cond_init(&w.c.changed, NULL);
    w.c.next = 1;
    controller_open();
    return 0;
}

static int teardown(void **state) {
    (void)state;
    if (w.executor) {
        kill(w.executor, SIGKILL);
        waitpid(w.executor, NULL, 0);
    }
    pthread_mutex_lock(&w.c.lock);
    w.c.attach = rpc_unref(w.c.attach);
    w.c.report = rpc_unref(w.c.report);
    pthread_mutex_unlock(&w.c.lock);
    rpc_server_close(w.c.server);
    for (size_t i = 0; i < w.c.n_messages; i++)
        trainyard__v1__agent_message__free_unpacked(w.c.messages[i], NULL);
    if (w.spec)
        trainyard__v1__job_spec__free_unpacked(w.spec, NULL);
    return dir_remove(w.folder, NULL) == ST_OK ? 0 : -1;
}

static void attempt_start(int64_t epoch, int32_t attempt, int steps) {
    static const char spec[] =
        "{name: t, model: {gpt: {layers: 1, heads: 1, width: 16, context: 8}},"
        " data: {text: {files: ['file://%s']}},"
        " train: {steps: %d, global_batch: 2, optimizer: {adamw: {}}, inspect: {gradients_every: 1}},"
        " checkpoint: {every: 0}}";
    char text[512], checkpoints[96];
    snprintf(text, sizeof text, spec, w.text, steps);
    ProtobufCMessage *parsed;
    assert_int_equal(codec_parse(&trainyard__v1__job_spec__descriptor, text, strlen(text), NULL, &parsed, NULL), ST_OK);
    if (w.spec)
        trainyard__v1__job_spec__free_unpacked(w.spec, NULL);
    w.spec = (Trainyard__V1__JobSpec *)parsed;
    snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints/%d/attempt-%d", w.folder, JOB, attempt);
    int32_t ranks[] = { 0 };
    Trainyard__V1__StartAttempt start = TRAINYARD__V1__START_ATTEMPT__INIT;
    start.job = JOB;
    start.attempt = attempt;
    start.world_size = 1;
    start.n_ranks = 1;
    start.ranks = ranks;
    start.spec = w.spec;
    start.checkpoint_directory = checkpoints;
    Trainyard__V1__ControllerMessage m = TRAINYARD__V1__CONTROLLER_MESSAGE__INIT;
    m.epoch = epoch;
    m.message_case = TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START;
    m.start = &start;
    command_send(&m);
}

static void attempt_stop(int32_t attempt, int grace_ms) {
    Trainyard__V1__StopAttempt stop = TRAINYARD__V1__STOP_ATTEMPT__INIT;
    stop.job = JOB;
    stop.attempt = attempt;
    stop.grace_ms = grace_ms;
    stop.reason = (char *)(uintptr_t) "a test says so";
    Trainyard__V1__ControllerMessage m = TRAINYARD__V1__CONTROLLER_MESSAGE__INIT;
    m.epoch = EPOCH;
    m.message_case = TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP;
    m.stop = &stop;
    command_send(&m);
}

static void attempt_acknowledge(int32_t attempt) {
    Trainyard__V1__AttemptAcknowledged acknowledged = TRAINYARD__V1__ATTEMPT_ACKNOWLEDGED__INIT;
    acknowledged.job = JOB;
    acknowledged.attempt = attempt;
    Trainyard__V1__ControllerMessage m = TRAINYARD__V1__CONTROLLER_MESSAGE__INIT;
    m.epoch = EPOCH;
    m.message_case = TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_ACKNOWLEDGED;
    m.acknowledged = &acknowledged;
    command_send(&m);
}

static bool folder_is_empty(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", w.directory, name);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    bool empty = true;
    for (struct dirent *entry; (entry = readdir(dir));)
        empty = empty && entry->d_name[0] == '.';
    closedir(dir);
    return empty;
}

static void empty_is_awaited(const char *name) {
    int64_t deadline = clock_mono_ms() + PATIENCE_MS;
    while (!folder_is_empty(name) && clock_mono_ms() < deadline)
        sched_yield();
    assert_true(folder_is_empty(name));
}

static bool gone(pid_t pid, int64_t start_time) {
    int64_t seen;
    return spawn_start_time(pid, &seen, NULL) != ST_OK || seen != start_time;
}

static int64_t now(const int64_t *count) {
    pthread_mutex_lock(&w.c.lock);
    int64_t value = *count;
    pthread_mutex_unlock(&w.c.lock);
    return value;
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
    fclose(f);
    return kib;
}

/* ---- the claims ---- */

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
static void a_worker_is_told_after_which_silence_it_is_killed(void **state) {
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

static void a_rank_that_lives_and_gets_nowhere_is_a_hang_two_seconds_later(void **state) {
    (void)state;
    executor_start("8");
    AWAIT(HELLO);
    attempt_start(EPOCH, 1, 100000000);
    pid_t pid = AWAIT(RANK_STARTED)->rank_started->pid;
    AWAIT(RANK_READY);
    assert_int_equal(ptrace(PTRACE_SEIZE, pid, NULL, NULL), 0);
    assert_int_equal(ptrace(PTRACE_INTERRUPT, pid, NULL, NULL), 0); /* the thread that computes, and no other */
    int status;
    assert_int_equal(waitpid(pid, &status, __WALL), pid);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(waitpid(pid, &status, __WALL), pid); /* a tracer hears of the death before the parent does */
    assert_true(WIFSIGNALED(status));
    const Trainyard__V1__RankEnd *end = AWAIT(RANK_ENDED)->rank_ended->end;
    assert_string_equal(end->message,
                        "made no progress for 10 s and was killed; --hang-timeout of its executor allows more");
}

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

static bool rank_ended(void) {
    for (size_t i = 0; i < w.c.n_messages; i++)
        if (w.c.messages[i]->message_case == TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_RANK_ENDED)
            return true;
    return false;
}

/* The controller stores nothing until the spool is full and the worker waits; that is no hang, and no loss is lost. */
static void a_full_spool_makes_training_wait_and_is_no_hang(void **state) {
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
    pthread_mutex_lock(&w.c.lock);
    assert_false(rank_ended());
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

static void an_executor_that_stood_still_blames_no_worker(void **state) {
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
    pthread_mutex_lock(&w.c.lock);
    bool blamed = rank_ended();
    pthread_mutex_unlock(&w.c.lock);
    assert_false(blamed);
}

/* Nobody acknowledges, the spool is full, the worker is held back; then the attempt is over. */
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

/* ---- a disk that stands still ---- */

/* Where an attempt's record is written to: it can be opened only when somebody reads. */
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

/* Its first worker: the record of the attempt is what it does next. */
static void child_is_awaited(void) {
    char path[64];
    int child;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)w.executor, (int)w.executor);
    for (int64_t deadline = clock_mono_ms() + PATIENCE_MS; !found && clock_mono_ms() < deadline; sched_yield()) {
        FILE *f = fopen(path, "r");
        found = f && fscanf(f, "%d", &child) == 1;
        fclose(f);
    }
    assert_true(found);
}

static void seen_forget(void) {
    pthread_mutex_lock(&w.c.lock);
    w.c.seen = w.c.n_messages;
    pthread_mutex_unlock(&w.c.lock);
}

static bool rank_started(void) {
    for (size_t i = 0; i < w.c.n_messages; i++)
        if (w.c.messages[i]->message_case == TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_RANK_STARTED)
            return true;
    return false;
}

static void a_disk_that_stands_still_holds_up_no_heartbeat(void **state) {
    (void)state;
    executor_start("30");
    AWAIT(HELLO);
    disk_stop();
    attempt_start(EPOCH, 1, 10);
    child_is_awaited();
    seen_forget();
    AWAIT(HEARTBEAT);
    AWAIT(HEARTBEAT);
    pthread_mutex_lock(&w.c.lock);
    const bool started = rank_started();
    pthread_mutex_unlock(&w.c.lock);
    assert_false(started);
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

/* Nobody would hear of its ranks again: the lease is to end. */
static void an_agent_that_stands_still_for_too_long_is_silent_until_it_goes_on(void **state) {
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
    log_is_awaited("stood_still");
}

#define CLAIM(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        CLAIM(an_attempt_runs_to_its_end_and_leaves_nothing_behind),
        CLAIM(a_broken_stream_repeats_what_was_not_acknowledged),
        CLAIM(a_killed_executor_leaves_no_orphan_and_the_next_one_tells_its_attempts),
        CLAIM(a_command_of_a_lower_epoch_is_refused),
        CLAIM(a_fenced_attempt_loses_its_workers_and_its_records),
        CLAIM(a_worker_is_told_after_which_silence_it_is_killed),
        CLAIM(a_stopped_worker_is_a_hang_and_is_killed),
        CLAIM(a_rank_that_lives_and_gets_nowhere_is_a_hang_two_seconds_later),
        CLAIM(a_full_spool_makes_training_wait_and_is_no_hang),
        CLAIM(an_executor_that_stood_still_blames_no_worker),
        CLAIM(a_disk_that_stands_still_holds_up_no_heartbeat),
        CLAIM(an_agent_that_stands_still_for_too_long_is_silent_until_it_goes_on),
        CLAIM(fencing_frees_a_full_spool),
        CLAIM(a_stop_is_heard_and_one_for_an_unknown_attempt_is_answered),
        CLAIM(a_second_stop_ends_sooner_and_not_later),
        CLAIM(data_outside_of_the_roots_is_refused),
        CLAIM(sigterm_ends_the_workers_and_then_the_executor),
        CLAIM(a_second_executor_on_the_directory_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
