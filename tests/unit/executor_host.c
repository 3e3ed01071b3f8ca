/* A controller that the test controls, and a real executor that attaches to it.
 *
 * The controller is an RPC server with the two agent streams. It keeps every agent message in a list, answers hello
 * with a welcome, and counts records instead of storing them: it accepts a batch only if the batch continues the
 * sequence, and counts losses, repeats, gaps and waits. Flags of struct controller make it silent, fencing or
 * forgetful.
 *
 * The executor is the built program with real workers, started as a child with its directory in a temporary folder.
 * Tests wait for messages and counters on one condition variable, with PATIENCE_MS as the limit. */
#include "tests/unit/executor_host.h"

#include "api/codec/text.h"
#include "base/clock.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <trainyard/descriptors.h>
#include <unistd.h>

#include <cmocka.h>

extern char **environ;

struct world w;

/* ---- a controller ---- */

static void *copy(const ProtobufCMessage *m) {
    size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *packed = malloc(n + 1);
    protobuf_c_message_pack(m, packed);
    void *ret = protobuf_c_message_unpack(m->descriptor, NULL, n, packed);
    free(packed);
    return ret;
}

/* Nothing is sent if the stream is over: the agent may have ended it, and attach_done comes a moment later. */
void command_send(Trainyard__V1__ControllerMessage *m) {
    pthread_mutex_lock(&w.c.lock);
    const enum rpc_sent sent = w.c.attach ? rpc_send(w.c.attach, &m->base) : RPC_CLOSED;
    pthread_mutex_unlock(&w.c.lock);
    assert_true(sent == RPC_SENT || sent == RPC_CLOSED);
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
        if (w.c.nonce)
            answer.epoch_nonce = (char *)(uintptr_t)w.c.nonce;
        if (w.c.cluster)
            welcome.cluster = (char *)(uintptr_t)w.c.cluster;
        answer.message_case = TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_WELCOME;
        answer.welcome = &welcome;
        rpc_send(call, &answer.base);
    }
    if (w.c.n_messages < MESSAGES_MAX)
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

/* Returns false if the batch begins after the next expected record. */
static bool batch_take(const Trainyard__V1__ReportBatch *b) {
    if (b->first_sequence - b->lost > w.c.next) {
        w.c.gaps += b->n_records > 0;
        return false;
    }
    if (b->first_sequence > w.c.next) {
        w.c.lost += b->first_sequence - w.c.next;
        w.c.next = b->first_sequence;
    }
    for (size_t i = 0; i < b->n_records; i++) {
        int64_t sequence = b->first_sequence + (int64_t)i;
        if (sequence < w.c.next) {
            w.c.repeats++;
            continue;
        }
        w.c.next = sequence + 1;
        Trainyard__V1__WorkerRecord *r = trainyard__v1__worker_record__unpack(NULL, b->records[i].len,
                                                                              b->records[i].data);
        assert_non_null(r);
        w.c.waits += r->record_case == TRAINYARD__V1__WORKER_RECORD__RECORD_NOTICE &&
                     strcmp(r->notice->kind, "waited_for_spool") == 0;
        if (r->record_case == TRAINYARD__V1__WORKER_RECORD__RECORD_METRICS)
            for (size_t k = 0; k < r->metrics->n_names; k++)
                w.c.losses += strcmp(r->metrics->names[k], "loss") == 0;
        trainyard__v1__worker_record__free_unpacked(r, NULL);
    }
    return true;
}

static void report_message(struct rpc_call *call, const ProtobufCMessage *message) {
    const Trainyard__V1__ReportBatch *b = (const Trainyard__V1__ReportBatch *)message;
    pthread_mutex_lock(&w.c.lock);
    if (w.c.report != call) {
        rpc_unref(w.c.report);
        rpc_ref(call);
        w.c.report = call;
    }
    const bool taken = batch_take(b);
    Trainyard__V1__ReportAck ack = TRAINYARD__V1__REPORT_ACK__INIT;
    ack.job = b->job;
    ack.attempt = b->attempt;
    ack.rank = b->rank;
    ack.sequence = w.c.next - 1;
    ack.fenced = w.c.fence;
    ack.gap = !taken;
    if (!w.c.silent || b->n_records == 0)
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

static void streams_break_locked(void) {
    if (w.c.attach)
        rpc_finish(w.c.attach, ST_UNAVAILABLE, "the controller is restarted by a test");
    if (w.c.report)
        rpc_finish(w.c.report, ST_UNAVAILABLE, "the controller is restarted by a test");
}

void streams_break(void) {
    pthread_mutex_lock(&w.c.lock);
    streams_break_locked();
    pthread_mutex_unlock(&w.c.lock);
}

void database_set_back(int64_t next) {
    pthread_mutex_lock(&w.c.lock);
    streams_break_locked();
    w.c.report = rpc_unref(w.c.report);
    w.c.next = next;
    w.c.losses = 0;
    pthread_mutex_unlock(&w.c.lock);
}

void wait_for(bool (*holds)(void), const char *what) {
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

Trainyard__V1__AgentMessage *await(Trainyard__V1__AgentMessage__MessageCase kind, const char *what) {
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

/* ---- an executor ---- */

void executor_start_with(const char *worker, const char *hang_s) {
    char program[256], log[96];
    snprintf(program, sizeof program, "%s/bin/trainyard-executor", getenv("TRAINYARD_BUILD"));
    snprintf(log, sizeof log, "%s/log", w.folder);
    const char *argv[] = { program,     "--controller",
                           w.address,   "--directory",
                           w.directory, "--slots",
                           SLOTS,       "--cores",
                           CORES,       "--spool-mib",
                           "1",         "--hang-timeout",
                           hang_s,      "--data-root",
                           w.folder,    "--checkpoint-root",
                           w.folder,    worker ? "--worker" : NULL,
                           worker,      NULL };
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    assert_int_equal(posix_spawn(&w.executor, program, &actions, NULL, (char *const *)(uintptr_t)argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
}

void executor_start(const char *hang_s) { executor_start_with(NULL, hang_s); }

int executor_wait(void) {
    int status;
    assert_int_equal(waitpid(w.executor, &status, 0), w.executor);
    w.executor = 0;
    return status;
}

int executor_host_setup(void **state) {
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

int executor_host_teardown(void **state) {
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

void attempt_start(int64_t epoch, int32_t attempt, int steps) {
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
    Trainyard__V1__AttemptStart start = TRAINYARD__V1__ATTEMPT_START__INIT;
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

void attempt_stop(int32_t attempt, int grace_ms) {
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

void attempt_acknowledge(int32_t attempt) {
    Trainyard__V1__AttemptAcknowledged acknowledged = TRAINYARD__V1__ATTEMPT_ACKNOWLEDGED__INIT;
    acknowledged.job = JOB;
    acknowledged.attempt = attempt;
    Trainyard__V1__ControllerMessage m = TRAINYARD__V1__CONTROLLER_MESSAGE__INIT;
    m.epoch = EPOCH;
    m.message_case = TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_ACKNOWLEDGED;
    m.acknowledged = &acknowledged;
    command_send(&m);
}

bool folder_is_empty(const char *name) {
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

void empty_is_awaited(const char *name) {
    int64_t deadline = clock_mono_ms() + PATIENCE_MS;
    while (!folder_is_empty(name) && clock_mono_ms() < deadline)
        sched_yield();
    assert_true(folder_is_empty(name));
}

int64_t now(const int64_t *count) {
    pthread_mutex_lock(&w.c.lock);
    int64_t value = *count;
    pthread_mutex_unlock(&w.c.lock);
    return value;
}

bool was_received(Trainyard__V1__AgentMessage__MessageCase kind) {
    pthread_mutex_lock(&w.c.lock);
    bool received = false;
    for (size_t i = 0; i < w.c.n_messages; i++)
        received = received || w.c.messages[i]->message_case == kind;
    pthread_mutex_unlock(&w.c.lock);
    return received;
}
