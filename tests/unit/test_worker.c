/* The real trainyard-worker under the agent's child.h: gangs of real processes that train, with this test in the place
 * of the controller. */
#include "api/codec/text.h"
#include "base/clock.h"
#include "base/file.h"
#include "executor/agent/worker_process.h"

#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS_MOST = 2, STEPS = 12, PATIENCE_MS = 240000, AT_ONCE_MS = PATIENCE_MS / 4 /* on a busy machine */ };

struct gang;
struct member {
    char *checkpoint_root;
    struct gang *gang;
    int rank;
    struct worker_process *child;
    Trainyard__V1__WorkerStart start;
    Trainyard__V1__AttemptStart attempt;
    ProtobufCBinaryData address;
    Trainyard__V1__WorkerEnd__Cause cause;
    char message[400], sha[65];
    struct exit_status how;
    int losses, finals, joined;
    int64_t died_ms, from_step, step, saved_step; /* done, by the last word; of the newest shard */
    bool ended;
};
struct gang {
    char folder[64];
    char text[96], checkpoints[96];
    char resume[128];
    struct reactor *loop;
    struct spool *spool;
    struct reactor_timer patience;
    int world_size, offered, gone;
    struct member members[RANKS_MOST];
    Trainyard__V1__JobSpec *spec;
    int kill_rank_at_loss; /* rank 1 is killed when rank 0 has reported so many losses; 0: never */
    int stop_at_loss;      /* as WorkerStop */
    bool forked;           /* what it resumes from is another job's */
    bool term;             /* stop by SIGTERM instead */
    bool full;             /* where checkpoints go there is a file by then */
    bool unmet;            /* rank 1 stands still when the ranks are to meet, and rank 0 is asked to stop */
    int alive;             /* signs of rank 0's life since then */
    int64_t killed_ms;
    bool overdue;
};

static const char spec_text[] =
    "name: test\n"
    "model: {gpt: {layers: 2, heads: 2, width: 32, context: 16}}\n"
    "data: {text: {files: ['file://%s']}}\n"
    "train: {steps: %d, global_batch: 8, micro_batch: 2, seed: 3, optimizer: {adamw: {lr: 0.003}},\n"
    "        eval: {every: 0, batches: 1}}\n"
    "parallel: {data: %d}\n"
    "resources: {memory_bytes: 1000000000}\n"
    "checkpoint: {every: 5}\n";

static void patience_over(void *ctx) {
    struct gang *g = ctx;
    g->overdue = true;
    reactor_quit(g->loop);
}

static void all_send(struct gang *g, const Trainyard__V1__WorkerCommand *command) {
    for (int i = 0; i < g->world_size; i++)
        assert_int_equal(worker_process_send(g->members[i].child, command, NULL), ST_OK);
}

static void rendezvous(struct gang *g) {
    ProtobufCBinaryData all[RANKS_MOST];
    for (int i = 0; i < g->world_size; i++)
        all[i] = g->members[i].address;
    Trainyard__V1__Rendezvous r = TRAINYARD__V1__RENDEZVOUS__INIT;
    r.n_addresses = (size_t)g->world_size;
    r.addresses = all;
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_RENDEZVOUS;
    command.rendezvous = &r;
    all_send(g, &command);
}

static void stop_send(struct member *m) {
    Trainyard__V1__WorkerStop stop = TRAINYARD__V1__WORKER_STOP__INIT;
    stop.reason = (char *)(uintptr_t) "cancelled by a test";
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_STOP;
    command.stop = &stop;
    assert_int_equal(worker_process_send(m->child, &command, NULL), ST_OK);
}

static void all_offered(struct gang *g) {
    if (g->unmet)
        kill(worker_process_pid(g->members[1].child), SIGSTOP);
    rendezvous(g);
}

/* By its third sign of life after the rendezvous the rank is on its way to the others. */
static void stop_unmet(struct member *m) {
    struct gang *g = m->gang;
    if (!g->unmet || m->rank != 0 || g->offered < g->world_size || ++g->alive != 3)
        return;
    g->killed_ms = clock_mono_ms();
    stop_send(m);
}

static void on_record(void *ctx, const Trainyard__V1__WorkerRecord *record) {
    struct member *m = ctx;
    struct gang *g = m->gang;
    if (record->record_case == TRAINYARD__V1__WORKER_RECORD__RECORD_ADDRESS) {
        m->address.len = record->address->address.len;
        m->address.data = malloc(m->address.len + 1);
        memcpy(m->address.data, record->address->address.data, m->address.len);
        if (++g->offered == g->world_size)
            all_offered(g);
    } else if (record->record_case == TRAINYARD__V1__WORKER_RECORD__RECORD_JOINED) {
        m->joined++;
        m->from_step = record->joined->from_step;
    } else if (record->record_case == TRAINYARD__V1__WORKER_RECORD__RECORD_ALIVE) {
        stop_unmet(m);
    } else if (record->record_case == TRAINYARD__V1__WORKER_RECORD__RECORD_END) {
        m->cause = record->end->cause;
        m->step = record->end->step;
        snprintf(m->message, sizeof m->message, "%s", record->end->message);
        snprintf(m->sha, sizeof m->sha, "%s", record->end->weights_sha256);
    }
}

static bool count_visit(void *ctx, int64_t sequence, const uint8_t *data, size_t n) {
    (void)sequence;
    struct member *m = ctx;
    Trainyard__V1__WorkerRecord *record = trainyard__v1__worker_record__unpack(NULL, n, data);
    assert_non_null(record);
    if (record->record_case == TRAINYARD__V1__WORKER_RECORD__RECORD_METRICS)
        for (size_t i = 0; i < record->metrics->n_names; i++)
            m->losses += strcmp(record->metrics->names[i], "loss") == 0;
    if (record->record_case == TRAINYARD__V1__WORKER_RECORD__RECORD_SHARD) {
        m->finals += record->shard->final;
        m->saved_step = record->shard->step;
    }
    if (record->record_case == TRAINYARD__V1__WORKER_RECORD__RECORD_LOG && strcmp(record->log->stream, "worker") != 0)
        print_message("rank %d %s: %s\n", m->rank, record->log->stream, record->log->text);
    trainyard__v1__worker_record__free_unpacked(record, NULL);
    return true;
}

static void counts_take(struct member *m) {
    struct spool_key key = { 1, 1, m->rank };
    struct spool_log *log = spool_log_find(m->gang->spool, &key);
    m->losses = m->finals = 0;
    assert_int_equal(spool_read(log, 1, SIZE_MAX, count_visit, m, NULL), ST_OK);
}

static void on_spooled(void *ctx, bool urgent) {
    (void)urgent;
    struct member *m = ctx;
    struct gang *g = m->gang;
    if (m->rank != 0 || g->killed_ms || !(g->kill_rank_at_loss + g->stop_at_loss))
        return;
    counts_take(m);
    if (g->kill_rank_at_loss && m->losses >= g->kill_rank_at_loss) {
        g->killed_ms = clock_mono_ms();
        kill(worker_process_pid(g->members[1].child), SIGKILL);
    } else if (g->stop_at_loss && m->losses >= g->stop_at_loss) {
        g->killed_ms = clock_mono_ms();
        if (g->full) {
            assert_int_equal(rmdir(g->checkpoints), 0);
            assert_int_equal(close(open(g->checkpoints, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
        }
        for (int i = 0; i < g->world_size; i++)
            if (g->term)
                worker_process_terminate(g->members[i].child);
            else
                stop_send(&g->members[i]);
    }
}

static void on_ended(void *ctx, const struct exit_status *how, bool drained) {
    struct member *m = ctx;
    assert_true(drained);
    m->how = *how;
    m->died_ms = clock_mono_ms();
    m->ended = true;
    if (m->gang->unmet && m->rank == 0)
        kill(worker_process_pid(m->gang->members[1].child), SIGKILL);
    if (++m->gang->gone == m->gang->world_size)
        reactor_quit(m->gang->loop);
}

static void gang_open(struct gang *g, int world_size, const char *file) {
    *g = (struct gang){ .world_size = world_size };
    snprintf(g->folder, sizeof g->folder, "/tmp/ty-worker-XXXXXX");
    assert_non_null(mkdtemp(g->folder));
    snprintf(g->text, sizeof g->text, "%s/text", g->folder);
    snprintf(g->checkpoints, sizeof g->checkpoints, "%s/checkpoints/1/attempt-1", g->folder);
    FILE *f = fopen(g->text, "w");
    for (int i = 0; i < 400; i++)
        fprintf(f, "line %d of a text that has some pattern in it\n", i * i);
    fclose(f);
    char text[1024], spool[96];
    snprintf(text, sizeof text, spec_text, file ? file : g->text, STEPS, world_size);
    struct err why = { "" };
    ProtobufCMessage *spec;
    if (codec_parse(&trainyard__v1__job_spec__descriptor, text, strlen(text), NULL, &spec, &why) != ST_OK)
        fail_msg("%s", why.msg);
    g->spec = (Trainyard__V1__JobSpec *)spec;
    assert_int_equal(reactor_open(&g->loop, NULL), ST_OK);
    snprintf(spool, sizeof spool, "%s/spool", g->folder);
    assert_int_equal(spool_open(spool, 16 << 20, &g->spool, NULL), ST_OK);
    g->patience = (struct reactor_timer){ .fire = patience_over, .ctx = g };
}

static void member_start(struct gang *g, int rank) {
    struct member *m = &g->members[rank];
    m->gang = g;
    m->rank = rank;
    struct spool_key key = { 1, 1, rank };
    struct spool_log *log;
    assert_int_equal(spool_log_open(g->spool, &key, &log, NULL), ST_OK);
    char program[256], parent[16];
    snprintf(program, sizeof program, "%s/bin/trainyard-worker", getenv("TRAINYARD_BUILD"));
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    const char *argv[] = { program, "--agent-pid", parent, NULL };
    struct worker_process_options o = { .loop = g->loop,
                                        .spool = g->spool,
                                        .log = log,
                                        .spawn = { .program = program, .argv = argv, .threads = 1 },
                                        .owner = {
                                            .ctx = m, .record = on_record, .spooled = on_spooled, .ended = on_ended } };
    struct err why = { "" };
    if (worker_process_open(&o, &m->child, &why) != ST_OK)
        fail_msg("%s", why.msg);
    trainyard__v1__worker_start__init(&m->start);
    trainyard__v1__attempt_start__init(&m->attempt);
    m->start.attempt = &m->attempt;
    m->attempt.job = m->attempt.attempt = 1;
    m->attempt.world_size = g->world_size;
    m->attempt.spec = g->spec;
    m->attempt.checkpoint_directory = g->checkpoints;
    m->attempt.resume_directory = g->resume;
    m->attempt.forked = g->forked;
    m->start.rank = rank;
    m->start.threads = 1;
    m->start.address = (char *)(uintptr_t) "127.0.0.1";
    static char root[] = "/", *roots[] = { root };
    m->start.data_roots = roots;
    m->start.n_data_roots = 1;
    m->checkpoint_root = g->folder;
    m->start.checkpoint_roots = &m->checkpoint_root;
    m->start.n_checkpoint_roots = 1;
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_START;
    command.start = &m->start;
    assert_int_equal(worker_process_send(m->child, &command, NULL), ST_OK);
}

static void gang_run(struct gang *g) {
    for (int i = 0; i < g->world_size; i++)
        member_start(g, i);
    reactor_timer_set(g->loop, &g->patience, PATIENCE_MS);
    assert_int_equal(reactor_run(g->loop, NULL), ST_OK);
    assert_false(g->overdue);
    reactor_timer_cancel(g->loop, &g->patience);
    for (int i = 0; i < g->world_size; i++)
        counts_take(&g->members[i]);
}

static void gang_close(struct gang *g) {
    for (int i = 0; i < g->world_size; i++) {
        worker_process_close(g->members[i].child);
        free(g->members[i].address.data);
    }
    spool_close(g->spool);
    reactor_close(g->loop);
    trainyard__v1__job_spec__free_unpacked(g->spec, NULL);
    assert_int_equal(dir_remove(g->folder, NULL), ST_OK);
}

static void finished_is_asserted(const struct member *m) {
    if (m->cause != TRAINYARD__V1__WORKER_END__CAUSE__FINISHED)
        fail_msg("rank %d ended with cause %d: %s", m->rank, m->cause, m->message);
    assert_int_equal(m->how.exit_code, 0);
    assert_int_equal(m->how.signal, 0);
}

static void a_rank_trains_alone_and_a_gang_of_two_gets_the_same_bits(void **state) {
    (void)state;
    char sha[65] = "";
    for (int world_size = 1; world_size <= 2; world_size++) {
        struct gang g;
        gang_open(&g, world_size, NULL);
        gang_run(&g);
        for (int i = 0; i < world_size; i++) {
            finished_is_asserted(&g.members[i]);
            assert_int_equal(g.members[i].joined, 1);
            assert_int_equal(g.members[i].from_step, 0);
            assert_int_equal(g.members[i].losses, i == 0 ? STEPS : 0);
            assert_int_equal(g.members[i].finals, 1);
        }
        assert_int_equal(strlen(g.members[0].sha), 64);
        if (world_size == 1)
            memcpy(sha, g.members[0].sha, sizeof sha);
        assert_string_equal(g.members[0].sha, sha);
        gang_close(&g);
    }
}

static void a_killed_rank_is_known_at_once_and_its_peer_says_so(void **state) {
    (void)state;
    struct gang g;
    gang_open(&g, 2, NULL);
    g.spec->train->steps = 100000;
    g.kill_rank_at_loss = 3;
    gang_run(&g);
    const struct member *killed = &g.members[1], *peer = &g.members[0];
    assert_int_equal(killed->how.signal, SIGKILL);
    assert_true(killed->died_ms - g.killed_ms < AT_ONCE_MS);
    assert_true(peer->died_ms - g.killed_ms < AT_ONCE_MS);
    assert_int_equal(peer->cause, TRAINYARD__V1__WORKER_END__CAUSE__PEER_LOST);
    assert_int_equal(peer->how.exit_code, 20 + TRAINYARD__V1__WORKER_END__CAUSE__PEER_LOST);
    assert_true(strlen(peer->message) > 10);
    gang_close(&g);
}

static void a_stop_ends_all_ranks_with_its_reason_and_a_checkpoint_of_their_last_step(void **state) {
    (void)state;
    struct gang g;
    gang_open(&g, 2, NULL);
    g.spec->train->steps = 100000;
    g.stop_at_loss = 3;
    gang_run(&g);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(g.members[i].cause, TRAINYARD__V1__WORKER_END__CAUSE__STOPPED);
        assert_string_equal(g.members[i].message, "asked to stop: cancelled by a test");
        assert_int_equal(g.members[i].how.exit_code, 20 + TRAINYARD__V1__WORKER_END__CAUSE__STOPPED);
        assert_true(g.members[i].step >= 3 && g.members[i].step == g.members[0].step);
        assert_int_equal(g.members[i].saved_step, g.members[i].step);
        assert_int_equal(g.members[i].finals, 0); /* steps are left to do */
        assert_string_equal(g.members[i].sha, "");
    }
    gang_close(&g);
}

static void the_reason_that_a_stopped_rank_has_no_checkpoint_is_reported(void **state) {
    (void)state;
    struct gang g;
    gang_open(&g, 1, NULL);
    g.spec->train->steps = 100000;
    g.spec->checkpoint->every = 0;
    g.stop_at_loss = 3;
    g.full = true;
    gang_run(&g);
    assert_int_equal(g.members[0].cause, TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_WRITE);
    assert_non_null(strstr(g.members[0].message, "there is a file by the name of a folder"));
    gang_close(&g);
}

static void a_stop_before_the_rendezvous_waits_for_no_rank(void **state) {
    (void)state;
    struct gang g;
    gang_open(&g, 2, NULL);
    g.unmet = true;
    gang_run(&g);
    assert_int_equal(g.members[0].how.exit_code, 20 + TRAINYARD__V1__WORKER_END__CAUSE__STOPPED);
    assert_true(g.members[0].died_ms - g.killed_ms < AT_ONCE_MS);
    assert_int_equal(g.members[1].how.signal, SIGKILL);
    gang_close(&g);
}

static void sigterm_ends_a_rank_at_once_and_with_a_last_word(void **state) {
    (void)state;
    struct gang g;
    gang_open(&g, 2, NULL);
    g.spec->train->steps = 100000;
    g.stop_at_loss = 3;
    g.term = true;
    gang_run(&g);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(g.members[i].cause, TRAINYARD__V1__WORKER_END__CAUSE__STOPPED);
        assert_int_equal(g.members[i].how.signal, 0);
        assert_true(g.members[i].died_ms - g.killed_ms < AT_ONCE_MS);
    }
    gang_close(&g);
}

static void missing_data_is_a_fault_of_the_host_with_the_fields_path(void **state) {
    (void)state;
    struct gang g;
    gang_open(&g, 1, "/nowhere/at/all");
    gang_run(&g);
    assert_int_equal(g.members[0].cause, TRAINYARD__V1__WORKER_END__CAUSE__HOST_FAULT);
    assert_int_equal(g.members[0].how.exit_code, 20 + TRAINYARD__V1__WORKER_END__CAUSE__HOST_FAULT);
    assert_string_equal(g.members[0].message, "data.text.files[0]: open '/nowhere/at/all': No such file or directory");
    gang_close(&g);
}

static void checkpoint_make(const struct gang *g, const char *manifest) {
    char path[sizeof g->resume + 32];
    assert_int_equal(mkdir(g->resume, 0755), 0);
    snprintf(path, sizeof path, "%s/manifest.json", g->resume);
    assert_int_equal(file_write_atomic(path, manifest, strlen(manifest), 0644, NULL), ST_OK);
}

/* Whoever reads it first, the engine or what becomes of `auto`. A fork has no older checkpoint: another attempt would
 * read the same wrong bytes again. */
static void missing_and_corrupt_checkpoints_have_different_causes(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct gang g;
        const bool missing = i<4, with_auto = i % 4> 0;
        gang_open(&g, 1 + i % 2, NULL);
        g.forked = i % 4 < 3;
        g.spec->train->micro_batch_auto = with_auto;
        if (with_auto)
            g.spec->train->_micro_batch_case = TRAINYARD__V1__TRAIN_SPEC___MICRO_BATCH__NOT_SET;
        snprintf(g.resume, sizeof g.resume, "%s/gone", g.folder);
        if (!missing)
            checkpoint_make(&g, "{}");
        gang_run(&g);
        const struct member *m = &g.members[0];
        assert_int_equal(m->cause, missing    ? TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_UNREADABLE
                                   : g.forked ? TRAINYARD__V1__WORKER_END__CAUSE__BAD_SPEC
                                              : TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_BAD);
        assert_int_equal(strstr(m->message, "that this job was forked from") != NULL, g.forked);
        /* Rank 0 alone has read it, and tells of its own host. */
        if (missing && with_auto && i % 2)
            assert_int_equal(g.members[1].cause, TRAINYARD__V1__WORKER_END__CAUSE__PEER_LOST);
        gang_close(&g);
    }
}

struct stand_in {
    pid_t worker;
    int64_t start_time;
    int commands, records; /* in the stand-in's own table */
};

/* A process in the agent's place, which starts a worker and then does nothing. */
static pid_t stand_in_start(struct stand_in *ret) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t agent = fork();
    assert_true(agent >= 0);
    if (agent == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a claim that fails leaves nothing behind */
        char program[256], parent[16];
        snprintf(program, sizeof program, "%s/bin/trainyard-worker", getenv("TRAINYARD_BUILD"));
        snprintf(parent, sizeof parent, "%d", (int)getpid());
        const char *argv[] = { program, "--agent-pid", parent, NULL };
        struct spawn_options o = { .program = program, .argv = argv, .threads = 1 };
        struct spawned s;
        if (spawn_worker(&o, &s, NULL) != ST_OK)
            _exit(1);
        struct stand_in in = { s.pid, s.start_time, s.commands, s.records };
        if (write(ends[1], &in, sizeof in) != sizeof in)
            _exit(1);
        for (;;)
            pause();
    }
    close(ends[1]); /* the read ends if the stand-in does */
    assert_int_equal(read(ends[0], ret, sizeof *ret), sizeof *ret);
    close(ends[0]);
    return agent;
}

static bool gone_within(const struct stand_in *in, int ms) {
    int64_t deadline = clock_mono_ms() + ms, seen;
    while (spawn_start_time(in->worker, &seen, NULL) == ST_OK && seen == in->start_time)
        if (clock_mono_ms() > deadline)
            return false;
        else
            sched_yield();
    return true;
}

/* The worker blocks SIGTERM after it has asked for its parent's death signal: then the kernel has both. */
static void ready_is_awaited(const struct stand_in *in) {
    char path[40], line[128];
    snprintf(path, sizeof path, "/proc/%d/status", (int)in->worker);
    int64_t deadline = clock_mono_ms() + 10000;
    unsigned long long blocked = 0;
    while (!(blocked >> (SIGTERM - 1) & 1)) {
        assert_true(clock_mono_ms() < deadline);
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        while (fgets(line, sizeof line, f))
            sscanf(line, "SigBlk: %llx", &blocked);
        fclose(f);
    }
}

static void a_worker_dies_with_its_agent_even_if_its_pipes_live_on(void **state) {
    (void)state;
    struct stand_in in;
    pid_t agent = stand_in_start(&in);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)agent, in.commands);
    int commands = open(path, O_WRONLY);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)agent, in.records);
    int records = open(path, O_RDONLY);
    assert_true(commands >= 0 && records >= 0);
    ready_is_awaited(&in);
    kill(agent, SIGKILL);
    waitpid(agent, NULL, 0);
    assert_true(gone_within(&in, PATIENCE_MS));
    close(commands);
    close(records);
}

static void a_worker_without_its_parent_does_not_start(void **state) {
    (void)state;
    char program[256];
    snprintf(program, sizeof program, "%s/bin/trainyard-worker", getenv("TRAINYARD_BUILD"));
    const char *argv[] = { program, "--agent-pid", "1", NULL }; /* the agent is dead, and this is another process */
    struct spawn_options o = { .program = program, .argv = argv, .threads = 1 };
    struct spawned s;
    assert_int_equal(spawn_worker(&o, &s, NULL), ST_OK);
    int status;
    assert_int_equal(waitpid(s.pid, &status, 0), s.pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 20 + TRAINYARD__V1__WORKER_END__CAUSE__AGENT_LOST);
    spawned_close(&s);
}

static void a_closed_command_pipe_ends_a_worker(void **state) {
    (void)state;
    char program[256], parent[16];
    snprintf(program, sizeof program, "%s/bin/trainyard-worker", getenv("TRAINYARD_BUILD"));
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    const char *argv[] = { program, "--agent-pid", parent, NULL };
    struct spawn_options o = { .program = program, .argv = argv, .threads = 1 };
    struct spawned s;
    assert_int_equal(spawn_worker(&o, &s, NULL), ST_OK);
    close(s.commands);
    s.commands = -1;
    int status;
    assert_int_equal(waitpid(s.pid, &status, 0), s.pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 20 + TRAINYARD__V1__WORKER_END__CAUSE__AGENT_LOST);
    spawned_close(&s);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_trains_alone_and_a_gang_of_two_gets_the_same_bits),
        cmocka_unit_test(a_killed_rank_is_known_at_once_and_its_peer_says_so),
        cmocka_unit_test(a_stop_ends_all_ranks_with_its_reason_and_a_checkpoint_of_their_last_step),
        cmocka_unit_test(the_reason_that_a_stopped_rank_has_no_checkpoint_is_reported),
        cmocka_unit_test(a_stop_before_the_rendezvous_waits_for_no_rank),
        cmocka_unit_test(sigterm_ends_a_rank_at_once_and_with_a_last_word),
        cmocka_unit_test(missing_data_is_a_fault_of_the_host_with_the_fields_path),
        cmocka_unit_test(missing_and_corrupt_checkpoints_have_different_causes),
        cmocka_unit_test(a_worker_dies_with_its_agent_even_if_its_pipes_live_on),
        cmocka_unit_test(a_worker_without_its_parent_does_not_start),
        cmocka_unit_test(a_closed_command_pipe_ends_a_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
