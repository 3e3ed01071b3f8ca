/* Reports are stored exactly once, also if they are sent again; gaps, fencing, checkpoints and logs; chunks that
 * outlive the connection that wrote them. */
#include "tests/store/store_fixture.h"

#include "base/clock.h"
#include "service/store/checkpoint.h"
#include "service/store/event.h"
#include "service/store/log.h"
#include "service/store/metric.h"
#include "service/store/report_rank.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *const NAMES[] = { "loss", "grad_norm" };

static void records_are_stored_once_and_gaps_are_refused(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    double values[2] = { 1, 2 };
    struct store_record records[3];
    for (int i = 0; i < 3; i++)
        records[i] = record_metrics(i + 1, 2, NAMES, values);
    assert_int_equal(fixture_report(r, job, 1, 0, 1, records, 3).sequence, 3);
    struct store_batch_result again = fixture_report(r, job, 1, 0, 1, records, 3);
    assert_int_equal(again.sequence, 3);
    struct store_batch_result gap = fixture_report(r, job, 1, 0, 5, records, 1);
    assert_true(gap.gap);
    assert_int_equal(gap.sequence, 3);
    struct store_batch_result overlap = fixture_report(r, job, 1, 0, 3, records, 3);
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
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    struct store_record none = { .kind = STORE_RECORD_NONE };
    fixture_report(r, job, 1, 0, 1, &none, 1);
    /* A job whose attempt has ended, and no other has begun. */
    int64_t ended = fixture_running(f, 1);
    OK(store_attempt_end(f->store, f->epoch, ended, 1, 0, "its lease is over", &e));
    assert_true(fixture_report(r, ended, 1, 0, 1, &none, 1).fenced);
    OK(store_rank_starts(f->store, f->epoch, &(struct store_rank_start){ ended, 1, 0, 7, 8, 2, "host" }, 1, &e));
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM placement WHERE pid IS NOT NULL"), 0);
    fixture_next_attempt(f, job, 1, 1);
    struct store_batch_result late = fixture_report(r, job, 1, 0, 2, &none, 1);
    assert_true(late.fenced);
    assert_true(fixture_report(r, job + 1, 1, 0, 2, &none, 1).fenced);
    assert_int_equal(fixture_report(r, job, 2, 0, 1, &none, 1).sequence, 1);
    CLEANUP(store_report_freep) struct store_report *deposed = store_report_new(f->store, f->epoch + 1);
    struct store_batch batch = { job, 2, 0, 2, &none, 1, 0, "host" };
    struct store_batch_result result;
    FAILS(store_report_write(deposed, &batch, 1, &result, &e), ST_FAILED_PRECONDITION, "epoch");
}

/* An attempt of a restored database, and a lost one with the same number on another executor. */
static void a_batch_of_an_executor_that_the_attempt_is_not_on_is_fenced(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 2);
    struct store_record shard = record_shard(40, 0, 2, true);
    for (int again = 0; again < 2; again++) { /* before the rank has a mark, and read anew with one */
        CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
        struct store_batch batches[] = {
            { job, 1, 0, 1 + again, &shard, 1, 0, "other" },
            { job, 1, 0, 1 + again, &shard, 1, 0, "host" },
            { job, 1, 0, 2 + again, &shard, 1, 0, "other" },
            { job, 1, 0, 1 + again, &shard, 0, 0, "other" },
            { job, 1, 2, 1, &shard, 1, 0, "" }, /* no such rank */
        };
        struct store_batch_result results[5];
        OK(store_report_write(r, batches, 5, results, &e));
        for (int i = 0; i < 5; i++)
            assert_int_equal(results[i].fenced, i != 1);
        assert_int_equal(results[1].sequence, 1 + again);
    }
    assert_int_equal(pg_number(f->conninfo, "SELECT sum(sequence) FROM rank_sequence"), 2);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM rank_sequence"), 1);
}

static void the_last_shard_commits_the_checkpoint_in_its_transaction(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 2);
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    struct store_record shard0 = record_shard(40, 0, 2, true), shard1 = record_shard(40, 1, 2, true);
    assert_int_equal(fixture_report(r, job, 1, 0, 1, &shard0, 1).n_committed, 0);
    struct store_checkpoint newest;
    FAILS(store_checkpoint_newest(f->store, f->m, job, &newest, &e), ST_NOT_FOUND, "no committed checkpoint");
    struct store_batch_result last = fixture_report(r, job, 1, 1, 1, &shard1, 1);
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
    /* The answer may have been lost: the repeated report returns the checkpoint again, and changes nothing. */
    struct store_batch_result repeated = fixture_report(r, job, 1, 1, 1, &shard1, 1);
    assert_int_equal(repeated.n_committed, 1);
    assert_int_equal(repeated.last_event, last.last_event);
}

static void a_record_that_cannot_be_stored_is_dropped_and_reported_once(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 2);
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
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
    assert_int_equal(fixture_report(r, job, 1, 0, 1, records, 5).sequence, 5);
    assert_int_equal(pg_number(f->conninfo, "SELECT sum(n) FROM metric_chunk"), 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM shard"), 0);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE kind = 'records_dropped'"), 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE kind = 'notice'"), 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM log_chunk WHERE lines[1] = E'caf\\uFFFD\\n'"), 1);
}

/* A worker with a wrong clock or impossible sizes must not stop the writer that it shares with other workers. */
static void numbers_beyond_a_rows_range_do_not_fail_the_write(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 2);
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    struct store_record records[] = { record_log("early"), record_log("late"), record_shard(40, 0, 2, false) };
    records[0].time_us = INT64_MIN;
    records[1].time_us = INT64_MAX;
    records[2].shard.bytes = INT64_MAX;
    assert_int_equal(fixture_report(r, job, 1, 0, 1, records, 3).sequence, 3);
    struct store_record other = record_shard(40, 1, 2, false);
    other.shard.bytes = INT64_MAX;
    assert_int_equal(fixture_report(r, job, 1, 1, 1, &other, 1).sequence, 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM log_chunk"), 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM shard"), 0);
}

static void a_record_that_postgresql_refuses_does_not_stop_other_records(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 2);
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    pg_run(f->conninfo, "ALTER TABLE event ADD CONSTRAINT unforeseen CHECK (message <> 'evil')");
    double values[] = { 1, 2 };
    struct store_record guilty[] = { record_metrics(1, 2, NAMES, values),
                                     { .kind = STORE_RECORD_NOTICE, .notice = { "hello", "evil" } },
                                     record_metrics(2, 2, NAMES, values) };
    struct store_record innocent = record_metrics(1, 2, NAMES, values);
    struct store_batch batches[] = { { job, 1, 0, 1, guilty, 3, 0, "host" },
                                     { job, 1, 1, 1, &innocent, 1, 0, "host" } };
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
    /* The writer continues as before, and the constraint still holds for others. */
    struct store_record later = record_metrics(3, 2, NAMES, values);
    assert_int_equal(fixture_report(r, job, 1, 0, 4, &later, 1).sequence, 4);
    assert_int_equal(pg_number(f->conninfo, "SELECT sum(n) FROM metric_chunk"), 8);
}

static void a_rank_has_a_bounded_number_of_series(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    static char text[STORE_SERIES_PER_RANK + 5][16];
    static char *names[STORE_SERIES_PER_RANK + 5];
    static double values[STORE_SERIES_PER_RANK + 5];
    for (int i = 0; i < STORE_SERIES_PER_RANK + 5; i++) {
        snprintf(text[i], sizeof text[i], "name_%d", i);
        names[i] = text[i];
    }
    struct store_record record = record_metrics(1, STORE_SERIES_PER_RANK + 5, names, values);
    fixture_report(r, job, 1, 0, 1, &record, 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM metric_chunk"), STORE_SERIES_PER_RANK);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE kind = 'records_dropped'"), 1);
}

/* The last job that had the name is deleted while the writer uses the name for another job. */
static int64_t statements(struct fixture *f) {
    const struct histogram *h = &store_times(f->store)->statements;
    int64_t n = 0;
    for (size_t i = 0; i < sizeof h->counts / sizeof *h->counts; i++)
        n += atomic_load(&h->counts[i]);
    return n;
}

static int64_t statements_of_report(struct fixture *f, struct store_report *r, int64_t job, int rank,
                                    const struct store_record *record) {
    const int64_t before = statements(f);
    fixture_report(r, job, 1, rank, 1, record, 1);
    return statements(f) - before;
}

static void the_names_of_a_job_are_looked_up_once_and_not_by_each_of_its_ranks(void **state) {
    struct fixture *f = *state;
    enum { N_NAMES = 2, STATEMENTS_OF_NAME = 3 };
    const double values[] = { 1, 2 };
    const int64_t job = fixture_running(f, 2), other = fixture_running(f, 2);
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    const struct store_record record = record_metrics(1, N_NAMES, NAMES, values);
    const int64_t first = statements_of_report(f, r, job, 0, &record);
    assert_int_equal(statements_of_report(f, r, job, 1, &record), first - N_NAMES * STATEMENTS_OF_NAME);
    assert_int_equal(statements_of_report(f, r, other, 1, &record), first);
    assert_int_equal(statements_of_report(f, r, other, 0, &record), first - N_NAMES * STATEMENTS_OF_NAME);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM metric_chunk"), 4 * N_NAMES);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM job_metric"), 2 * N_NAMES);
}

/* Ranks of two series each, in a table that has capacity for four of them. */
static void a_full_table_evicts_the_ranks_that_were_unused_for_longest_and_reads_them_again(void **state) {
    struct fixture *f = *state;
    enum { RANKS = 9 };
    static char *const names[] = { "loss", "gradient_norm" };
    const double values[] = { 1, 2 };
    const size_t max_bytes = 4 * (sizeof(struct rank_memory) + 2 * sizeof(struct series));
    int64_t job = fixture_running(f, RANKS);
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    const struct store_record record = record_metrics(1, 2, names, values);
    for (int rank = 0; rank < RANKS; rank++)
        fixture_report(r, job, 1, rank, 1, &record, 1);
    CLEANUP(connection_closep) struct connection *c = NULL;
    CLEANUP(rank_table_freep) struct rank_table *t = rank_table_new(max_bytes);
    struct rank_memory *k, *first;
    OK(connection_open(f->conninfo, &c, &e));
    uint64_t write = 0;
    for (int round = 0; round < 3; round++)
        for (int rank = 0; rank < RANKS; rank++) {
            const struct store_batch batch = { .job = job, .attempt = 1, .rank = rank };
            OK(rank_table_get(t, c, &batch, ++write, 1, &k, &e));
            assert_int_equal(k->rank, rank);
            assert_int_equal(k->sequence, 1);
            assert_int_equal(k->n_series, 2);
            assert_true(rank_table_bytes(t) <= max_bytes + max_bytes / 4); /* one is read before one is evicted */
        }
    /* Ranks of the same write stay, even beyond the limit. */
    write++;
    for (int rank = 0; rank < RANKS; rank++) {
        const struct store_batch batch = { .job = job, .attempt = 1, .rank = rank };
        OK(rank_table_get(t, c, &batch, write, 1, &k, &e));
        first = rank == 0 ? k : first;
    }
    const struct store_batch batch = { .job = job, .attempt = 1, .rank = 0 };
    OK(rank_table_get(t, c, &batch, write, 1, &k, &e));
    assert_ptr_equal(k, first);
    assert_true(rank_table_bytes(t) > 2 * max_bytes);
    OK(rank_table_get(t, c, &batch, ++write, 1, &k, &e));
    const struct store_batch other = { .job = job, .attempt = 1, .rank = 99 };
    OK(rank_table_get(t, c, &other, ++write, 1, &k, &e));
    assert_true(rank_table_bytes(t) <= max_bytes + max_bytes / 4);
    /* Those that were unused for long go, although there is memory for them. */
    OK(rank_table_get(t, c, &batch, ++write, 2 + RANK_UNUSED_MS, &k, &e));
    OK(rank_table_get(t, c, &other, ++write, 2 + RANK_UNUSED_MS, &k, &e));
    assert_true(rank_table_bytes(t) < max_bytes / 2);
}

static void a_name_that_is_deleted_meanwhile_is_added_again(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    pg_run(f->conninfo, "INSERT INTO metric_name (name) VALUES ('loss')");
    pthread_t deleter = pg_commit_when_blocked(f->pg, f->conninfo, pg_begin(f->conninfo, "DELETE FROM metric_name"));
    double value = 1;
    struct store_record record = record_metrics(1, 1, NAMES, &value);
    fixture_report(r, job, 1, 0, 1, &record, 1);
    pthread_join(deleter, NULL);
    assert_int_equal(pg_number(f->conninfo,
                               "SELECT count(*) FROM metric_chunk k JOIN job_metric j ON j.job = k.job "
                               "AND j.name = k.name JOIN metric_name m ON m.id = k.name WHERE m.name = 'loss'"),
                     1);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE kind = 'records_dropped'"), 0);
}

/* ---- random replay ---- */

enum { REPLAY_RANKS = 3, REPLAY_STEPS = 1500 };

/* The value of a rank's step. */
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

/* Batches overlap, repeat and skip; the writer is replaced; connections are cut. Each point is stored once. */
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
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
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
            batches[i] = (struct store_batch){ job, 1, rank, first, &p.records[rank][first - 1], len, 0, "host" };
        }
        OK(store_report_write(r, batches, n, results, &e));
        for (size_t i = 0; i < n; i++)
            p.acked[batches[i].rank] = results[i].sequence;
        if (rand() % 10 == 0) {
            r = store_report_free(r);
            r = store_report_new(f->store, f->epoch);
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
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    static char text[2500][16];
    static struct store_record records[2500];
    for (int i = 0; i < 2500; i++) {
        snprintf(text[i], sizeof text[i], "line %d", i);
        records[i] = record_log(text[i]);
    }
    fixture_report(r, job, 1, 0, 1, records, 2500);
    struct store_record other = record_log("of rank 1");
    fixture_report(r, job, 1, 1, 1, &other, 1);
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

/* Chunks of a log have at most 1000 lines. */
static void a_log_is_read_from_a_time_or_from_the_last_lines(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    static char text[2500][16];
    static struct store_record records[2500];
    for (int i = 0; i < 2500; i++) {
        snprintf(text[i], sizeof text[i], "line %d", i);
        records[i] = record_log(text[i]);
        records[i].time_us = 1000 + i;
    }
    fixture_report(r, job, 1, 0, 1, records, 2500);
    const struct {
        int64_t from_time_us;
        int last_lines, first; /* number of the first line */
    } cases[] = { { 0, 0, 0 },     { 1000, 0, 0 },   { 2100, 0, 1000 }, { 3400, 0, 2000 }, { 9000, 0, 0 },
                  { 0, 10, 2000 }, { 0, 500, 2000 }, { 0, 501, 1000 },  { 0, 9999, 0 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct store_log_query query = { .job = job,
                                         .rank = -1,
                                         .attempt = -1,
                                         .limit = 300,
                                         .from_time_us = cases[i].from_time_us,
                                         .last_lines = cases[i].last_lines };
        struct store_log_line *lines;
        size_t n;
        OK(store_log_list(f->store, f->m, &query, &lines, &n, &query.cursor, &e));
        assert_int_equal(n, 300);
        assert_string_equal(lines[0].text, text[cases[i].first]);
        OK(store_log_list(f->store, f->m, &query, &lines, &n, &query.cursor, &e)); /* the cursor goes first */
        assert_string_equal(lines[0].text, text[cases[i].first + 300]);
    }
}

/* ---- checkpoints ---- */

static void garbage_collection_keeps_the_last_the_best_and_the_pinned(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1); /* keep_last 2, keep_best 1 */
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    static const double losses[] = { 5, 1, 4, 3, 2.5, 2 };
    for (int i = 0; i < 6; i++)
        fixture_checkpoint(r, job, (i + 1) * 10, losses[i], i + 1);
    struct store_checkpoint *list;
    size_t n;
    OK(store_checkpoint_list(f->store, f->m, job, 0, 100, &list, &n, &e));
    assert_int_equal(n, 6);
    assert_int_equal(list[0].step, 60);
    OK(store_checkpoint_pin(f->store, f->epoch, job, list[5].id, true, &e));
    struct store_checkpoint *gone;
    OK(store_checkpoint_mark_garbage(f->store, f->m, f->epoch, job, &gone, &n, &e));
    assert_int_equal(n, 2); /* 30 and 40: 10 is pinned, 20 the best, 50 and 60 the last */
    assert_int_equal(gone[0].step, 30);
    assert_int_equal(gone[1].step, 40);
    OK(store_checkpoint_deleted(f->store, f->epoch, gone[0].id, &e));
    OK(store_checkpoint_mark_garbage(f->store, f->m, f->epoch, job, &gone, &n, &e));
    assert_int_equal(n, 1);
    FAILS(store_checkpoint_pin(f->store, f->epoch, job, gone[0].id, true, &e), ST_FAILED_PRECONDITION, "not COMMITTED");
}

static void a_corrupt_checkpoint_gives_way_to_the_older_good_one(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    fixture_checkpoint(r, job, 10, 1, 1);
    fixture_checkpoint(r, job, 20, 1, 2);
    fixture_next_attempt(f, job, 1, 1);
    struct store_attempt *attempts;
    size_t n;
    OK(store_attempt_list(f->store, f->m, job, &attempts, &n, &e));
    assert_int_equal(attempts[1].from_step, 20);
    /* The checkpoint that the attempt started from is kept. */
    struct store_checkpoint *gone;
    OK(store_checkpoint_mark_garbage(f->store, f->m, f->epoch, job, &gone, &n, &e));
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

/* Appends the plan to the spec; "stay" changes nothing, and "no" is refused. */
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

static void the_resolved_plan_is_stored_once_and_only_from_rank_0(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 2);
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    struct store_record records[] = { { .kind = STORE_RECORD_RESOLVED_PLAN, .resolved_plan = { append_plan, "+2" } } };
    struct store_batch batch = { job, 1, 1, 1, records, 1, 0, "host" };
    struct store_batch_result result;
    OK(store_report_write(r, &batch, 1, &result, &e));
    assert_spec(f, job, "spec\0bytes", 10);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE kind = 'records_dropped'"), 1);
    batch.rank = 0;
    for (int i = 0; i < 2; i++)
        OK(store_report_write(r, &batch, 1, &result, &e));
    assert_spec(f, job, "spec\0bytes+2", 12);
    records[0].resolved_plan.plan = "stay";
    batch.first_sequence = 2;
    OK(store_report_write(r, &batch, 1, &result, &e));
    records[0].resolved_plan.plan = "no";
    batch.first_sequence = 3;
    OK(store_report_write(r, &batch, 1, &result, &e));
    assert_int_equal(result.sequence, 3);
    assert_spec(f, job, "spec\0bytes+2", 12);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE message = 'the plan does not fit'"), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(the_resolved_plan_is_stored_once_and_only_from_rank_0),
        TEST(records_are_stored_once_and_gaps_are_refused),
        TEST(an_old_attempts_report_is_fenced),
        TEST(a_batch_of_an_executor_that_the_attempt_is_not_on_is_fenced),
        TEST(the_last_shard_commits_the_checkpoint_in_its_transaction),
        TEST(a_record_that_cannot_be_stored_is_dropped_and_reported_once),
        TEST(numbers_beyond_a_rows_range_do_not_fail_the_write),
        TEST(a_record_that_postgresql_refuses_does_not_stop_other_records),
        TEST(a_rank_has_a_bounded_number_of_series),
        TEST(the_names_of_a_job_are_looked_up_once_and_not_by_each_of_its_ranks),
        TEST(a_full_table_evicts_the_ranks_that_were_unused_for_longest_and_reads_them_again),
        TEST(a_name_that_is_deleted_meanwhile_is_added_again),
        TEST(random_replay_stores_every_point_once),
        TEST(logs_are_read_by_cursor_without_gap_or_overlap),
        TEST(a_log_is_read_from_a_time_or_from_the_last_lines),
        TEST(garbage_collection_keeps_the_last_the_best_and_the_pinned),
        TEST(a_corrupt_checkpoint_gives_way_to_the_older_good_one),
    };
    return cmocka_run_group_tests_name("store reports", tests, fixture_group_setup, fixture_group_teardown);
}
