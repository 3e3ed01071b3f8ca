/* Reports: exactly once under replay, gaps, fences, checkpoints, logs, and chunks that outlive their writer. */
#include "tests/store/store_fixture.h"

#include "base/clock.h"
#include "service/store/checkpoint.h"
#include "service/store/event.h"
#include "service/store/log.h"
#include "service/store/metric.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *const NAMES[] = { "loss", "grad_norm" };

static struct store_batch_result write_one(struct fixture *f, struct store_report *r, int64_t job, int attempt,
                                           int rank, int64_t first, const struct store_record *records, size_t n) {
    (void)f;
    struct store_batch batch = { job, attempt, rank, first, records, n };
    struct store_batch_result result;
    OK(store_report_write(r, &batch, 1, &result, &e));
    return result;
}

static void records_are_stored_once_and_gaps_are_refused(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    CLEANUP(store_report_closep) struct store_report *r = NULL;
    OK(store_report_open(f->store, f->epoch, &r, &e));
    double values[2] = { 1, 2 };
    struct store_record records[3];
    for (int i = 0; i < 3; i++)
        records[i] = record_metrics(i + 1, 2, NAMES, values);
    assert_int_equal(write_one(f, r, job, 1, 0, 1, records, 3).sequence, 3);
    struct store_batch_result again = write_one(f, r, job, 1, 0, 1, records, 3);
    assert_int_equal(again.sequence, 3);
    struct store_batch_result gap = write_one(f, r, job, 1, 0, 5, records, 1);
    assert_true(gap.gap);
    assert_int_equal(gap.sequence, 3);
    struct store_batch_result overlap = write_one(f, r, job, 1, 0, 3, records, 3);
    assert_int_equal(overlap.sequence, 5);
    assert_int_equal(pg_number(f->conninfo, "SELECT sum(n) FROM metric_chunk"), 10);
    int64_t mark;
    OK(store_rank_sequence(f->store, job, 1, 0, &mark, &e));
    assert_int_equal(mark, 5);
    struct store_job row;
    OK(store_job_get(f->store, f->m, job, &row, &e));
    assert_int_equal(row.step, 3);
}

static void an_old_attempts_report_is_fenced(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    CLEANUP(store_report_closep) struct store_report *r = NULL;
    OK(store_report_open(f->store, f->epoch, &r, &e));
    struct store_record none = { .kind = STORE_RECORD_NONE };
    write_one(f, r, job, 1, 0, 1, &none, 1);
    /* A zombie: its attempt has ended, and no other has begun. */
    int64_t ended = fixture_running(f, 1);
    OK(store_attempt_end(f->store, f->epoch, ended, 1, 0, "its lease is over", &e));
    assert_true(write_one(f, r, ended, 1, 0, 1, &none, 1).fenced);
    FAILS(store_rank_started(f->store, f->epoch, ended, 1, 0, 7, 8, &e), ST_FAILED_PRECONDITION, "has ended");
    fixture_next_attempt(f, job, 1, 1);
    struct store_batch_result late = write_one(f, r, job, 1, 0, 2, &none, 1);
    assert_true(late.fenced);
    assert_true(write_one(f, r, job + 1, 1, 0, 2, &none, 1).fenced);
    assert_int_equal(write_one(f, r, job, 2, 0, 1, &none, 1).sequence, 1);
    CLEANUP(store_report_closep) struct store_report *deposed = NULL;
    OK(store_report_open(f->store, f->epoch + 1, &deposed, &e));
    struct store_batch batch = { job, 2, 0, 2, &none, 1 };
    struct store_batch_result result;
    FAILS(store_report_write(deposed, &batch, 1, &result, &e), ST_FAILED_PRECONDITION, "epoch");
}

static void the_last_shard_commits_the_checkpoint_in_its_transaction(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 2);
    CLEANUP(store_report_closep) struct store_report *r = NULL;
    OK(store_report_open(f->store, f->epoch, &r, &e));
    struct store_record shard0 = record_shard(40, 0, 2, true), shard1 = record_shard(40, 1, 2, true);
    assert_int_equal(write_one(f, r, job, 1, 0, 1, &shard0, 1).n_committed, 0);
    struct store_checkpoint newest;
    FAILS(store_checkpoint_newest(f->store, f->m, job, &newest, &e), ST_NOT_FOUND, "no committed checkpoint");
    struct store_batch_result last = write_one(f, r, job, 1, 1, 1, &shard1, 1);
    assert_int_equal(last.n_committed, 1);
    assert_int_equal(last.committed[0].step, 40);
    assert_true(last.committed[0].final);
    OK(store_checkpoint_newest(f->store, f->m, job, &newest, &e));
    assert_int_equal(newest.id, last.committed[0].checkpoint);
    assert_int_equal(newest.bytes, 20);
    assert_int_equal(newest.state, STORE_CHECKPOINT_COMMITTED);
    struct store_job row;
    OK(store_job_get(f->store, f->m, job, &row, &e));
    assert_int_equal(strlen(row.weights_sha256), 64);
    assert_int_equal(row.last_event, last.last_event);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE kind = 'checkpoint_committed'"), 1);
    /* The answer may have been lost: the repeated report is told of it again, and changes nothing. */
    struct store_batch_result repeated = write_one(f, r, job, 1, 1, 1, &shard1, 1);
    assert_int_equal(repeated.n_committed, 1);
    assert_int_equal(repeated.last_event, last.last_event);
}

static void what_cannot_be_stored_is_dropped_and_told_once(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 2);
    CLEANUP(store_report_closep) struct store_report *r = NULL;
    OK(store_report_open(f->store, f->epoch, &r, &e));
    char long_name[100];
    memset(long_name, 'x', 99);
    long_name[99] = '\0';
    char *names[] = { long_name, "loss", "", "\xff" };
    double values[] = { 1, 2, 3, 4 };
    struct store_record bad = record_shard(40, 1, 2, false);
    bad.shard.sha256 = "short";
    struct store_record records[] = { record_metrics(1, 4, names, values),
                                      record_shard(40, 1, 2, false),
                                      bad,
                                      { .kind = STORE_RECORD_NOTICE, .notice = { "Bad Kind", "caf\xe9" } },
                                      record_log("caf\xe9\n") };
    assert_int_equal(write_one(f, r, job, 1, 0, 1, records, 5).sequence, 5);
    assert_int_equal(pg_number(f->conninfo, "SELECT sum(n) FROM metric_chunk"), 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM shard"), 0);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE kind = 'records_dropped'"), 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE kind = 'notice'"), 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM log_chunk WHERE lines[1] = E'caf\\uFFFD\\n'"), 1);
}

/* A worker whose clock or sizes are beyond what a row holds must not stop the writer that it shares with others. */
static void numbers_beyond_a_rows_range_do_not_fail_the_write(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 2);
    CLEANUP(store_report_closep) struct store_report *r = NULL;
    OK(store_report_open(f->store, f->epoch, &r, &e));
    struct store_record records[] = { record_log("early"), record_log("late"), record_shard(40, 0, 2, false) };
    records[0].time_us = INT64_MIN;
    records[1].time_us = INT64_MAX;
    records[2].shard.bytes = INT64_MAX;
    assert_int_equal(write_one(f, r, job, 1, 0, 1, records, 3).sequence, 3);
    struct store_record other = record_shard(40, 1, 2, false);
    other.shard.bytes = INT64_MAX;
    assert_int_equal(write_one(f, r, job, 1, 1, 1, &other, 1).sequence, 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM log_chunk"), 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM shard"), 0);
}

static void a_record_that_postgresql_refuses_stops_nobody(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 2);
    CLEANUP(store_report_closep) struct store_report *r = NULL;
    OK(store_report_open(f->store, f->epoch, &r, &e));
    pg_run(f->conninfo, "ALTER TABLE event ADD CONSTRAINT unforeseen CHECK (message <> 'evil')");
    double values[] = { 1, 2 };
    struct store_record guilty[] = { record_metrics(1, 2, NAMES, values),
                                     { .kind = STORE_RECORD_NOTICE, .notice = { "hello", "evil" } },
                                     record_metrics(2, 2, NAMES, values) };
    struct store_record innocent = record_metrics(1, 2, NAMES, values);
    struct store_batch batches[] = { { job, 1, 0, 1, guilty, 3 }, { job, 1, 1, 1, &innocent, 1 } };
    struct store_batch_result results[2];
    OK(store_report_write(r, batches, 2, results, &e));
    assert_int_equal(results[0].sequence, 3);
    assert_int_equal(results[0].step, 2);
    assert_int_equal(results[1].sequence, 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT sum(n) FROM metric_chunk"), 6);
    assert_int_equal(pg_number(f->conninfo,
                               "SELECT count(*) FROM event WHERE kind = 'records_dropped' AND message LIKE "
                               "'record 2 of rank 0 %unforeseen%'"),
                     1);
    /* The writer goes on as before, and the constraint still holds for others. */
    struct store_record later = record_metrics(3, 2, NAMES, values);
    assert_int_equal(write_one(f, r, job, 1, 0, 4, &later, 1).sequence, 4);
    assert_int_equal(pg_number(f->conninfo, "SELECT sum(n) FROM metric_chunk"), 8);
}

static void a_rank_has_a_bounded_number_of_series(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    CLEANUP(store_report_closep) struct store_report *r = NULL;
    OK(store_report_open(f->store, f->epoch, &r, &e));
    static char text[STORE_SERIES_PER_RANK + 5][16];
    static char *names[STORE_SERIES_PER_RANK + 5];
    static double values[STORE_SERIES_PER_RANK + 5];
    for (int i = 0; i < STORE_SERIES_PER_RANK + 5; i++) {
        snprintf(text[i], sizeof text[i], "name_%d", i);
        names[i] = text[i];
    }
    struct store_record record = record_metrics(1, STORE_SERIES_PER_RANK + 5, names, values);
    write_one(f, r, job, 1, 0, 1, &record, 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM metric_chunk"), STORE_SERIES_PER_RANK);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE kind = 'records_dropped'"), 1);
}

/* ---- random replay ---- */

enum { REPLAY_RANKS = 3, REPLAY_STEPS = 1500 };

/* The value that rank's step must have. */
static double value_of(int rank, int64_t step, int name) { return (double)rank * 1e6 + (double)step + name * 0.5; }

struct replay {
    struct store_record records[REPLAY_RANKS][REPLAY_STEPS];
    double values[REPLAY_RANKS][REPLAY_STEPS][2];
    int64_t acked[REPLAY_RANKS];
};

static void check_replayed(struct fixture *f, int64_t job) {
    struct store_series *series;
    size_t n;
    struct store_metric_query query = { .job = job, .max_points = REPLAY_STEPS, .rank = -1 };
    OK(store_metric_query(f->store, f->m, &query, &series, &n, &e));
    assert_int_equal(n, REPLAY_RANKS * 2);
    for (size_t s = 0; s < n; s++) {
        assert_int_equal(series[s].points, REPLAY_STEPS);
        assert_int_equal(series[s].n, REPLAY_STEPS);
        int name = strcmp(series[s].name, "loss") == 0 ? 0 : 1;
        for (int i = 0; i < REPLAY_STEPS; i++) {
            assert_int_equal(series[s].step[i], 3 * i + 1 + (i % 7 == 0));
            assert_true(series[s].mean[i] == value_of(series[s].rank, i, name));
        }
    }
}

/* Batches overlap, repeat and jump; the writer is replaced; the connections are cut. Each point is there once. */
static void random_replay_stores_every_point_once(void **state) {
    struct fixture *f = *state;
    const char *given = getenv("TRAINYARD_SEED");
    unsigned seed = given ? (unsigned)atoi(given) : (unsigned)clock_wall_us();
    print_message("# TRAINYARD_SEED=%u\n", seed);
    srand(seed);
    int64_t job = fixture_running(f, REPLAY_RANKS);
    static struct replay p;
    memset(&p, 0, sizeof p);
    for (int rank = 0; rank < REPLAY_RANKS; rank++)
        for (int i = 0; i < REPLAY_STEPS; i++) {
            for (int name = 0; name < 2; name++)
                p.values[rank][i][name] = value_of(rank, i, name);
            p.records[rank][i] = record_metrics(3 * i + 1 + (i % 7 == 0), 2, NAMES, p.values[rank][i]);
        }
    CLEANUP(store_report_closep) struct store_report *r = NULL;
    OK(store_report_open(f->store, f->epoch, &r, &e));
    for (int left = REPLAY_RANKS; left;) {
        struct store_batch batches[4];
        struct store_batch_result results[4];
        size_t n = 1 + (size_t)rand() % 4;
        for (size_t i = 0; i < n; i++) {
            int rank = rand() % REPLAY_RANKS;
            int64_t first = p.acked[rank] + 1 - rand() % 300 + (rand() % 20 == 0 ? 50 : 0);
            first = first < 1 ? 1 : first > REPLAY_STEPS ? REPLAY_STEPS : first;
            size_t len = 1 + (size_t)rand() % 400;
            if (first - 1 + (int64_t)len > REPLAY_STEPS)
                len = (size_t)(REPLAY_STEPS - first + 1);
            batches[i] = (struct store_batch){ job, 1, rank, first, &p.records[rank][first - 1], len };
        }
        OK(store_report_write(r, batches, n, results, &e));
        for (size_t i = 0; i < n; i++)
            p.acked[batches[i].rank] = results[i].sequence;
        if (rand() % 10 == 0) {
            r = store_report_close(r);
            OK(store_report_open(f->store, f->epoch, &r, &e));
        }
        if (rand() % 10 == 0)
            pg_run(f->conninfo,
                   "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
                   "AND pid NOT IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory') "
                   "AND pid <> pg_backend_pid()");
        left = 0;
        for (int rank = 0; rank < REPLAY_RANKS; rank++)
            left += p.acked[rank] < REPLAY_STEPS;
    }
    check_replayed(f, job);
    assert_true(pg_number(f->conninfo, "SELECT max(n) FROM metric_chunk") == STORE_CHUNK_POINTS);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM metric_chunk"), REPLAY_RANKS * 2 * 7);
}

static void logs_are_read_by_cursor_without_gap_or_overlap(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 2);
    CLEANUP(store_report_closep) struct store_report *r = NULL;
    OK(store_report_open(f->store, f->epoch, &r, &e));
    static char text[2500][16];
    static struct store_record records[2500];
    for (int i = 0; i < 2500; i++) {
        snprintf(text[i], sizeof text[i], "line %d", i);
        records[i] = record_log(text[i]);
    }
    write_one(f, r, job, 1, 0, 1, records, 2500);
    struct store_record other = record_log("of rank 1");
    write_one(f, r, job, 1, 1, 1, &other, 1);
    int64_t cursor = 0;
    size_t n, seen = 0;
    do {
        struct store_log_line *lines;
        struct store_log_query query = { .job = job, .rank = 0, .attempt = -1, .cursor = cursor, .limit = 300 };
        OK(store_log_list(f->store, f->m, &query, &lines, &n, &cursor, &e));
        for (size_t i = 0; i < n; i++)
            assert_string_equal(lines[i].text, text[seen++]);
    } while (n);
    assert_int_equal(seen, 2500);
    struct store_log_line *lines;
    struct store_log_query rest = { .job = job, .rank = -1, .attempt = 1, .cursor = cursor, .limit = 300 };
    OK(store_log_list(f->store, f->m, &rest, &lines, &n, &cursor, &e));
    assert_int_equal(n, 1);
    assert_string_equal(lines[0].text, "of rank 1");
    assert_int_equal(lines[0].rank, 1);
    assert_string_equal(lines[0].stream, "stdout");
}

/* ---- checkpoints ---- */

static void commit(struct fixture *f, struct store_report *r, int64_t job, int64_t step, double loss,
                   int64_t sequence) {
    struct store_record shard = record_shard(step, 0, 1, false);
    shard.shard.has_validation_loss = true;
    shard.shard.validation_loss = loss;
    assert_int_equal(write_one(f, r, job, 1, 0, sequence, &shard, 1).n_committed, 1);
}

static void retention_keeps_the_last_the_best_the_pinned(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1); /* keep_last 2, keep_best 1 */
    CLEANUP(store_report_closep) struct store_report *r = NULL;
    OK(store_report_open(f->store, f->epoch, &r, &e));
    static const double losses[] = { 5, 1, 4, 3, 2.5, 2 };
    for (int i = 0; i < 6; i++)
        commit(f, r, job, (i + 1) * 10, losses[i], i + 1);
    struct store_checkpoint *list;
    size_t n;
    OK(store_checkpoint_list(f->store, f->m, job, 0, 100, &list, &n, &e));
    assert_int_equal(n, 6);
    assert_int_equal(list[0].step, 60);
    OK(store_checkpoint_pin(f->store, f->epoch, job, list[5].id, true, &e));
    struct store_checkpoint *gone;
    OK(store_checkpoint_retire(f->store, f->m, f->epoch, job, &gone, &n, &e));
    assert_int_equal(n, 2); /* 30 and 40: 10 is pinned, 20 the best, 50 and 60 the last */
    assert_int_equal(gone[0].step, 30);
    assert_int_equal(gone[1].step, 40);
    OK(store_checkpoint_deleted(f->store, f->epoch, gone[0].id, &e));
    OK(store_checkpoint_retire(f->store, f->m, f->epoch, job, &gone, &n, &e));
    assert_int_equal(n, 1);
    FAILS(store_checkpoint_pin(f->store, f->epoch, job, gone[0].id, true, &e), ST_FAILED_PRECONDITION, "not COMMITTED");
}

static void a_corrupt_checkpoint_gives_way_to_the_older_good_one(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    CLEANUP(store_report_closep) struct store_report *r = NULL;
    OK(store_report_open(f->store, f->epoch, &r, &e));
    commit(f, r, job, 10, 1, 1);
    commit(f, r, job, 20, 1, 2);
    fixture_next_attempt(f, job, 1, 1);
    struct store_attempt *attempts;
    size_t n;
    OK(store_attempt_list(f->store, f->m, job, &attempts, &n, &e));
    assert_int_equal(attempts[1].from_step, 20);
    /* The one that the attempt runs from is not retired. */
    struct store_checkpoint *gone;
    OK(store_checkpoint_retire(f->store, f->m, f->epoch, job, &gone, &n, &e));
    assert_int_equal(n, 0);
    OK(store_checkpoint_corrupt(f->store, f->epoch, job, 2, "rank-0.safetensors is truncated", &e));
    OK(store_checkpoint_corrupt(f->store, f->epoch, job, 2, "again", &e));
    FAILS(store_checkpoint_corrupt(f->store, f->epoch, job, 1, "x", &e), ST_NOT_FOUND, "started from no checkpoint");
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE kind = 'checkpoint_corrupt'"), 1);
    fixture_next_attempt(f, job, 2, 1);
    OK(store_attempt_list(f->store, f->m, job, &attempts, &n, &e));
    assert_int_equal(attempts[2].from_step, 10);
    struct store_checkpoint bad;
    OK(store_checkpoint_get(f->store, f->m, job, attempts[1].from_checkpoint, &bad, &e));
    assert_int_equal(bad.state, STORE_CHECKPOINT_CORRUPT);
    assert_string_equal(bad.reason, "rank-0.safetensors is truncated");
}

/* A job that begins with a checkpoint of another: the whole state, or the weights alone. */
static struct store_job_new row_from(int64_t job, int64_t checkpoint, bool weights_only, const char *request) {
    return (struct store_job_new){ .request_id = request,
                                   .name = "child",
                                   .queue = "default",
                                   .world_size = 1,
                                   .accelerator = "cpu",
                                   .max_restarts = 3,
                                   .steps = 100,
                                   .keep_last = 1,
                                   .spec = "s",
                                   .spec_bytes = 1,
                                   .origin = { job, checkpoint, weights_only } };
}

static int64_t job_from(struct fixture *f, int64_t job, int64_t checkpoint, bool weights_only, const char *request,
                        bool *ret_existed) {
    struct store_job_new row = row_from(job, checkpoint, weights_only, request);
    int64_t child = 0;
    OK(store_job_create(f->store, f->epoch, &row, &child, ret_existed, NULL, &e));
    return child;
}

static void a_fork_starts_from_the_others_checkpoint_which_stays_until_it_has_its_own(void **state) {
    struct fixture *f = *state;
    int64_t parent = fixture_running(f, 1);
    CLEANUP(store_report_closep) struct store_report *r = NULL;
    OK(store_report_open(f->store, f->epoch, &r, &e));
    commit(f, r, parent, 10, 1, 1);
    struct store_checkpoint *list, at, *gone;
    size_t n;
    OK(store_checkpoint_at(f->store, f->m, parent, 10, &at, &e));
    FAILS(store_checkpoint_at(f->store, f->m, parent, 11, &at, &e), ST_NOT_FOUND, "step 11");
    FAILS(store_checkpoint_at(f->store, f->m, parent + 1, 11, &at, &e), ST_NOT_FOUND, "does not exist");
    FAILS(store_checkpoint_newest(f->store, f->m, parent + 1, &at, &e), ST_NOT_FOUND, "does not exist");

    bool existed;
    int64_t child = job_from(f, parent, at.id, false, "fork-1", &existed);
    assert_false(existed);
    assert_int_equal(job_from(f, parent, at.id, false, "fork-1", &existed), child);
    assert_true(existed);
    struct store_origin origin;
    int64_t step;
    OK(store_job_origin(f->store, child, &origin, &step, &e));
    assert_int_equal(origin.job, parent);
    assert_int_equal(step, 10);
    assert_false(origin.weights_only);

    const char *executors[] = { "host" };
    struct store_attempt_new attempt = { fixture_request(f), child, 1, STORE_JOB_QUEUED, 1, executors, "" };
    struct store_attempt_start start;
    OK(store_attempt_create(f->store, f->m, f->epoch, &attempt, &start, &e));
    assert_int_equal(start.from_step, 10);
    assert_int_equal(start.from_checkpoint, at.id);
    assert_true(start.forked);
    assert_string_equal(start.directory, at.directory);
    assert_string_equal(start.init_directory, "");
    struct store_attempt *attempts;
    OK(store_attempt_list(f->store, f->m, child, &attempts, &n, &e));
    assert_int_equal(attempts[0].from_job, parent);

    for (int64_t s = 20; s <= 60; s += 10)
        commit(f, r, parent, s, 1, s / 10);
    OK(store_checkpoint_retire(f->store, f->m, f->epoch, parent, &gone, &n, &e));
    OK(store_checkpoint_get(f->store, f->m, parent, at.id, &at, &e));
    assert_int_equal(at.state, STORE_CHECKPOINT_COMMITTED);
    assert_true(n > 0); /* others of its age went */

    fixture_move(f, child, 1, STORE_JOB_STARTING, STORE_JOB_RUNNING);
    commit(f, r, child, 20, 1, 1);
    OK(store_checkpoint_retire(f->store, f->m, f->epoch, parent, &gone, &n, &e));
    OK(store_checkpoint_get(f->store, f->m, parent, at.id, &at, &e));
    assert_int_equal(at.state, STORE_CHECKPOINT_DELETING);
    OK(store_checkpoint_list(f->store, f->m, child, 0, 10, &list, &n, &e));
    assert_int_equal(n, 1);
    struct store_job_new late = row_from(parent, at.id, false, "late");
    FAILS(store_job_create(f->store, f->epoch, &late, &child, &existed, NULL, &e), ST_FAILED_PRECONDITION,
          "not COMMITTED");
}

struct racer {
    struct fixture *f;
    struct store_job_new row;
    status_t status;
    int64_t job;
    bool existed;
};

static void *create_one(void *ctx) {
    struct racer *r = ctx;
    r->status = store_job_create(r->f->store, r->f->epoch, &r->row, &r->job, &r->existed, NULL, NULL);
    return NULL;
}

static void eight_forks_with_one_request_make_one_job_whichever_checkpoint_each_found(void **state) {
    struct fixture *f = *state;
    int64_t parent = fixture_running(f, 1);
    CLEANUP(store_report_closep) struct store_report *report = NULL;
    OK(store_report_open(f->store, f->epoch, &report, &e));
    struct store_checkpoint at[2];
    for (int i = 0; i < 2; i++) {
        commit(f, report, parent, 10 + i, 1, 1 + i);
        OK(store_checkpoint_newest(f->store, f->m, parent, &at[i], &e));
    }
    pthread_t threads[8];
    struct racer racers[8];
    for (int i = 0; i < 8; i++) {
        racers[i] = (struct racer){ .f = f, .row = row_from(parent, at[i % 2].id, false, "fork-race") };
        pthread_create(&threads[i], NULL, create_one, &racers[i]);
    }
    int made = 0;
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(racers[i].status, ST_OK);
        assert_int_equal(racers[i].job, racers[0].job);
        made += !racers[i].existed;
    }
    assert_int_equal(made, 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM job_origin"), 1);
    int64_t known;
    OK(store_job_requested(f->store, "fork-race", &known, &e));
    assert_int_equal(known, racers[0].job);
    FAILS(store_job_requested(f->store, "never", &known, &e), ST_NOT_FOUND, "never");
}

/* Makes the job FAILED, whatever it was, and retries it. */
static status_t retry(struct fixture *f, int64_t job, struct err *e) {
    char sql[160];
    snprintf(sql, sizeof sql, "UPDATE job SET state = 10, end_time = now() WHERE id = %lld AND state <> 10",
             (long long)job);
    pg_force(f->conninfo, sql);
    snprintf(sql, sizeof sql, "SELECT attempt FROM job WHERE id = %lld", (long long)job);
    struct store_job_move move = { .request_id = fixture_request(f),
                                   .job = job,
                                   .attempt = (int)pg_number(f->conninfo, sql),
                                   .from = STORE_JOB_FAILED,
                                   .to = STORE_JOB_QUEUED,
                                   .reason = "" };
    bool gone;
    status_t st = store_job_retry(f->store, f->epoch, &move, &gone, e);
    assert_true(gone == (st == ST_FAILED_PRECONDITION));
    return st;
}

static void a_retry_that_has_lost_what_its_job_began_with_is_refused(void **state) {
    struct fixture *f = *state;
    int64_t parent = fixture_running(f, 1);
    CLEANUP(store_report_closep) struct store_report *r = NULL;
    OK(store_report_open(f->store, f->epoch, &r, &e));
    commit(f, r, parent, 10, 1, 1);
    struct store_checkpoint at;
    OK(store_checkpoint_newest(f->store, f->m, parent, &at, &e));
    bool existed;
    int64_t child = job_from(f, parent, at.id, false, "fork", &existed), alone = fixture_job(f, 1);
    OK(retry(f, child, &e));
    OK(retry(f, alone, &e)); /* began with nothing */
    pg_force(f->conninfo, "UPDATE checkpoint SET state = 5, delete_time = now()");
    FAILS(retry(f, child, &e), ST_FAILED_PRECONDITION, "has been deleted");
    /* Nor does that stop a request that is made again. */
    assert_int_equal(job_from(f, parent, at.id, false, "fork", &existed), child);
    pg_force(f->conninfo, "UPDATE checkpoint SET state = 3, delete_time = NULL, reason = 'bits'");
    FAILS(retry(f, child, &e), ST_FAILED_PRECONDITION, "is corrupt");
    pg_force(f->conninfo, "UPDATE checkpoint SET state = 2");
    pg_force(f->conninfo, "UPDATE job SET state = 1, end_time = NULL WHERE state = 10");
    fixture_attempt(f, child, STORE_JOB_QUEUED, 1);
    fixture_move(f, child, 1, STORE_JOB_STARTING, STORE_JOB_RUNNING);
    commit(f, r, child, 20, 1, 1);
    char sql[120];
    snprintf(sql, sizeof sql, "UPDATE checkpoint SET state = 3, reason = 'bits' WHERE id = %lld", (long long)at.id);
    pg_force(f->conninfo, sql);
    OK(retry(f, child, &e));
}

static void a_retry_of_a_job_that_is_not_failed_is_refused_for_that(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_job(f, 1);
    struct store_job_move move = {
        .request_id = fixture_request(f), .job = job, .from = STORE_JOB_FAILED, .to = STORE_JOB_QUEUED, .reason = ""
    };
    bool gone = true;
    FAILS(store_job_retry(f->store, f->epoch, &move, &gone, &e), ST_FAILED_PRECONDITION, "is QUEUED, not FAILED");
    assert_false(gone);
}

static struct store_attempt_start start_of(struct fixture *f, int64_t job, int number) {
    const char *executors[] = { "host-a" };
    struct store_attempt_new attempt = { .request_id = fixture_request(f),
                                         .job = job,
                                         .attempt = number,
                                         .from = number == 1 ? STORE_JOB_QUEUED : STORE_JOB_RESTARTING,
                                         .world_size = 1,
                                         .executors = executors,
                                         .reason = "" };
    struct store_attempt_start start, again;
    OK(store_attempt_create(f->store, f->m, f->epoch, &attempt, &start, &e));
    OK(store_attempt_create(f->store, f->m, f->epoch, &attempt, &again, &e));
    assert_string_equal(start.refused, again.refused);
    assert_int_equal(start.event, again.event);
    return start;
}

/* A running job whose checkpoint of step 10 another may begin with. */
static struct store_checkpoint parent_with_checkpoint(struct fixture *f, int64_t *ret) {
    *ret = fixture_running(f, 1);
    CLEANUP(store_report_closep) struct store_report *r = NULL;
    OK(store_report_open(f->store, f->epoch, &r, &e));
    commit(f, r, *ret, 10, 1, 1);
    struct store_checkpoint at;
    OK(store_checkpoint_newest(f->store, f->m, *ret, &at, &e));
    return at;
}

/* Not from the start, which would be another training; nor, of a fork, from files that are not whole. */
static void a_job_fails_in_place_of_an_attempt_when_what_it_began_with_is_gone(void **state) {
    struct fixture *f = *state;
    int64_t parent;
    struct store_checkpoint at = parent_with_checkpoint(f, &parent);
    static const struct {
        const char *how, *says;
    } gone[] = { { "state = 3, reason = 'bits'", "is corrupt" },
                 { "state = 4, delete_time = now()", "has been deleted" },
                 { "state = 5, delete_time = now()", "has been deleted" } };
    for (int i = 0; i < 6; i++) {
        char sql[400], request[32];
        bool existed, weights_only = i >= 3;
        snprintf(request, sizeof request, "origin-%d", i);
        pg_force(f->conninfo, "UPDATE checkpoint SET state = 2, delete_time = NULL");
        int64_t child = job_from(f, parent, at.id, weights_only, request, &existed);
        snprintf(sql, sizeof sql, "UPDATE checkpoint SET %s WHERE id = %lld", gone[i % 3].how, (long long)at.id);
        pg_force(f->conninfo, sql);
        struct store_attempt_start start = start_of(f, child, 1);
        assert_non_null(strstr(start.refused, "has nothing to go on from"));
        assert_non_null(strstr(start.refused, gone[i % 3].says));
        assert_int_equal(start.from_checkpoint, 0);
        struct store_job job;
        OK(store_job_get(f->store, f->m, child, &job, &e));
        assert_int_equal(job.state, STORE_JOB_FAILED);
        assert_string_equal(job.reason, start.refused);
        snprintf(sql, sizeof sql, "SELECT count(*) FROM event WHERE job = %lld AND state = 10 AND message = '%s'",
                 (long long)child, job.reason);
        assert_int_equal(pg_number(f->conninfo, sql), 1);
        snprintf(sql, sizeof sql, "SELECT count(*) FROM attempt WHERE job = %lld AND state < 4", (long long)child);
        assert_int_equal(pg_number(f->conninfo, sql), 0);
    }
    pg_force(f->conninfo, "UPDATE checkpoint SET state = 2, delete_time = NULL");
    bool existed;
    int64_t child = job_from(f, parent, at.id, false, "origin-there", &existed);
    struct store_attempt_start start = start_of(f, child, 1);
    assert_string_equal(start.refused, "");
    assert_int_equal(start.from_checkpoint, at.id);
}

/* Has one who comes to the parent's checkpoints wait for a transaction that has changed them, and then commits. */
static void run_behind(struct fixture *f, int64_t parent, const char *change, void *(*late)(void *), void *ctx) {
    char sql[200];
    snprintf(sql, sizeof sql, "SELECT 1 FROM job WHERE id = %lld FOR NO KEY UPDATE; UPDATE checkpoint SET %s",
             (long long)parent, change);
    struct pg_open *open = pg_begin(f->conninfo, sql);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, late, ctx), 0);
    pg_await_blocked(f->pg, f->conninfo, 1);
    pg_commit(open);
    pthread_join(thread, NULL);
}

struct retrying {
    struct fixture *f;
    int64_t job;
    status_t status;
    struct err err;
};

static void *retry_one(void *ctx) {
    struct retrying *r = ctx;
    r->status = retry(r->f, r->job, &r->err);
    return NULL;
}

/* Retention has decided, and not yet committed, when the retry comes. */
static void a_retry_waits_for_retention_and_is_refused_what_that_has_taken(void **state) {
    struct fixture *f = *state;
    int64_t parent;
    struct store_checkpoint at = parent_with_checkpoint(f, &parent);
    bool existed;
    struct retrying late = { .f = f, .job = job_from(f, parent, at.id, false, "fork", &existed) };
    run_behind(f, parent, "state = 4, delete_time = now()", retry_one, &late);
    FAILS(err_set(&e, late.status, "%s", late.err.msg), ST_FAILED_PRECONDITION, "has been deleted");
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM job WHERE state = 10"), 1);
}

struct starting {
    struct fixture *f;
    int64_t job;
    struct store_attempt_start start;
};

static void *start_one(void *ctx) {
    struct starting *s = ctx;
    s->start = start_of(s->f, s->job, 1);
    return NULL;
}

/* The parent's own loading has found it, and not yet committed, when the fork's turn comes. */
static void an_attempt_waits_for_who_finds_its_origin_corrupt_and_does_not_start(void **state) {
    struct fixture *f = *state;
    int64_t parent;
    struct store_checkpoint at = parent_with_checkpoint(f, &parent);
    bool existed;
    struct starting late = { .f = f, .job = job_from(f, parent, at.id, false, "fork", &existed) };
    run_behind(f, parent, "state = 3, reason = 'bits'", start_one, &late);
    assert_non_null(strstr(late.start.refused, "is corrupt"));
    assert_int_equal(late.start.from_checkpoint, 0);
}

static void weights_of_another_job_are_named_to_every_attempt_without_a_step(void **state) {
    struct fixture *f = *state;
    int64_t parent;
    struct store_checkpoint at = parent_with_checkpoint(f, &parent);
    bool existed;
    int64_t child = job_from(f, parent, at.id, true, "weights-1", &existed);
    const char *executors[] = { "host" };
    struct store_attempt_new attempt = { fixture_request(f), child, 1, STORE_JOB_QUEUED, 1, executors, "" };
    struct store_attempt_start start;
    OK(store_attempt_create(f->store, f->m, f->epoch, &attempt, &start, &e));
    assert_int_equal(start.from_checkpoint, 0);
    assert_int_equal(start.from_step, 0);
    assert_string_equal(start.init_directory, at.directory);
    struct store_live_job *live;
    size_t n;
    OK(store_job_live(f->store, f->m, &live, &n, &e));
    assert_int_equal(n, 2);
    assert_string_equal(live[0].init_directory, "");
    assert_string_equal(live[1].init_directory, at.directory);
    assert_false(live[1].forked);
}

/* Adds the plan to the spec, whatever both are; refuses the plan "no". */
static status_t append_plan(const void *plan, const void *spec, size_t n, void **ret, size_t *ret_n, struct err *e) {
    if (strcmp(plan, "no") == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "the plan does not fit");
    *ret = NULL;
    if (strcmp(plan, "stay") == 0)
        return ST_OK;
    *ret_n = n + strlen(plan);
    *ret = malloc(*ret_n);
    memcpy(*ret, spec, n);
    memcpy((char *)*ret + n, plan, strlen(plan));
    return ST_OK;
}

static void assert_spec(struct fixture *f, int64_t job, const char *spec, size_t n) {
    struct store_job row;
    OK(store_job_get(f->store, f->m, job, &row, &e));
    assert_int_equal(row.spec_bytes, n);
    assert_memory_equal(row.spec, spec, n);
}

static void what_auto_became_is_set_once_in_the_stored_spec_and_by_rank_0_alone(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 2);
    CLEANUP(store_report_closep) struct store_report *r = NULL;
    OK(store_report_open(f->store, f->epoch, &r, &e));
    struct store_record records[] = { { .kind = STORE_RECORD_CHOSEN, .chosen = { append_plan, "+2" } } };
    struct store_batch batch = { job, 1, 1, 1, records, 1 };
    struct store_batch_result result;
    OK(store_report_write(r, &batch, 1, &result, &e));
    assert_spec(f, job, "spec\0bytes", 10);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE kind = 'records_dropped'"), 1);
    batch.rank = 0;
    for (int i = 0; i < 2; i++)
        OK(store_report_write(r, &batch, 1, &result, &e));
    assert_spec(f, job, "spec\0bytes+2", 12);
    records[0].chosen.plan = "stay";
    batch.first_sequence = 2;
    OK(store_report_write(r, &batch, 1, &result, &e));
    records[0].chosen.plan = "no";
    batch.first_sequence = 3;
    OK(store_report_write(r, &batch, 1, &result, &e));
    assert_int_equal(result.sequence, 3);
    assert_spec(f, job, "spec\0bytes+2", 12);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE message = 'the plan does not fit'"), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_fork_starts_from_the_others_checkpoint_which_stays_until_it_has_its_own),
        TEST(eight_forks_with_one_request_make_one_job_whichever_checkpoint_each_found),
        TEST(a_retry_that_has_lost_what_its_job_began_with_is_refused),
        TEST(a_retry_of_a_job_that_is_not_failed_is_refused_for_that),
        TEST(a_job_fails_in_place_of_an_attempt_when_what_it_began_with_is_gone),
        TEST(a_retry_waits_for_retention_and_is_refused_what_that_has_taken),
        TEST(an_attempt_waits_for_who_finds_its_origin_corrupt_and_does_not_start),
        TEST(weights_of_another_job_are_named_to_every_attempt_without_a_step),
        TEST(what_auto_became_is_set_once_in_the_stored_spec_and_by_rank_0_alone),
        TEST(records_are_stored_once_and_gaps_are_refused),
        TEST(an_old_attempts_report_is_fenced),
        TEST(the_last_shard_commits_the_checkpoint_in_its_transaction),
        TEST(what_cannot_be_stored_is_dropped_and_told_once),
        TEST(numbers_beyond_a_rows_range_do_not_fail_the_write),
        TEST(a_record_that_postgresql_refuses_stops_nobody),
        TEST(a_rank_has_a_bounded_number_of_series),
        TEST(random_replay_stores_every_point_once),
        TEST(logs_are_read_by_cursor_without_gap_or_overlap),
        TEST(retention_keeps_the_last_the_best_the_pinned),
        TEST(a_corrupt_checkpoint_gives_way_to_the_older_good_one),
    };
    return cmocka_run_group_tests_name("store reports", tests, fixture_group_setup, fixture_group_teardown);
}
