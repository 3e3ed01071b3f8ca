/* Jobs, attempts, events, executors: every guard, and races between two connections. */
#include "tests/store/store_fixture.h"

#include "service/store/event.h"
#include "service/store/executor.h"
#include "service/store/job_list.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static void a_job_is_read_back_as_it_was_stored(void **state) {
    struct fixture *f = *state;
    int64_t id = fixture_job(f, 2);
    struct store_job job;
    OK(store_job_get(f->store, f->m, id, &job, &e));
    assert_string_equal(job.name, "test");
    assert_int_equal(job.state, STORE_JOB_QUEUED);
    assert_int_equal(job.world_size, 2);
    assert_int_equal(job.needs, 5);
    assert_int_equal(job.spec_bytes, 10);
    assert_memory_equal(job.spec, "spec\0bytes", 10);
    assert_int_equal(job.last_event, 1);
    assert_true(job.create_time_us > 1700000000000000);
    assert_int_equal(job.end_time_us, 0);
    FAILS(store_job_get(f->store, f->m, id + 1, &job, &e), ST_NOT_FOUND, "does not exist");
}

static void the_same_request_creates_one_job(void **state) {
    struct fixture *f = *state;
    struct store_job_new job = {
        .request_id = "once", .name = "a", .queue = "q", .world_size = 1, .accelerator = "cpu"
    };
    int64_t first, second;
    bool existed;
    OK(store_job_create(f->store, f->epoch, &job, &first, &existed, NULL, &e));
    assert_false(existed);
    OK(store_job_create(f->store, f->epoch, &job, &second, &existed, NULL, &e));
    assert_true(existed);
    assert_int_equal(first, second);
    OK(store_request_find(f->store, "once", &second, &e));
    assert_int_equal(first, second);
    FAILS(store_request_find(f->store, "never", &second, &e), ST_NOT_FOUND, "never");
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM job"), 1);
}

static void a_request_id_that_asks_for_something_else_is_refused_and_names_the_job(void **state) {
    struct fixture *f = *state;
    uint8_t digest[STORE_DIGEST_BYTES] = { 1 }, other[STORE_DIGEST_BYTES] = { 2 };
    struct store_job_new job = {
        .request_id = "same", .name = "a", .queue = "q", .world_size = 1, .accelerator = "cpu", .request_digest = digest
    };
    int64_t first, again;
    bool existed;
    OK(store_job_create(f->store, f->epoch, &job, &first, &existed, NULL, &e));
    OK(store_job_create(f->store, f->epoch, &job, &again, &existed, NULL, &e));
    assert_true(existed && again == first);
    job.request_digest = other;
    FAILS(store_job_create(f->store, f->epoch, &job, &again, &existed, NULL, &e), ST_ALREADY_EXISTS,
          "request_id: 'same' made jobs/1 of another spec");
    FAILS(store_job_requested(f->store, "same", other, &again, &e), ST_ALREADY_EXISTS, "jobs/1");
    OK(store_job_requested(f->store, "same", NULL, &again, &e));
    pg_force(f->conninfo, "UPDATE job_spec SET request_digest = NULL"); /* as of a job from before digests */
    OK(store_job_create(f->store, f->epoch, &job, &again, &existed, NULL, &e));
    assert_true(existed && again == first);
}

struct racer {
    struct fixture *f;
    int64_t job;
    status_t status;
    bool existed;
    const char *request;
};

static void *create_one(void *ctx) {
    struct racer *r = ctx;
    struct store_job_new job = {
        .request_id = "race", .name = "a", .queue = "q", .world_size = 1, .accelerator = "cpu"
    };
    r->status = store_job_create(r->f->store, r->f->epoch, &job, &r->job, &r->existed, NULL, NULL);
    return NULL;
}

static void eight_callers_with_one_request_create_one_job(void **state) {
    struct fixture *f = *state;
    pthread_t threads[8];
    struct racer racers[8];
    for (int i = 0; i < 8; i++) {
        racers[i] = (struct racer){ .f = f };
        pthread_create(&threads[i], NULL, create_one, &racers[i]);
    }
    int created = 0;
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(racers[i].status, ST_OK);
        assert_int_equal(racers[i].job, racers[0].job);
        created += !racers[i].existed;
    }
    assert_int_equal(created, 1);
}

static void a_move_needs_its_state_and_its_attempt(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    struct store_job_move move = {
        .request_id = "m1", .job = job, .attempt = 1, .from = STORE_JOB_STARTING, .to = STORE_JOB_RUNNING, .reason = ""
    };
    FAILS(store_job_move(f->store, f->epoch, &move, NULL, &e), ST_FAILED_PRECONDITION, "is RUNNING, not STARTING");
    move.from = STORE_JOB_RUNNING;
    move.to = STORE_JOB_FAILED;
    move.attempt = 2;
    FAILS(store_job_move(f->store, f->epoch, &move, NULL, &e), ST_FAILED_PRECONDITION, "fenced");
    move.attempt = 1;
    FAILS(store_job_move(f->store, f->epoch + 1, &move, NULL, &e), ST_FAILED_PRECONDITION, "epoch");
    move.job++;
    FAILS(store_job_move(f->store, f->epoch, &move, NULL, &e), ST_NOT_FOUND, "does not exist");
    move.job--;
    OK(store_job_move(f->store, f->epoch, &move, NULL, &e));
    struct store_job row;
    OK(store_job_get(f->store, f->m, job, &row, &e));
    assert_int_equal(row.state, STORE_JOB_FAILED);
    assert_true(row.end_time_us > 0 && row.start_time_us > 0);
}

static void a_repeated_move_changes_nothing_and_returns_its_event(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1), other = fixture_job(f, 1), first, second;
    struct store_job_move move = { .request_id = "twice",
                                   .job = job,
                                   .attempt = 1,
                                   .from = STORE_JOB_RUNNING,
                                   .to = STORE_JOB_CANCELLING,
                                   .reason = "asked" };
    OK(store_job_move(f->store, f->epoch, &move, &first, &e));
    OK(store_job_move(f->store, f->epoch, &move, &second, &e));
    assert_int_equal(first, second);
    struct store_job_move stolen = move;
    stolen.job = other;
    FAILS(store_job_move(f->store, f->epoch, &stolen, NULL, &e), ST_ALREADY_EXISTS, "twice");
}

static void *move_one(void *ctx) {
    struct racer *r = ctx;
    struct store_job_move move = { .request_id = r->request,
                                   .job = r->job,
                                   .attempt = 1,
                                   .from = STORE_JOB_RUNNING,
                                   .to = STORE_JOB_CANCELLING,
                                   .reason = "" };
    r->status = store_job_move(r->f->store, r->f->epoch, &move, NULL, NULL);
    return NULL;
}

static void of_two_moves_at_once_one_wins(void **state) {
    struct fixture *f = *state;
    for (int round = 0; round < 10; round++) {
        int64_t job = fixture_running(f, 1);
        char ids[2][32];
        struct racer racers[2];
        pthread_t threads[2];
        for (int i = 0; i < 2; i++) {
            snprintf(ids[i], sizeof ids[i], "race-%d-%d", round, i);
            racers[i] = (struct racer){ .f = f, .job = job, .request = ids[i] };
            pthread_create(&threads[i], NULL, move_one, &racers[i]);
        }
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal((racers[0].status == ST_OK) + (racers[1].status == ST_OK), 1);
        assert_int_equal(racers[0].status + racers[1].status, ST_FAILED_PRECONDITION);
    }
}

static void a_job_that_waits_says_why_until_it_moves(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_job(f, 4);
    for (int i = 0; i < 2; i++) /* the first answer was lost, so it is requested again */
        OK(store_job_waiting(f->store, f->epoch, "waiting-1", job, 0, "needs 4 cpu slots, 2 of 2 are free", &e));
    struct store_job row;
    OK(store_job_get(f->store, f->m, job, &row, &e));
    assert_string_equal(row.reason, "needs 4 cpu slots, 2 of 2 are free");
    int64_t last = row.last_event;
    fixture_attempt(f, job, STORE_JOB_QUEUED, 4);
    OK(store_job_waiting(f->store, f->epoch, "waiting-2", job, 0, "too late", &e));
    OK(store_job_get(f->store, f->m, job, &row, &e));
    assert_string_equal(row.reason, "");
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE kind = 'waiting'"), 1);
    assert_true(row.last_event > last);
}

static void *add_events(void *ctx) {
    struct racer *r = ctx;
    for (int i = 0; i < 25 && r->status == ST_OK; i++) {
        char id[64];
        snprintf(id, sizeof id, "%s-%d", r->request, i);
        r->status = store_event_add(r->f->store, r->f->epoch, id, r->job, 0, "noted", "text", NULL, NULL);
    }
    return NULL;
}

static void events_are_numbered_without_gaps_by_four_writers(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_job(f, 1);
    static const char *const names[] = { "a", "b", "c", "d" };
    struct racer racers[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        racers[i] = (struct racer){ .f = f, .job = job, .request = names[i] };
        pthread_create(&threads[i], NULL, add_events, &racers[i]);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(racers[i].status, ST_OK);
    }
    int64_t after = 0;
    for (size_t n = 1; n;) {
        struct store_event *events;
        OK(store_event_list(f->store, f->m, job, after, 30, &events, &n, &e));
        for (size_t i = 0; i < n; i++)
            assert_int_equal(events[i].number, ++after);
    }
    assert_int_equal(after, 101);
    struct store_event *none;
    size_t n;
    FAILS(store_event_list(f->store, f->m, job + 1, 0, 10, &none, &n, &e), ST_NOT_FOUND, "does not exist");
}

static void an_attempt_starts_only_as_the_next_one_of_an_idle_job(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_job(f, 2);
    const char *executors[] = { "a", "b" };
    struct store_attempt_new attempt = {
        .request_id = "x1", .job = job, .attempt = 2, .from = STORE_JOB_QUEUED, .world_size = 2, .executors = executors
    };
    struct store_attempt_start start;
    FAILS(store_attempt_create(f->store, f->m, f->epoch, &attempt, &start, &e), ST_FAILED_PRECONDITION, "not the next");
    attempt.attempt = 1;
    attempt.from = STORE_JOB_RESTARTING;
    FAILS(store_attempt_create(f->store, f->m, f->epoch, &attempt, &start, &e), ST_FAILED_PRECONDITION, "is QUEUED");
    attempt.from = STORE_JOB_QUEUED;
    OK(store_attempt_create(f->store, f->m, f->epoch, &attempt, &start, &e));
    assert_int_equal(start.from_step, 0);
    assert_string_equal(start.directory, "");
    int64_t event = start.event;
    OK(store_attempt_create(f->store, f->m, f->epoch, &attempt, &start, &e));
    assert_int_equal(start.event, event);
    fixture_move(f, job, 1, STORE_JOB_STARTING, STORE_JOB_RESTARTING);
    struct store_attempt_new next = attempt;
    next.request_id = "x2";
    next.attempt = 2;
    next.from = STORE_JOB_RESTARTING;
    FAILS(store_attempt_create(f->store, f->m, f->epoch, &next, &start, &e), ST_FAILED_PRECONDITION, "has not ended");
    OK(store_attempt_end(f->store, f->epoch, job, 1, 0, "rank 1 died", &e));
    OK(store_attempt_create(f->store, f->m, f->epoch, &next, &start, &e));
    FAILS(store_attempt_end(f->store, f->epoch, job, 1, 0, "again", &e), ST_FAILED_PRECONDITION, "fenced");
    const struct store_rank_start starts[] = { { job, 1, 0, 7, 8, 2, "a" },
                                               { job, 1, 1, 0, 0, 3, "b" },
                                               { job, 2, 1, 77, 88, 2, "b" },
                                               { job, 2, 0, 66, 88, 2, "b" } }; /* rank 0 is on "a" */
    OK(store_rank_starts(f->store, f->epoch, starts, 4, &e));
    struct store_attempt *attempts;
    size_t n;
    OK(store_attempt_list(f->store, f->m, job, &attempts, &n, &e));
    assert_int_equal(n, 2);
    assert_int_equal(attempts[0].state, STORE_ATTEMPT_ENDED);
    assert_string_equal(attempts[0].reason, "rank 1 died");
    assert_int_equal(attempts[0].placements[0].pid, 0); /* it had ended */
    assert_int_equal(attempts[0].placements[1].threads, 0);
    assert_int_equal(attempts[1].n_placements, 2);
    assert_int_equal(attempts[1].placements[1].pid, 77);
    assert_int_equal(attempts[1].placements[0].threads, 0);
    assert_int_equal(attempts[1].placements[0].pid, 0);
    assert_int_equal(attempts[1].placements[1].threads, 2);
    assert_string_equal(attempts[1].placements[1].executor, "b");
    struct store_attempt one;
    OK(store_rank_starts(
        f->store, f->epoch,
        &(struct store_rank_start){ .job = job, .attempt = 2, .rank = 1, .threads = 7, .executor = "b" }, 1, &e));
    OK(store_attempt_get(f->store, f->m, job, 2, &one, &e));
    assert_int_equal(one.placements[0].threads, 0);
    assert_int_equal(one.placements[1].threads, 7);
    OK(store_attempt_get(f->store, f->m, job, 1, &one, &e));
    assert_int_equal(one.number, 1);
    assert_string_equal(one.reason, "rank 1 died");
    assert_int_equal(one.n_placements, 2);
    FAILS(store_attempt_get(f->store, f->m, job, 3, &one, &e), ST_NOT_FOUND, "has no attempt 3");
}

static void of_many_attempts_the_newest_are_listed_and_of_these_the_newest_have_placements(void **state) {
    struct fixture *f = *state;
    enum { RANKS = 1024, ATTEMPTS = STORE_ATTEMPTS_LISTED + 5 };
    struct store_attempt *attempts;
    size_t n, placed = 0;
    int64_t job = fixture_running(f, RANKS);
    char sql[900];
    snprintf(sql, sizeof sql,
             "DELETE FROM placement; DELETE FROM attempt;"
             "INSERT INTO attempt (job, number, state, epoch, from_step, end_time, world_size) "
             "SELECT %lld, n, 4, 1, 0, now(), %d FROM generate_series(1, %d) n;"
             "INSERT INTO placement (job, attempt, rank, executor, end_time, cause) "
             "SELECT %lld, n, r, 'host', now(), 0 FROM generate_series(%d, %d) n, generate_series(0, %d) r;"
             "UPDATE job SET attempt = %d",
             (long long)job, RANKS, ATTEMPTS, (long long)job, ATTEMPTS - 19, ATTEMPTS, RANKS - 1, ATTEMPTS);
    pg_force(f->conninfo, sql);
    OK(store_attempt_list(f->store, f->m, job, &attempts, &n, &e));
    assert_int_equal(n, STORE_ATTEMPTS_LISTED);
    assert_int_equal(attempts[0].number, ATTEMPTS - STORE_ATTEMPTS_LISTED + 1);
    for (size_t i = 0; i < n; i++) {
        assert_true(attempts[i].n_placements == 0 || attempts[i].n_placements == RANKS);
        assert_true(i == 0 || attempts[i].n_placements >= attempts[i - 1].n_placements);
        placed += attempts[i].n_placements;
    }
    assert_int_equal(placed, STORE_RANKS_LISTED);
    assert_int_equal(attempts[n - 1].placements[RANKS - 1].rank, RANKS - 1);
}

/* The transaction that wrote each row. A row that does not change keeps its version. */
static long long versions_of_placements(struct fixture *f) {
    return pg_number(f->conninfo,
                     "SELECT count(DISTINCT xmin::text) * 1000000 + max(xmin::text::bigint) FROM placement");
}

static void a_thousand_ranks_are_written_by_one_transaction_and_only_those_that_differ_are_touched(void **state) {
    struct fixture *f = *state;
    enum { JOBS = 4, RANKS = STORE_MAX_RANK_STARTS / JOBS };
    static struct store_rank_start starts[STORE_MAX_RANK_STARTS], threads[STORE_MAX_RANK_STARTS];
    struct store_stats before, after;
    for (int j = 0, i = 0; j < JOBS; j++) {
        int64_t job = fixture_running(f, RANKS);
        for (int rank = 0; rank < RANKS; rank++, i++) {
            starts[i] = (struct store_rank_start){ job, 1, rank, 1000 + i, 5, 2, "host" };
            threads[i] = (struct store_rank_start){
                .job = job, .attempt = 1, .rank = rank, .threads = 2, .executor = "host"
            };
        }
    }
    store_stats(f->store, &before);
    OK(store_rank_starts(f->store, f->epoch, starts, STORE_MAX_RANK_STARTS, &e));
    store_stats(f->store, &after);
    assert_int_equal(after.transactions - before.transactions, 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM placement WHERE threads = 2 AND pid_start_time = 5 "
                                            "AND pid = 1000 + rank + 250 * (job - (SELECT min(job) FROM placement))"),
                     STORE_MAX_RANK_STARTS);

    /* All executors attach again: each rank has the threads that it had. */
    long long versions = versions_of_placements(f);
    OK(store_rank_starts(f->store, f->epoch, threads, STORE_MAX_RANK_STARTS, &e));
    OK(store_rank_starts(f->store, f->epoch, starts, STORE_MAX_RANK_STARTS, &e));
    assert_int_equal(versions_of_placements(f), versions);

    /* Two changes: one twice, the other after the rank's end, which is ignored. */
    const struct store_rank_end end = { .rank = 1, .message = "it ended", .time_us = 5 };
    OK(store_rank_ended(f->store, f->epoch, "host", threads[1].job, 1, &end, 1, &e));
    threads[0].threads = 3;
    threads[1].threads = 3;
    threads[2] = threads[0];
    threads[2].threads = 4;
    OK(store_rank_starts(f->store, f->epoch, threads, STORE_MAX_RANK_STARTS, &e));
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM placement WHERE threads = 2"),
                     STORE_MAX_RANK_STARTS - 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT threads FROM placement ORDER BY job, rank LIMIT 1"), 4);
    FAILS(store_rank_starts(f->store, f->epoch + 1, threads, 1, &e), ST_FAILED_PRECONDITION, "epoch");
}

static void a_ranks_end_is_stored_once(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 2);
    struct store_rank_end end = {
        .rank = 1, .exit_code = -1, .signal = 9, .message = "killed by signal 9", .time_us = 5
    };
    OK(store_rank_ended(f->store, f->epoch, "elsewhere", job, 1, &end, 1, &e));
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM placement WHERE end_time IS NOT NULL"), 0);
    OK(store_rank_ended(f->store, f->epoch, "host", job, 1, &end, 1, &e));
    OK(store_rank_ended(f->store, f->epoch, "host", job, 1, &end, 1, &e));
    FAILS(store_rank_ended(f->store, f->epoch, "host", job, 2, &end, 1, &e), ST_FAILED_PRECONDITION, "fenced");
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE kind = 'rank_ended'"), 1);
}

static void a_new_leader_loads_live_jobs_with_their_placement(void **state) {
    struct fixture *f = *state;
    int64_t queued = fixture_job(f, 1), running = fixture_running(f, 2), ended = fixture_running(f, 1);
    fixture_move(f, ended, 1, STORE_JOB_RUNNING, STORE_JOB_FAILED);
    OK(store_rank_starts(f->store, f->epoch, &(struct store_rank_start){ running, 1, 1, 42, 43, 2, "host" }, 1, &e));
    struct store_live_job *live, *first, *second;
    size_t n, n_first, n_second;
    OK(store_job_live(f->store, f->m, 0, 100, &live, &n, &e));
    assert_int_equal(n, 2);
    OK(store_job_live(f->store, f->m, 0, 1, &first, &n_first, &e));
    OK(store_job_live(f->store, f->m, queued, 1, &second, &n_second, &e));
    assert_int_equal(n_first + n_second, 2);
    assert_int_equal(first[0].job.id, queued);
    assert_int_equal(second[0].job.id, running);
    assert_null(live[0].job.spec);
    assert_non_null(live[1].job.spec);
    assert_int_equal(live[1].committed_step, -1);
    assert_int_equal(live[0].job.id, queued);
    assert_false(live[0].attempt_open);
    assert_int_equal(live[1].job.id, running);
    assert_true(live[1].attempt_open);
    assert_string_equal(live[1].executors[1], "host");
    assert_int_equal(live[1].pids[0], 0);
    assert_int_equal(live[1].pids[1], 42);
    assert_false(live[1].final_committed);
}

/* The attempt of an elastic job has another number of ranks than the job needs. So does the one that has ended. */
static void a_new_leader_loads_the_ranks_of_each_elastic_attempt(void **state) {
    struct fixture *f = *state;
    const int64_t running = fixture_job(f, 2), ended = fixture_job(f, 2), old = fixture_running(f, 2);
    struct store_live_job *live;
    size_t n;
    pg_run(f->conninfo, "UPDATE job SET max_world_size = 8 WHERE world_size = 2 AND state = 1");
    fixture_attempt(f, running, STORE_JOB_QUEUED, 5);
    fixture_move(f, running, 1, STORE_JOB_STARTING, STORE_JOB_RUNNING);
    fixture_attempt(f, ended, STORE_JOB_QUEUED, 3);
    fixture_move(f, ended, 1, STORE_JOB_STARTING, STORE_JOB_RUNNING);
    fixture_move(f, ended, 1, STORE_JOB_RUNNING, STORE_JOB_RESTARTING);
    OK(store_attempt_end(f->store, f->epoch, ended, 1, 0, "a host was lost", &e));
    pg_run(f->conninfo, "UPDATE attempt SET world_size = NULL WHERE job = (SELECT max(id) FROM job)");
    OK(store_job_live(f->store, f->m, 0, 100, &live, &n, &e));
    assert_int_equal(n, 3);
    assert_int_equal(live[0].job.id, running);
    assert_int_equal(live[0].job.world_size, 2);
    assert_int_equal(live[0].ranks, 5);
    assert_true(live[0].attempt_open);
    assert_string_equal(live[0].executors[4], "host");
    assert_int_equal(live[1].job.id, ended);
    assert_int_equal(live[1].ranks, 3);
    assert_false(live[1].attempt_open);
    assert_int_equal(live[2].job.id, old); /* a row of an older version */
    assert_int_equal(live[2].ranks, 2);
    assert_true(live[2].attempt_open);
}

static void the_end_of_an_attempt_closes_placements_without_a_reported_end(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 3), other = fixture_running(f, 1);
    struct store_rank_end end = { .rank = 1, .cause = 6, .message = "told", .time_us = 5 };
    OK(store_rank_ended(f->store, f->epoch, "host", job, 1, &end, 1, &e));
    OK(store_attempt_end(f->store, f->epoch, job, 1, 0, "its executor was lost", &e));
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM placement WHERE end_time IS NULL"), 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT job FROM placement WHERE end_time IS NULL"), other);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM placement WHERE cause = 0 AND message <> ''"), 2);
    assert_int_equal(pg_number(f->conninfo, "SELECT rank FROM placement WHERE cause = 6 AND message = 'told'"), 1);
}

static void executors_that_were_lost_long_ago_are_forgotten_but_for_those_that_still_matter(void **state) {
    struct fixture *f = *state;
    int64_t n;
    fixture_running(f, 1); /* on "host" */
    pg_run(f->conninfo,
           "INSERT INTO executor SELECT id, 1, CASE WHEN lost THEN 2 ELSE 1 END, 'h', 'a', 'v', 1, '', now(), "
           "now(), CASE WHEN lost THEN now() - days * interval '1 day' END FROM (VALUES ('attached', false, 0), "
           "('host', true, 40), ('drained', true, 40), ('recent', true, 29), ('old-1', true, 31), "
           "('old-2', true, 32), ('old-3', true, 33)) x(id, lost, days);"
           "UPDATE executor SET drain_time = now() WHERE id = 'drained';"
           "INSERT INTO device SELECT id, 0, 'cpu', 0, '', 0 FROM executor");
    OK(store_executor_forget(f->store, f->epoch, 30, 2, &n, &e)); /* the oldest first, so many at once */
    assert_int_equal(n, 2);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM executor WHERE id = 'old-1'"), 1);
    OK(store_executor_forget(f->store, f->epoch, 30, 2, &n, &e));
    assert_int_equal(n, 1);
    OK(store_executor_forget(f->store, f->epoch, 30, 2, &n, &e));
    assert_int_equal(n, 0);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM executor WHERE id IN ('attached', 'host', 'drained', "
                                            "'recent')"),
                     4);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM device"), 4);
    FAILS(store_executor_forget(f->store, f->epoch + 1, 30, 2, &n, &e), ST_FAILED_PRECONDITION, "epoch");
}

/* The reason is cut inside a character, as snprintf cuts. */
static void a_reason_that_is_not_utf8_is_stored_all_the_same(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    struct store_rank_end end = { .rank = 0, .message = "caf\xc3", .time_us = 5 };
    OK(store_rank_ended(f->store, f->epoch, "host", job, 1, &end, 1, &e));
    OK(store_attempt_end(f->store, f->epoch, job, 1, 0, "caf\xc3", &e));
    struct store_job_move move = { .request_id = "cut",
                                   .job = job,
                                   .attempt = 1,
                                   .from = STORE_JOB_RUNNING,
                                   .to = STORE_JOB_FAILED,
                                   .reason = "caf\xc3" };
    OK(store_job_move(f->store, f->epoch, &move, NULL, &e));
    struct store_job row;
    OK(store_job_get(f->store, f->m, job, &row, &e));
    assert_string_equal(row.reason, "caf\xef\xbf\xbd");
}

static void pages_of_jobs_meet_without_gap_or_overlap(void **state) {
    struct fixture *f = *state;
    int64_t ids[7];
    for (int i = 0; i < 7; i++)
        ids[i] = fixture_job(f, 1);
    fixture_move(f, ids[3], 0, STORE_JOB_QUEUED, STORE_JOB_CANCELLED);
    struct store_job_filter filter = { .limit = 3 };
    struct store_job *jobs;
    size_t n, seen = 0;
    do {
        OK(store_job_list(f->store, f->m, &filter, &jobs, &n, &e));
        for (size_t i = 0; i < n; i++)
            assert_int_equal(jobs[i].id, ids[6 - seen++]);
        assert_true(n == 0 || jobs[0].spec == NULL);
        filter.after.id = n ? jobs[n - 1].id : 0;
    } while (n == 3);
    assert_int_equal(seen, 7);
    OK(store_job_list(f->store, f->m, &(struct store_job_filter){ .limit = 10, .state = STORE_JOB_CANCELLED }, &jobs,
                      &n, &e));
    assert_int_equal(n, 1);
    assert_int_equal(jobs[0].id, ids[3]);
    OK(store_job_list(f->store, f->m, &(struct store_job_filter){ .limit = 10, .queue = "other" }, &jobs, &n, &e));
    assert_int_equal(n, 0);
    pg_number(f->conninfo,
              "WITH u AS (UPDATE job SET name = 'Gpt_50%' WHERE id = (SELECT max(id) FROM job) RETURNING 1) "
              "SELECT count(*) FROM u");
    const struct {
        const char *search;
        size_t n;
    } searches[] = { { "gPT_", 1 }, { "50%", 1 }, { "p_5", 0 }, { "%", 1 }, { "", 7 } };
    for (size_t i = 0; i < sizeof searches / sizeof *searches; i++) {
        OK(store_job_list(f->store, f->m, &(struct store_job_filter){ .limit = 10, .search = searches[i].search },
                          &jobs, &n, &e));
        assert_int_equal(n, searches[i].n);
    }
    int64_t counts[12];
    OK(store_job_counts(f->store, counts, &e));
    assert_int_equal(counts[STORE_JOB_QUEUED], 6);
    assert_int_equal(counts[STORE_JOB_CANCELLED], 1);
}

static void an_older_start_of_an_executor_does_not_replace_a_newer(void **state) {
    struct fixture *f = *state;
    struct store_device devices[] = {
        { .kind = "cpu", .model = "Xeon", .memory_bytes = 64, .uuid = "", .pci_bus_id = "", .reason = "", .links = "" },
        { "cuda", 0, "H200", 128, "GPU-1", "00:18.0", false, "", "X NV4" }
    };
    struct store_executor x = { .id = "one",
                                .incarnation = 5,
                                .hostname = "h",
                                .address = "a",
                                .version = "1",
                                .slots = 2,
                                .cores = 7,
                                .devices = devices,
                                .n_devices = 2 };
    OK(store_executor_attach(f->store, f->epoch, &x, 1, &e));
    x.incarnation = 4;
    FAILS(store_executor_attach(f->store, f->epoch, &x, 1, &e), ST_FAILED_PRECONDITION, "newer start");
    OK(store_executor_lost(f->store, f->epoch, "one", "its lease is over", &e));
    x.id = "two";
    x.n_devices = 0;
    OK(store_executor_attach(f->store, f->epoch, &x, 1, &e));
    const char *ids[] = { "two" };
    OK(store_executor_heartbeats(f->store, f->epoch, ids, (int64_t[]){ 4000000000000000 }, 1, &e));
    struct store_executor *list;
    size_t n;
    OK(store_executor_list(f->store, f->m, NULL, 10, &list, &n, &e));
    assert_int_equal(n, 2);
    assert_int_equal(list[0].state, STORE_EXECUTOR_LOST);
    assert_int_equal(list[0].n_devices, 2);
    assert_string_equal(list[0].devices[1].model, "H200");
    assert_string_equal(list[0].devices[1].uuid, "GPU-1");
    assert_string_equal(list[0].devices[1].pci_bus_id, "00:18.0");
    assert_string_equal(list[0].devices[1].links, "X NV4");
    assert_false(list[0].devices[1].quarantined);
    assert_int_equal(list[1].heartbeat_time_us, 4000000000000000);
    assert_int_equal(list[1].n_devices, 0);
    devices[1].quarantined = true;
    devices[1].reason = "Xid 79";
    OK(store_executor_devices(f->store, f->epoch, "one", 5, devices, 2, &e));
    devices[1].quarantined = false;
    devices[1].reason = "";
    FAILS(store_executor_devices(f->store, f->epoch, "one", 4, devices, 1, &e), ST_FAILED_PRECONDITION, "newer start");
    FAILS(store_executor_devices(f->store, f->epoch, "none", 4, devices, 1, &e), ST_NOT_FOUND, "has never attached");
    OK(store_executor_list(f->store, f->m, NULL, 1, &list, &n, &e));
    assert_int_equal(list[0].n_devices, 2);
    assert_true(list[0].devices[1].quarantined);
    assert_string_equal(list[0].devices[1].reason, "Xid 79");
    OK(store_executor_list(f->store, f->m, "one", 10, &list, &n, &e));
    assert_int_equal(n, 1);
    x.incarnation = 6;
    x.id = "one";
    OK(store_executor_attach(f->store, f->epoch, &x, 1, &e));
    int64_t counts[3];
    OK(store_executor_counts(f->store, counts, &e));
    assert_int_equal(counts[STORE_EXECUTOR_ATTACHED], 2);
}
static void executors_are_listed_by_id_and_lost_ones_most_recent_first(void **state) {
    struct fixture *f = *state;
    pg_run(f->conninfo, "INSERT INTO executor SELECT id, 1, 2, 'h', 'a', 'v', 8, 'r', now(), now(), lost::timestamptz "
                        "FROM (VALUES ('a', '2026-01-02'), ('b', '2026-01-04'), ('c', '2026-01-03')) x (id, lost)");
    pg_run(f->conninfo, "INSERT INTO device VALUES ('b', 0, 'cuda', 0, 'm', 1), ('b', 1, 'cuda', 1, 'm', 1)");
    pg_run(f->conninfo, "INSERT INTO executor VALUES ('d', 1, 1, 'h', 'a', 'v', 8, '', now(), now())");
    const char *const ids[] = { "d", "never", "b" };
    struct store_executor *list;
    size_t n;
    OK(store_executor_some(f->store, f->m, ids, 3, &list, &n, &e));
    assert_int_equal(n, 2);
    assert_string_equal(list[0].id, "b");
    assert_int_equal(list[0].n_devices, 2);
    assert_string_equal(list[1].id, "d");
    OK(store_executor_some(f->store, f->m, ids, 0, &list, &n, &e));
    assert_int_equal(n, 0);
    OK(store_executor_lost_list(f->store, f->m, ids, 0, 2, &list, &n, &e));
    assert_int_equal(n, 2);
    assert_string_equal(list[0].id, "b");
    assert_int_equal(list[0].n_devices, 2);
    assert_string_equal(list[1].id, "c");
    OK(store_executor_lost_list(f->store, f->m, ids, 3, 9, &list, &n, &e));
    assert_int_equal(n, 2);
    assert_string_equal(list[0].id, "c");
    assert_string_equal(list[1].id, "a");
}

/* The job was preempted before its start was reported, and it had completed all its steps. */
static void a_job_that_ends_as_it_leaves_its_host_has_begun(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_job(f, 1);
    fixture_attempt(f, job, STORE_JOB_QUEUED, 1);
    struct store_job_move move = { .request_id = "leave",
                                   .job = job,
                                   .attempt = 1,
                                   .from = STORE_JOB_STARTING,
                                   .to = STORE_JOB_PREEMPTING,
                                   .reason = "executor host is drained" };
    OK(store_job_move(f->store, f->epoch, &move, NULL, &e));
    move.request_id = "done";
    move.from = STORE_JOB_PREEMPTING;
    move.to = STORE_JOB_SUCCEEDED;
    OK(store_job_move(f->store, f->epoch, &move, NULL, &e));
    struct store_job row;
    OK(store_job_get(f->store, f->m, job, &row, &e));
    assert_true(row.start_time_us > 0);
}

/* ---- drained executors ---- */

static struct store_executor attach_one(struct fixture *f, int64_t incarnation) {
    struct store_executor x = {
        .id = "one", .incarnation = incarnation, .hostname = "h", .address = "a", .version = "1", .slots = 2
    };
    OK(store_executor_attach(f->store, f->epoch, &x, 1, &e));
    OK(store_executor_get(f->store, f->m, "one", &x, &e));
    return x;
}

static void a_drained_executor_is_so_over_its_starts_and_losses_until_it_is_undrained(void **state) {
    struct fixture *f = *state;
    struct store_executor x = attach_one(f, 1);
    assert_int_equal(x.drain_time_us, 0);
    OK(store_executor_drain(f->store, f->epoch, "one", "new disk", "ops@desk", false, &e));
    OK(store_executor_lost(f->store, f->epoch, "one", "its lease is over", &e));
    x = attach_one(f, 2);
    assert_true(x.drain_time_us > 0);
    assert_string_equal(x.drain_reason, "new disk");
    assert_string_equal(x.drain_requester, "ops@desk");
    assert_false(x.drain_now);
    OK(store_executor_undrain(f->store, f->epoch, "one", &e));
    OK(store_executor_undrain(f->store, f->epoch, "one", &e));
    x = attach_one(f, 3);
    assert_int_equal(x.drain_time_us, 0);
    assert_string_equal(x.drain_reason, "");
    assert_string_equal(x.drain_requester, "");
    assert_false(x.drain_now);
}

static void draining_again_changes_the_reason_but_not_the_time(void **state) {
    struct fixture *f = *state;
    attach_one(f, 1);
    OK(store_executor_drain(f->store, f->epoch, "one", "", "ops", false, &e));
    struct store_executor first, x;
    OK(store_executor_get(f->store, f->m, "one", &first, &e));
    assert_string_equal(first.drain_requester, "ops");
    OK(store_executor_drain(f->store, f->epoch, "one", "", "another", true, &e));
    OK(store_executor_get(f->store, f->m, "one", &x, &e));
    assert_string_equal(x.drain_requester, "ops");
    assert_true(x.drain_now);
    OK(store_executor_drain(f->store, f->epoch, "one", "new disk", "another", false, &e));
    OK(store_executor_get(f->store, f->m, "one", &x, &e));
    assert_string_equal(x.drain_reason, "new disk");
    assert_string_equal(x.drain_requester, "another");
    assert_true(x.drain_now);
    assert_int_equal(x.drain_time_us, first.drain_time_us);
}

static void an_executor_that_never_attached_is_neither_drained_nor_undrained_nor_read(void **state) {
    struct fixture *f = *state;
    struct store_executor x = attach_one(f, 1);
    FAILS(store_executor_drain(f->store, f->epoch, "two", "", "", false, &e), ST_NOT_FOUND, "executors/two does not");
    FAILS(store_executor_undrain(f->store, f->epoch, "two", &e), ST_NOT_FOUND, "executors/two does not exist");
    FAILS(store_executor_get(f->store, f->m, "two", &x, &e), ST_NOT_FOUND, "executors/two does not exist");
    FAILS(store_executor_drain(f->store, f->epoch + 1, "one", "", "", false, &e), ST_FAILED_PRECONDITION, "epoch");
    FAILS(store_executor_undrain(f->store, f->epoch + 1, "one", &e), ST_FAILED_PRECONDITION, "epoch");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_job_is_read_back_as_it_was_stored),
        TEST(the_same_request_creates_one_job),
        TEST(a_request_id_that_asks_for_something_else_is_refused_and_names_the_job),
        TEST(eight_callers_with_one_request_create_one_job),
        TEST(a_move_needs_its_state_and_its_attempt),
        TEST(a_repeated_move_changes_nothing_and_returns_its_event),
        TEST(of_two_moves_at_once_one_wins),
        TEST(events_are_numbered_without_gaps_by_four_writers),
        TEST(an_attempt_starts_only_as_the_next_one_of_an_idle_job),
        TEST(of_many_attempts_the_newest_are_listed_and_of_these_the_newest_have_placements),
        TEST(a_thousand_ranks_are_written_by_one_transaction_and_only_those_that_differ_are_touched),
        TEST(a_ranks_end_is_stored_once),
        TEST(a_new_leader_loads_live_jobs_with_their_placement),
        TEST(a_new_leader_loads_the_ranks_of_each_elastic_attempt),
        TEST(the_end_of_an_attempt_closes_placements_without_a_reported_end),
        TEST(executors_that_were_lost_long_ago_are_forgotten_but_for_those_that_still_matter),
        TEST(a_reason_that_is_not_utf8_is_stored_all_the_same),
        TEST(a_job_that_waits_says_why_until_it_moves),
        TEST(pages_of_jobs_meet_without_gap_or_overlap),
        TEST(an_older_start_of_an_executor_does_not_replace_a_newer),
        TEST(executors_are_listed_by_id_and_lost_ones_most_recent_first),
        TEST(a_job_that_ends_as_it_leaves_its_host_has_begun),
        TEST(a_drained_executor_is_so_over_its_starts_and_losses_until_it_is_undrained),
        TEST(draining_again_changes_the_reason_but_not_the_time),
        TEST(an_executor_that_never_attached_is_neither_drained_nor_undrained_nor_read),
    };
    return cmocka_run_group_tests_name("store jobs", tests, fixture_group_setup, fixture_group_teardown);
}
