/* The agent's parts on real processes: the descriptors and signals that a child inherits, how its end is reported, how
 * its output reaches the spool, the effect of a full spool on it, and what a restarted agent finds. The program is its
 * own child: see child_main. */
#include "api/codec/frame.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "executor/agent/core/thread_shares.h"
#include "executor/agent/directory.h"
#include "executor/agent/inventory.h"
#include "executor/agent/output_lines.h"
#include "executor/agent/peaks.h"
#include "executor/agent/reap.h"
#include "executor/agent/worker_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

extern char **environ;

enum { PATIENCE_MS = 240000, AT_ONCE_MS = PATIENCE_MS / 4 /* on a busy machine */, GRACE_MS = 300, RECORDS_FD = 4 };

/* ---- the child ---- */

static void emit(Trainyard__V1__WorkerRecord *record) {
    record->time_us = 1;
    if (frame_write(RECORDS_FD, &record->base, NULL) != ST_OK)
        _exit(9);
}

static void emit_loss(int64_t step, bool per_rank) {
    char *names[] = { (char *)(uintptr_t)(per_rank ? "memory_bytes" : "loss") };
    double values[] = { (double)step / 2 };
    Trainyard__V1__MetricRow row = TRAINYARD__V1__METRIC_ROW__INIT;
    row.step = step;
    row.per_rank = per_rank;
    row.n_names = row.n_values = 1;
    row.names = names;
    row.values = values;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_METRICS;
    record.metrics = &row;
    emit(&record);
}

static void emit_end(void) {
    Trainyard__V1__WorkerEnd end = TRAINYARD__V1__WORKER_END__INIT;
    end.cause = TRAINYARD__V1__WORKER_END__CAUSE__NUMERIC;
    end.message = (char *)(uintptr_t) "the loss is not a number";
    end.step = 12;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_END;
    record.end = &end;
    emit(&record);
}

static int child_descriptors(void) {
    DIR *dir = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(dir))
            printf("fd %s\n", entry->d_name);
    closedir(dir);
    for (char **e = environ; *e; e++)
        printf("env %s\n", *e);
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    printf("blocked %d\n", sigismember(&mask, SIGTERM));
    printf("sigpipe %s\n", signal(SIGPIPE, SIG_DFL) == SIG_IGN ? "ignored" : "default");
    printf("leader %d\n", getpgrp() == getpid());
    return 0;
}

static int child_main(const char *what) {
    if (strcmp(what, "descriptors") == 0)
        return child_descriptors();
    if (strcmp(what, "writes") == 0) {
        for (int64_t step = 1; step <= 500; step++)
            emit_loss(step, false);
        emit_end();
        printf("first\nsecond \xff\xfe third\n");
        fprintf(stderr, "no newline");
        return 27;
    }
    if (strcmp(what, "floods") == 0) {
        for (int64_t step = 1; step <= 4000; step++) {
            emit_loss(step, false);
            emit_loss(step, true);
        }
        return 0;
    }
    if (strcmp(what, "garbage") == 0) {
        if (write(RECORDS_FD, "\x04\0\0\0\xff\xff\xff\xff", 8) != 8)
            return 9;
        for (;;)
            pause();
    }
    signal(SIGTERM, strcmp(what, "deaf") == 0 ? SIG_IGN : SIG_DFL);
    printf("ready\n");
    fflush(stdout);
    for (;;)
        pause();
}

/* ---- a reactor with one child ---- */

static const struct spool_key key = { 3, 1, 0 };

struct spooled;
struct world {
    char folder[48];
    struct reactor *reactor;
    struct spool *spool;
    struct spool_log *log;
    struct worker_process *child;
    struct reactor_timer patience, act;
    void (*on_line)(struct world *w);
    struct exit_status how;
    struct spooled *spooled; /* where spool_empty puts the records that it acknowledges */
    int64_t acted_ms, ended_ms;
    int ended, ended_undrained, ends;
    bool overdue;
    char because[128];
};

static void world_open(struct world *w, int64_t spool_limit) {
    *w = (struct world){ .folder = "/tmp/ty-agent-XXXXXX" };
    assert_non_null(mkdtemp(w->folder));
    char spool[64];
    snprintf(spool, sizeof spool, "%s/spool", w->folder);
    assert_int_equal(reactor_open(&w->reactor, NULL), ST_OK);
    assert_int_equal(spool_open(spool, spool_limit, &w->spool, NULL), ST_OK);
    assert_int_equal(spool_log_open(w->spool, &key, &w->log, NULL), ST_OK);
}

static void world_close(struct world *w) {
    worker_process_close(w->child);
    spool_close(w->spool);
    reactor_close(w->reactor);
    assert_int_equal(dir_remove(w->folder, NULL), ST_OK);
}

static void patience_over(void *ctx) {
    struct world *w = ctx;
    w->overdue = true;
    reactor_quit(w->reactor);
}

static void on_record(void *ctx, const Trainyard__V1__WorkerRecord *record) {
    struct world *w = ctx;
    w->ends += record->record_case == TRAINYARD__V1__WORKER_RECORD__RECORD_END;
}

static void on_spooled(void *ctx, bool urgent) {
    (void)urgent;
    struct world *w = ctx;
    if (w->on_line && !w->acted_ms)
        w->on_line(w);
}

static void on_ended(void *ctx, const struct exit_status *how, bool drained) {
    struct world *w = ctx;
    w->how = *how;
    w->ended_ms = clock_mono_ms();
    snprintf(w->because, sizeof w->because, "%s",
             worker_process_killed_because(w->child) ? worker_process_killed_because(w->child) : "");
    w->ended++;
    w->ended_undrained += !drained;
    if (drained)
        reactor_quit(w->reactor);
}

static void child_start(struct world *w, const char *what) {
    char program[256];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    assert_true(n > 0);
    program[n] = '\0';
    const char *argv[] = { program, "--child", what, NULL };
    struct worker_process_options o = { .loop = w->reactor,
                                        .spool = w->spool,
                                        .log = w->log,
                                        .spawn = { .program = program, .argv = argv, .threads = 3 },
                                        .owner = {
                                            .ctx = w, .record = on_record, .spooled = on_spooled, .ended = on_ended } };
    struct err why = { "" };
    if (worker_process_open(&o, &w->child, &why) != ST_OK)
        fail_msg("%s", why.msg);
}

static void world_run(struct world *w, const char *what) {
    child_start(w, what);
    w->patience = (struct reactor_timer){ .fire = patience_over, .ctx = w };
    reactor_timer_set(w->reactor, &w->patience, PATIENCE_MS);
    assert_int_equal(reactor_run(w->reactor, NULL), ST_OK);
    assert_false(w->overdue);
    reactor_timer_cancel(w->reactor, &w->patience);
}

/* ---- reading the spool ---- */

struct spooled {
    char text[8192];
    int64_t losses, samples, notices, ends, last_step;
    char notice[400];
};

static bool spooled_visit(void *ctx, int64_t sequence, const uint8_t *data, size_t n) {
    (void)sequence;
    struct spooled *spooled = ctx;
    Trainyard__V1__WorkerRecord *r = trainyard__v1__worker_record__unpack(NULL, n, data);
    assert_non_null(r);
    if (r->record_case == TRAINYARD__V1__WORKER_RECORD__RECORD_LOG) {
        size_t used = strlen(spooled->text);
        snprintf(spooled->text + used, sizeof spooled->text - used, "%s:%s\n", r->log->stream, r->log->text);
    } else if (r->record_case == TRAINYARD__V1__WORKER_RECORD__RECORD_METRICS && r->metrics->per_rank) {
        spooled->samples++;
    } else if (r->record_case == TRAINYARD__V1__WORKER_RECORD__RECORD_METRICS) {
        assert_int_equal(r->metrics->step, spooled->last_step + 1);
        spooled->last_step = r->metrics->step;
        spooled->losses++;
    } else if (r->record_case == TRAINYARD__V1__WORKER_RECORD__RECORD_NOTICE) {
        size_t used = strlen(spooled->notice);
        snprintf(spooled->notice + used, sizeof spooled->notice - used, "%s: %s\n", r->notice->kind,
                 r->notice->message);
        spooled->notices++;
    } else if (r->record_case == TRAINYARD__V1__WORKER_RECORD__RECORD_END) {
        spooled->ends++;
    }
    trainyard__v1__worker_record__free_unpacked(r, NULL);
    return true;
}

static void spooled_read(const struct world *w, struct spooled *ret, int64_t first) {
    assert_int_equal(spool_read(w->log, first, SIZE_MAX, spooled_visit, ret, NULL), ST_OK);
}

/* ---- spawn ---- */

static void a_child_has_descriptors_0_to_4_and_a_scrubbed_environment(void **state) {
    (void)state;
    struct world w;
    world_open(&w, 1 << 20);
    int leaky = open("/dev/null", O_RDONLY); /* as a library might leave one: not close-on-exec */
    assert_true(leaky > 4);
    setenv("LD_PRELOAD_TEST", "x", 1);
    setenv("OMP_NUM_THREADS", "64", 1);
    world_run(&w, "descriptors");
    close(leaky);
    struct spooled spooled = { 0 };
    spooled_read(&w, &spooled, 1);
    for (int fd = 0; fd <= 4; fd++) {
        char line[32];
        snprintf(line, sizeof line, "stdout:fd %d\n", fd);
        assert_non_null(strstr(spooled.text, line));
    }
    assert_null(strstr(strstr(spooled.text, "fd 4\n") + 5, "stdout:fd "));
    assert_null(strstr(spooled.text, "LD_PRELOAD_TEST"));
    assert_non_null(strstr(spooled.text, "env OMP_NUM_THREADS=3\n"));
    assert_non_null(strstr(spooled.text, "env GOMP_SPINCOUNT="));
    assert_non_null(strstr(spooled.text, "env CUDA_VISIBLE_DEVICES=\n"));
    assert_non_null(strstr(spooled.text, "blocked 0\n"));
    assert_non_null(strstr(spooled.text, "sigpipe default\n"));
    assert_non_null(strstr(spooled.text, "leader 1\n"));
    world_close(&w);
}

static void a_program_that_cannot_start_is_one_error_and_leaks_nothing(void **state) {
    (void)state;
    int before = open("/dev/null", O_RDONLY);
    close(before);
    const char *argv[] = { "/nowhere/worker", NULL };
    struct spawn_options o = { .program = "/nowhere/worker", .argv = argv, .threads = 1 };
    struct spawned s;
    struct err why = { "" };
    assert_int_equal(spawn_worker(&o, &s, &why), ST_NOT_FOUND);
    assert_string_equal(why.msg, "start '/nowhere/worker': No such file or directory");
    int after = open("/dev/null", O_RDONLY);
    close(after);
    assert_int_equal(before, after);
}

/* ---- output to the spool ---- */

static void all_that_a_worker_wrote_is_spooled_before_its_end_is_reported(void **state) {
    (void)state;
    struct world w;
    world_open(&w, 8 << 20);
    world_run(&w, "writes");
    assert_int_equal(w.how.exit_code, 27);
    assert_int_equal(exit_status_cause(&w.how), TRAINYARD__V1__WORKER_END__CAUSE__NUMERIC);
    assert_int_equal(w.ended, 1);
    assert_int_equal(w.ends, 1);
    struct spooled spooled = { 0 };
    spooled_read(&w, &spooled, 1);
    assert_int_equal(spooled.losses, 500);
    assert_int_equal(spooled.ends, 1);
    assert_non_null(strstr(spooled.text, "stdout:first\n"));
    assert_non_null(strstr(spooled.text, "stdout:second ?? third\n"));
    assert_non_null(strstr(spooled.text, "stderr:no newline\n"));
    assert_int_equal(spool_log_last(w.log), 504);
    world_close(&w);
}

static void bytes_that_are_not_a_record_end_the_worker_with_a_reason(void **state) {
    (void)state;
    struct world w;
    world_open(&w, 1 << 20);
    world_run(&w, "garbage");
    assert_int_equal(w.how.signal, SIGKILL);
    assert_string_equal(w.because, "wrote bytes to its records pipe that are no record");
    assert_int_equal(spool_log_last(w.log), 0);
    world_close(&w);
}

/* Acknowledges the spool's records, a while after the child has filled it. */
static void spool_empty(void *ctx) {
    struct world *w = ctx;
    spooled_read(w, w->spooled, spool_log_acked(w->log) + 1);
    spool_ack(w->log, spool_log_last(w->log));
    reactor_timer_set(w->reactor, &w->act, 50);
}

static void a_full_spool_holds_the_worker_back_and_loses_no_loss(void **state) {
    (void)state;
    struct world w;
    struct spooled spooled = { 0 };
    world_open(&w, 64 << 10);
    w.spooled = &spooled;
    w.act = (struct reactor_timer){ .fire = spool_empty, .ctx = &w };
    reactor_timer_set(w.reactor, &w.act, 300);
    world_run(&w, "floods");
    reactor_timer_cancel(w.reactor, &w.act);
    worker_process_close(w.child);
    w.child = NULL;
    spooled_read(&w, &spooled, spool_log_acked(w.log) + 1);
    assert_int_equal(spooled.losses, 4000);
    assert_in_range(spooled.samples, 1, 3999); /* dropped first, and counted */
    assert_non_null(strstr(spooled.notice, "waited_for_spool: training waited "));
    world_close(&w);
}

struct tally {
    int64_t lines;
    size_t longest;
};

static void tally_line(void *ctx, const char *text) {
    struct tally *t = ctx;
    t->lines++;
    if (strlen(text) > t->longest)
        t->longest = strlen(text);
}

static void lines_beyond_the_rate_are_dropped_and_counted(void **state) {
    (void)state;
    static struct output_lines lines;
    struct tally tally = { 0 };
    output_lines_init(&lines, tally_line, &tally);
    for (int i = 0; i < 10000; i++)
        output_lines_feed(&lines, "one\r\ntwo\n\n", 10);
    assert_in_range(tally.lines, 2 * LINES_PER_SECOND, 4 * LINES_PER_SECOND);
    assert_int_equal(tally.lines + lines.dropped, 20000);

    tally = (struct tally){ 0 };
    output_lines_init(&lines, tally_line, &tally);
    char chunk[1000];
    memset(chunk, 'x', sizeof chunk);
    for (int i = 0; i < 40; i++)
        output_lines_feed(&lines, chunk, sizeof chunk);
    output_lines_end(&lines);
    assert_int_equal(tally.longest, LIMIT_LOG_LINE_BYTES);
    assert_int_equal(tally.lines, 3);
}

static void line_copy(void *ctx, const char *text) { snprintf(ctx, 64, "%s", text); }

static void what_is_printed_becomes_utf8_without_controls(void **state) {
    (void)state;
    static struct output_lines lines;
    char line[64] = "";
    output_lines_init(&lines, line_copy, line);
    output_lines_feed(&lines, "a\0\x80\xc3\xa9\xed\xa0\x80\xf4\x90\x80\x80\x01\xc2\x9b\tz\n", 19);
    assert_string_equal(line, "a??\xc3\xa9??????????\tz");
}

/* ---- ends ---- */

static void kill_it(struct world *w) {
    w->acted_ms = clock_mono_ms();
    kill(worker_process_pid(w->child), SIGKILL);
}

static void a_kill_9_is_known_at_once_by_its_signal(void **state) {
    (void)state;
    struct world w;
    world_open(&w, 1 << 20);
    w.on_line = kill_it;
    world_run(&w, "waits");
    assert_true(w.ended_ms - w.acted_ms < AT_ONCE_MS);
    char sentence[200];
    exit_status_sentence(&w.how, NULL, sentence, sizeof sentence);
    assert_non_null(strstr(sentence, "killed by signal 9 (Killed)"));
    assert_int_equal(exit_status_cause(&w.how), TRAINYARD__V1__WORKER_END__CAUSE__INTERNAL);
    world_close(&w);
}

static void terminate_it(struct world *w) {
    w->acted_ms = clock_mono_ms();
    worker_process_terminate(w->child);
}

static void terminate_and_kill_later(void *ctx) {
    struct world *w = ctx;
    worker_process_kill(w->child, "did not stop in time and was killed");
}

static void terminate_and_kill(struct world *w) {
    terminate_it(w);
    w->act = (struct reactor_timer){ .fire = terminate_and_kill_later, .ctx = w };
    reactor_timer_set(w->reactor, &w->act, GRACE_MS);
}

static void term_ends_a_worker_and_kill_ends_one_that_ignores_it(void **state) {
    (void)state;
    struct world w;
    world_open(&w, 1 << 20);
    w.on_line = terminate_it;
    world_run(&w, "waits");
    assert_int_equal(w.how.signal, SIGTERM);
    assert_string_equal(w.because, "");
    assert_true(w.ended_ms - w.acted_ms < AT_ONCE_MS);
    world_close(&w);

    world_open(&w, 1 << 20);
    w.on_line = terminate_and_kill;
    world_run(&w, "deaf");
    assert_int_equal(w.how.signal, SIGKILL);
    assert_string_equal(w.because, "did not stop in time and was killed");
    assert_true(w.ended_ms - w.acted_ms >= GRACE_MS);
    world_close(&w);
}

static void a_stranger_is_killed_only_with_the_right_start_time(void **state) {
    (void)state;
    /* A grandchild whose parent has ended: this process cannot reap it, as after a restart of the agent. */
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t middle = fork();
    if (middle == 0) {
        pid_t pid = fork();
        if (pid == 0)
            for (;;)
                pause();
        _exit(write(ends[1], &pid, sizeof pid) != sizeof pid);
    }
    waitpid(middle, NULL, 0);
    pid_t stranger;
    int64_t start_time, still;
    assert_int_equal(read(ends[0], &stranger, sizeof stranger), sizeof stranger);
    assert_int_equal(spawn_start_time(stranger, &start_time, NULL), ST_OK);
    assert_int_equal(reap_stranger(stranger, start_time + 1, 1000, NULL), ST_OK);
    assert_int_equal(spawn_start_time(stranger, &still, NULL), ST_OK);
    assert_int_equal(reap_stranger(stranger, start_time, 5000, NULL), ST_OK);
    assert_int_equal(reap_stranger(stranger, start_time, 5000, NULL), ST_OK); /* gone is fine */
    close(ends[0]);
    close(ends[1]);
}

/* ---- directory, inventory ---- */

/* Otherwise an executor would obey a leader that it had refused, or take the place of another executor. */
static void a_directory_whose_numbers_or_id_are_damaged_is_refused(void **state) {
    (void)state;
    static const char *const damage[][3] = {
        { "epoch", "seven\n", "which is not a number" },
        { "epoch", "-1\n", "which is not a number" },
        { "epoch", "99999999999999999999\n", "which is not a number" },
        { "epoch", "7 11111111-2222-3333-4444-55555555555\n", "which is no UUID" },
        { "epoch", "7 11111111-2222-3333-4444-5555555555555\n", "which is no" },
        { "cluster", "ours\n", "which is no UUID" },
        { "incarnation", "7x\n", "which is not a number" },
        { "id", "0123456789abcde\n", "does not hold an executor's id of 16 hex digits" },
        { "id", "0123456789abcdef0\n", "does not hold an executor's id of 16 hex digits" },
        { "id", "0123456789abcdefg\n", "does not hold an executor's id of 16 hex digits" },
        { "id", "0123456789abcdeg\n", "does not hold an executor's id of 16 hex digits" },
    };
    char folder[] = "/tmp/ty-directory-XXXXXX";
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        char path[64];
        struct directory *d = NULL;
        struct err why = { "" };
        assert_int_equal(directory_open(folder, &d, &why), ST_OK);
        assert_int_equal(directory_epoch_raise(d, 7, "", NULL), ST_OK);
        directory_close(d);
        snprintf(path, sizeof path, "%s/%s", folder, damage[i][0]);
        assert_int_equal(file_write_atomic(path, damage[i][1], strlen(damage[i][1]), 0600, NULL), ST_OK);
        assert_int_equal(directory_open(folder, &d, &why), ST_DATA_LOSS);
        if (!strstr(why.msg, damage[i][2]))
            fail_msg("case %zu: %s", i, why.msg);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(dir_remove(folder, NULL), ST_OK);
}

static void a_directory_has_one_agent_and_remembers_who_it_is(void **state) {
    (void)state;
    static const char *const uuids[] = { "11111111-2222-3333-4444-555555555555", "aaaaaaaa-2222-3333-4444-555555555555",
                                         "cccccccc-2222-3333-4444-555555555555" };
    char folder[] = "/tmp/ty-directory-XXXXXX";
    assert_non_null(mkdtemp(folder));
    struct directory *d, *second;
    struct err why = { "" };
    assert_int_equal(directory_open(folder, &d, &why), ST_OK);
    assert_int_equal(strlen(directory_id(d)), 16);
    assert_int_equal(directory_incarnation(d), 1);
    assert_int_equal(directory_open(folder, &second, &why), ST_FAILED_PRECONDITION);
    assert_non_null(strstr(why.msg, "another trainyard-executor runs on directory"));
    assert_int_equal(directory_epoch_raise(d, 7, "", NULL), ST_OK);
    assert_int_equal(directory_epoch_raise(d, 5, "", NULL), ST_FAILED_PRECONDITION);
    assert_int_equal(directory_epoch(d), 7);
    assert_int_equal(directory_epoch_raise(d, 7, uuids[0], NULL), ST_OK); /* the controller was upgraded */
    assert_int_equal(directory_epoch_raise(d, 7, "", NULL), ST_OK);
    assert_int_equal(directory_epoch_raise(d, 7, uuids[1], &why), ST_FAILED_PRECONDITION);
    assert_non_null(strstr(why.msg, "another election"));
    assert_int_equal(directory_epoch_raise(d, 8, "not a UUID", &why), ST_INVALID_ARGUMENT);
    assert_string_equal(directory_cluster(d), "");
    assert_int_equal(directory_cluster_join(d, "", NULL), ST_OK);
    assert_int_equal(directory_cluster_join(d, uuids[2], NULL), ST_OK);
    assert_int_equal(directory_cluster_join(d, uuids[2], NULL), ST_OK);
    assert_int_equal(directory_cluster_join(d, uuids[1], &why), ST_FAILED_PRECONDITION);
    assert_non_null(strstr(why.msg, uuids[1]));
    assert_non_null(strstr(why.msg, uuids[2]));
    assert_non_null(strstr(why.msg, "--directory"));
    Trainyard__V1__AttemptStatus status = TRAINYARD__V1__ATTEMPT_STATUS__INIT;
    status.job = 9;
    status.attempt = 2;
    assert_int_equal(directory_attempt_write(d, &status, NULL), ST_OK);
    char id[32];
    snprintf(id, sizeof id, "%s", directory_id(d));
    directory_close(d);

    assert_int_equal(directory_open(folder, &d, &why), ST_OK);
    assert_string_equal(directory_id(d), id);
    assert_int_equal(directory_incarnation(d), 2);
    assert_int_equal(directory_epoch(d), 7);
    assert_string_equal(directory_nonce(d), uuids[0]);
    assert_string_equal(directory_cluster(d), uuids[2]);
    Trainyard__V1__AttemptStatus **list;
    size_t n;
    assert_int_equal(directory_attempts_read(d, &list, &n, NULL), ST_OK);
    assert_int_equal(n, 1);
    assert_int_equal(list[0]->job, 9);
    trainyard__v1__attempt_status__free_unpacked(list[0], NULL);
    free(list);
    directory_attempt_remove(d, 9, 2);
    assert_int_equal(directory_attempts_read(d, &list, &n, NULL), ST_OK);
    assert_int_equal(n, 0);
    free(list);
    directory_close(d);
    assert_int_equal(dir_remove(folder, NULL), ST_OK);
}

static double peak_of(const struct peaks *p, const char *name) {
    size_t n;
    Trainyard__V1__HostPeak **list = peaks_list(p, &n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i]->key, name) == 0)
            return list[i]->flops;
    return 0;
}

static void the_highest_peak_of_a_host_outlives_its_agent(void **state) {
    (void)state;
    char folder[] = "/tmp/trainyard-peaks-XXXXXX", path[80];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/peaks", folder);
    struct peaks *p = peaks_open(folder);
    assert_int_equal(peaks_add(p, "a processor, fp32, 1 thread", 2e11, NULL), ST_OK);
    assert_int_equal(peaks_add(p, "a processor, fp32, 1 thread", 1e11, NULL), ST_OK); /* a busy moment */
    assert_int_equal(peaks_add(p, "a processor, bf16, 1 thread", 4e11, NULL), ST_OK);
    assert_int_equal(peaks_add(p, "two\nlines", 1e11, NULL), ST_OK);
    assert_int_equal(peaks_add(p, "not a number", NAN, NULL), ST_OK);
    p = peaks_close(p);
    p = peaks_open(folder);
    size_t n;
    peaks_list(p, &n);
    assert_int_equal(n, 2);
    assert_true(peak_of(p, "a processor, fp32, 1 thread") == 2e11 && peak_of(p, "a processor, bf16, 1 thread") == 4e11);
    for (int i = 0; i < PEAKS_MAX; i++) { /* a new key drops the one that was changed first */
        char name[32];
        snprintf(name, sizeof name, "key %d", i);
        assert_int_equal(peaks_add(p, name, 1e9, NULL), ST_OK);
    }
    peaks_list(p, &n);
    assert_int_equal(n, PEAKS_MAX);
    assert_true(peak_of(p, "a processor, fp32, 1 thread") == 0 && peak_of(p, "key 0") == 1e9);
    p = peaks_close(p);
    static const char TORN[] = "1e9 whole\nnonsense\n-1 negative\n2e9";
    assert_int_equal(file_write_atomic(path, TORN, sizeof TORN - 1, 0644, NULL), ST_OK);
    p = peaks_open(folder);
    peaks_list(p, &n);
    assert_int_equal(n, 1);
    peaks_close(p);
    assert_int_equal(dir_remove(folder, NULL), ST_OK);
}

static void assert_shares(int cores, struct thread_share *shares, size_t n, const int *want) {
    thread_shares_fill(cores, shares, n);
    for (size_t i = 0; i < n; i++)
        if (shares[i].threads != want[i])
            fail_msg("attempt %zu of %zu, %d cores: %d threads, not %d", i, n, cores, shares[i].threads, want[i]);
}

static void a_rank_gets_the_cores_that_are_free(void **state) {
    (void)state;
    assert_shares(64, (struct thread_share[]){ { 1, 0, 0 } }, 1, (int[]){ 64 });
    assert_shares(64, (struct thread_share[]){ { 3, 0, 0 } }, 1, (int[]){ 21 }); /* alike: one core idle */
    assert_shares(64, (struct thread_share[]){ { 3, 0, 0 }, { 1, 0, 0 } }, 2, (int[]){ 16, 16 }); /* by rank */
    assert_shares(66, (struct thread_share[]){ { 3, 0, 0 }, { 1, 0, 0 } }, 2,
                  (int[]){ 16, 18 }); /* what three cannot share */
    assert_shares(7, (struct thread_share[]){ { 1, 0, 0 }, { 1, 0, 0 } }, 2, (int[]){ 4, 3 }); /* oldest first */
    assert_shares(7, (struct thread_share[]){ { 1, 0, 0 }, { 0, 0, 0 }, { 1, 0, 0 } }, 3,
                  (int[]){ 4, 1, 3 }); /* one has ended */
    assert_shares(2, (struct thread_share[]){ { 2, 0, 0 }, { 2, 0, 0 } }, 2,
                  (int[]){ 1, 1 }); /* more ranks than cores */
    assert_shares(64, (struct thread_share[]){ { 1, 8, 0 }, { 1, 0, 0 } }, 2, (int[]){ 8, 56 }); /* resources.cores */
    assert_shares(4, (struct thread_share[]){ { 2, 8, 0 } }, 1, (int[]){ 2 }); /* no more than there are */
}

/* However slots are filled, no rank has fewer than cores / slots, and no two ranks share a core. */
static void full_slots_share_all_cores(void **state) {
    (void)state;
    for (int cores = 1; cores <= 40; cores++)
        for (int slots = 1; slots <= cores; slots++)
            for (int first = 0; first <= slots; first++) {
                struct thread_share shares[] = { { first, 0, 0 }, { slots - first, 0, 0 } };
                int given = 0;
                thread_shares_fill(cores, shares, 2);
                for (int i = 0; i < 2; i++) {
                    assert_true(shares[i].ranks == 0 || shares[i].threads >= cores / slots);
                    given += shares[i].ranks * shares[i].threads;
                }
                assert_true(given <= cores);
            }
}

static void a_missing_gpu_is_one_sentence_and_cores_are_shared_out(void **state) {
    (void)state;
    struct inventory inv;
    struct nvml *nvml;
    inventory_take(&inv, 0, 1, "libno-such-thing.so.1", (struct nvml_part){ 0 }, &nvml);
    assert_int_equal(inv.n_devices, 0);
    assert_non_null(strstr(inv.device_reason, "no NVIDIA driver: libno-such-thing.so.1"));
    assert_int_equal(inv.threads_per_rank, inv.cores);
    inventory_take(&inv, 0, 2 * inv.cores, "libno-such-thing.so.1", (struct nvml_part){ 0 }, &nvml);
    assert_int_equal(inv.threads_per_rank, 1);
    inventory_take(&inv, 7, 3, "libno-such-thing.so.1", (struct nvml_part){ 0 }, &nvml);
    assert_int_equal(inv.cores, 7);
    assert_int_equal(inv.threads_per_rank, 2);
    inventory_take(&inv, 0, 0, "libc.so.6", (struct nvml_part){ 0 }, &nvml);
    assert_int_equal(inv.slots, inv.cores);
    assert_string_equal(inv.device_reason, "libc.so.6 lacks a required function");
    assert_null(nvml);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--child") == 0)
        return child_main(argv[2]);
    signal(SIGPIPE, SIG_IGN);
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigprocmask(SIG_BLOCK, &blocked, NULL); /* as the agent does: its children must not inherit it */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_highest_peak_of_a_host_outlives_its_agent),
        cmocka_unit_test(a_child_has_descriptors_0_to_4_and_a_scrubbed_environment),
        cmocka_unit_test(a_program_that_cannot_start_is_one_error_and_leaks_nothing),
        cmocka_unit_test(all_that_a_worker_wrote_is_spooled_before_its_end_is_reported),
        cmocka_unit_test(bytes_that_are_not_a_record_end_the_worker_with_a_reason),
        cmocka_unit_test(a_full_spool_holds_the_worker_back_and_loses_no_loss),
        cmocka_unit_test(lines_beyond_the_rate_are_dropped_and_counted),
        cmocka_unit_test(what_is_printed_becomes_utf8_without_controls),
        cmocka_unit_test(a_kill_9_is_known_at_once_by_its_signal),
        cmocka_unit_test(term_ends_a_worker_and_kill_ends_one_that_ignores_it),
        cmocka_unit_test(a_stranger_is_killed_only_with_the_right_start_time),
        cmocka_unit_test(a_directory_whose_numbers_or_id_are_damaged_is_refused),
        cmocka_unit_test(a_directory_has_one_agent_and_remembers_who_it_is),
        cmocka_unit_test(a_missing_gpu_is_one_sentence_and_cores_are_shared_out),
        cmocka_unit_test(a_rank_gets_the_cores_that_are_free),
        cmocka_unit_test(full_slots_share_all_cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
