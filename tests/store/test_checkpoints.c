/* Which checkpoints exist, from which one an attempt resumes, and which ones are kept: each condition of these SQL
 * statements. */
#include "tests/store/store_fixture.h"

#include "service/store/checkpoint.h"

#include <string.h>

static char *const LOSS[] = { "loss" };

/* The records of one rank, numbered automatically. */
struct reporter {
    struct fixture *f;
    struct store_report *r;
    int64_t job, next[4];
    int attempt;
};

static struct reporter teller_of(struct fixture *f, int64_t job) {
    struct reporter t = { .f = f, .job = job, .attempt = 1, .next = { 1, 1, 1, 1 } };
    t.r = store_report_new(f->store, f->epoch);
    return t;
}

static struct store_batch_result report(struct reporter *t, int rank, const struct store_record *record) {
    struct store_batch batch = { t->job, t->attempt, rank, t->next[rank]++, record, 1, 0, "host" };
    struct store_batch_result result;
    OK(store_report_write(t->r, &batch, 1, &result, &e));
    assert_false(result.fenced || result.gap);
    return result;
}

/* Returns how many checkpoints became COMMITTED. */
static size_t report_shard(struct reporter *t, int rank, int64_t step, int world_size) {
    struct store_record record = record_shard(step, rank, world_size, false);
    return report(t, rank, &record).n_committed;
}

static void next_attempt(struct reporter *t, int world_size) {
    t->attempt = fixture_next_attempt(t->f, t->job, t->attempt, world_size);
    for (int r = 0; r < 4; r++)
        t->next[r] = 1;
}

static int64_t from_step(struct reporter *t) {
    struct store_attempt *attempts;
    size_t n;
    OK(store_attempt_list(t->f->store, t->f->m, t->job, &attempts, &n, &e));
    return attempts[t->attempt - 1].from_step;
}

static void a_shard_counts_once_and_for_its_own_checkpoint_alone(void **state) {
    struct fixture *f = *state;
    struct reporter t = teller_of(f, fixture_running(f, 2));
    assert_int_equal(report_shard(&t, 0, 40, 2), 0);
    assert_int_equal(report_shard(&t, 0, 40, 2), 0); /* reported again under a new number */
    assert_int_equal(report_shard(&t, 1, 41, 2), 0); /* of another step */
    assert_int_equal(report_shard(&t, 1, 40, 3), 0); /* of another world */
    next_attempt(&t, 2);
    assert_int_equal(report_shard(&t, 1, 40, 2), 0); /* of another attempt */
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM checkpoint"), 3);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM checkpoint WHERE shards = 1 AND state = 1"), 3);
    assert_int_equal(report_shard(&t, 0, 40, 2), 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT attempt FROM checkpoint WHERE state = 2"), 2);
    store_report_free(t.r);
}

static void a_shard_that_comes_after_its_checkpoint_was_given_up_revives_nothing(void **state) {
    struct fixture *f = *state;
    struct reporter t = teller_of(f, fixture_running(f, 2));
    assert_int_equal(report_shard(&t, 0, 40, 2), 0);
    assert_string_equal(pg_try(f->conninfo, "UPDATE checkpoint SET state = 4, delete_time = now()"), "00000");
    assert_int_equal(report_shard(&t, 1, 40, 2), 0);
    assert_int_equal(pg_number(f->conninfo, "SELECT state FROM checkpoint"), 4);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM shard"), 1);
    store_report_free(t.r);
}

/* Rank 0 reports the loss and the weights; the other shards have none. */
static void a_shard_cannot_undo_what_another_shard_set(void **state) {
    struct fixture *f = *state;
    struct reporter t = teller_of(f, fixture_running(f, 2));
    struct store_record first = record_shard(40, 0, 2, true), last = record_shard(40, 1, 2, false);
    first.shard.has_validation_loss = true;
    first.shard.validation_loss = 1.5;
    report(&t, 0, &first);
    assert_int_equal(report(&t, 1, &last).n_committed, 1);
    struct store_checkpoint got;
    OK(store_checkpoint_newest(f->store, f->m, t.job, &got, &e));
    assert_true(got.final && got.has_validation_loss && got.validation_loss == 1.5);
    assert_string_equal(got.weights_sha256, first.shard.weights_sha256);
    store_report_free(t.r);
}

static void a_shard_that_cannot_be_is_dropped(void **state) {
    struct fixture *f = *state;
    struct reporter t = teller_of(f, fixture_running(f, 2));
    struct store_record bad[10];
    for (int i = 0; i < 10; i++)
        bad[i] = record_shard(40, 0, 1, false);
    bad[0].shard.rank = 1;
    bad[1].shard.world_size = 0;
    bad[2].shard.world_size = 1025;
    bad[3].shard.step = -1;
    bad[4].shard.bytes = -1;
    bad[5].shard.bytes = (INT64_C(1) << 50) + 1;
    bad[6].shard.sha256 = "0123456789abcdef";
    bad[7].shard.sha256 = "0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef";
    bad[8].shard.weights_sha256 = "f";
    bad[9] = record_shard(40, 1, 1, false); /* by rank 1, which a world of one has not */
    for (int i = 0; i < 10; i++) {
        assert_int_equal(report(&t, i == 9 ? 1 : 0, &bad[i]).n_committed, 0);
        assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM checkpoint"), 0);
    }
    struct store_record good = record_shard(40, 0, 1, false);
    good.shard.bytes = INT64_C(1) << 50;
    assert_int_equal(report(&t, 0, &good).n_committed, 1);
    store_report_free(t.r);
}

static void an_attempt_starts_from_the_highest_step_of_equals_the_latest_attempts(void **state) {
    struct fixture *f = *state;
    struct reporter t = teller_of(f, fixture_running(f, 1));
    assert_int_equal(report_shard(&t, 0, 8, 1), 1);
    next_attempt(&t, 1);
    assert_int_equal(report_shard(&t, 0, 6, 1), 1);
    struct store_checkpoint got;
    OK(store_checkpoint_newest(f->store, f->m, t.job, &got, &e));
    assert_int_equal(got.step, 8); /* though 6 is of a later attempt */
    next_attempt(&t, 1);
    assert_int_equal(from_step(&t), 8);
    assert_int_equal(report_shard(&t, 0, 8, 1), 1);
    OK(store_checkpoint_newest(f->store, f->m, t.job, &got, &e));
    assert_true(got.step == 8 && got.attempt == 3);
    OK(store_checkpoint_at(f->store, f->m, t.job, 8, &got, &e));
    assert_int_equal(got.attempt, 3);
    assert_string_equal(pg_try(f->conninfo, "INSERT INTO checkpoint (job, attempt, step, world_size, directory) "
                                            "SELECT job, 3, 9, 1, '' FROM checkpoint LIMIT 1"),
                        "00000"); /* still written */
    OK(store_checkpoint_newest(f->store, f->m, t.job, &got, &e));
    assert_int_equal(got.step, 8);
    FAILS(store_checkpoint_at(f->store, f->m, t.job, 9, &got, &e), ST_NOT_FOUND, "of step 9");
    next_attempt(&t, 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT c.attempt FROM attempt a JOIN checkpoint c ON c.id = "
                                            "a.from_checkpoint WHERE a.number = 4"),
                     3);
    store_report_free(t.r);
}

static int64_t job_of(struct fixture *f, int keep_last, int keep_best, struct store_origin origin) {
    struct store_job_new job = { .request_id = fixture_request(f),
                                 .name = "test",
                                 .queue = "default",
                                 .world_size = 1,
                                 .accelerator = "cpu",
                                 .max_restarts = 3,
                                 .steps = 100,
                                 .keep_last = keep_last,
                                 .keep_best = keep_best,
                                 .spec = "s",
                                 .spec_bytes = 1,
                                 .origin = origin };
    int64_t id;
    bool existed;
    OK(store_job_create(f->store, f->epoch, &job, &id, &existed, NULL, &e));
    return id;
}

static void run_first(struct fixture *f, int64_t job) {
    fixture_attempt(f, job, STORE_JOB_QUEUED, 1);
    fixture_move(f, job, 1, STORE_JOB_STARTING, STORE_JOB_RUNNING);
}

static void a_forks_own_checkpoint_comes_before_the_one_that_it_began_with(void **state) {
    struct fixture *f = *state;
    struct reporter parent = teller_of(f, fixture_running(f, 1));
    assert_int_equal(report_shard(&parent, 0, 50, 1), 1);
    struct store_checkpoint got;
    OK(store_checkpoint_newest(f->store, f->m, parent.job, &got, &e));
    struct reporter fork = teller_of(f, job_of(f, 1, 0, (struct store_origin){ parent.job, got.id, false }));
    run_first(f, fork.job);
    assert_int_equal(from_step(&fork), 50);
    assert_int_equal(report_shard(&fork, 0, 7, 1), 1);
    next_attempt(&fork, 1);
    assert_int_equal(from_step(&fork), 7);
    store_report_free(fork.r);
    store_report_free(parent.r);
}

/* The steps of the checkpoints that are being deleted, as text. */
static const char *garbage_of(struct fixture *f, int64_t job) {
    static char steps[40];
    struct store_checkpoint *gone;
    size_t n;
    OK(store_checkpoint_mark_garbage(f->store, f->m, f->epoch, job, &gone, &n, &e));
    steps[0] = '\0';
    for (size_t i = 0; i < n; i++)
        snprintf(steps + strlen(steps), sizeof steps - strlen(steps), "%lld ", (long long)gone[i].step);
    return steps;
}

static void commit(struct reporter *t, int64_t step, double loss, bool final) {
    struct store_record record = record_shard(step, 0, 1, final);
    record.shard.has_validation_loss = loss >= 0;
    record.shard.validation_loss = loss;
    assert_int_equal(report(t, 0, &record).n_committed, 1);
}

static void the_newest_is_kept_where_none_is_asked_for(void **state) {
    struct fixture *f = *state;
    struct reporter t = teller_of(f, job_of(f, 0, 0, (struct store_origin){ 0 }));
    run_first(f, t.job);
    commit(&t, 1, 1, false);
    commit(&t, 2, 2, false);
    assert_string_equal(garbage_of(f, t.job), "1 ");
    store_report_free(t.r);
}

static void the_best_has_a_loss_and_of_equals_is_the_latest_and_the_final_one_stays(void **state) {
    struct fixture *f = *state;
    struct reporter t = teller_of(f, job_of(f, 1, 1, (struct store_origin){ 0 }));
    run_first(f, t.job);
    commit(&t, 1, -1, false); /* it was not evaluated */
    commit(&t, 2, 3, true);
    commit(&t, 3, 2, false);
    commit(&t, 4, 2, false);
    commit(&t, 5, 9, false);
    assert_string_equal(garbage_of(f, t.job), "1 3 ");
    store_report_free(t.r);
    struct reporter none = teller_of(f, job_of(f, 1, 1, (struct store_origin){ 0 }));
    run_first(f, none.job);
    commit(&none, 1, -1, false);
    commit(&none, 2, -1, false);
    commit(&none, 3, -1, false);
    assert_string_equal(garbage_of(f, none.job), "1 2 ");
    store_report_free(none.r);
    struct reporter few = teller_of(f, job_of(f, 1, 3, (struct store_origin){ 0 }));
    run_first(f, few.job);
    commit(&few, 1, 3, false);
    commit(&few, 2, -1, false);
    commit(&few, 3, -1, false);
    commit(&few, 4, 2, false);
    assert_string_equal(garbage_of(f, few.job),
                        "2 3 "); /* prefers to keep fewer of the best over keeping one without a loss */
    store_report_free(few.r);
}

static void the_last_ones_are_those_of_the_highest_steps(void **state) {
    struct fixture *f = *state;
    struct reporter t = teller_of(f, job_of(f, 1, 0, (struct store_origin){ 0 }));
    run_first(f, t.job);
    commit(&t, 8, 1, false);
    next_attempt(&t, 1);
    commit(&t, 6, 1, false);
    assert_string_equal(garbage_of(f, t.job), "6 ");
    store_report_free(t.r);
}

/* The answer to the first report may have been lost. */
static void a_repeated_report_returns_its_own_checkpoint(void **state) {
    struct fixture *f = *state;
    struct reporter t = teller_of(f, fixture_running(f, 2));
    report_shard(&t, 0, 40, 2);
    assert_int_equal(report_shard(&t, 1, 40, 2), 1);
    report_shard(&t, 0, 41, 2);
    t.next[0]--;
    assert_int_equal(report_shard(&t, 0, 41, 2), 0);
    t.next[1]--;
    assert_int_equal(report_shard(&t, 1, 40, 2), 1);
    store_report_free(t.r);
}

/* One checkpoint of an older attempt, one of this attempt; then the job ends. */
static void a_checkpoint_being_written_is_kept_while_its_attempt_may_run(void **state) {
    struct fixture *f = *state;
    struct reporter t = teller_of(f, fixture_running(f, 2));
    report_shard(&t, 0, 10, 2);
    assert_string_equal(garbage_of(f, t.job), "");
    next_attempt(&t, 2);
    report_shard(&t, 0, 20, 2);
    assert_string_equal(garbage_of(f, t.job), "10 ");
    OK(store_attempt_end(f->store, f->epoch, t.job, 2, 0, "over", &e));
    fixture_move(f, t.job, 2, STORE_JOB_RUNNING, STORE_JOB_FAILED);
    assert_string_equal(garbage_of(f, t.job), "10 20 ");
    store_report_free(t.r);
}

static void retention_of_one_job_touches_no_other_and_deletes_once(void **state) {
    struct fixture *f = *state;
    struct reporter a = teller_of(f, job_of(f, 1, 0, (struct store_origin){ 0 })),
                    b = teller_of(f, job_of(f, 1, 0, (struct store_origin){ 0 }));
    struct reporter *both[] = { &a, &b };
    for (int i = 0; i < 2; i++) {
        run_first(f, both[i]->job);
        for (int step = 1; step <= 3; step++)
            commit(both[i], step, 1, false);
    }
    assert_string_equal(garbage_of(f, a.job), "1 2 ");
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM checkpoint WHERE state = 2"), 4);
    struct store_checkpoint *gone, got;
    size_t n;
    OK(store_checkpoint_deleting(f->store, f->m, a.job, &gone, &n, &e));
    assert_int_equal(n, 2);
    OK(store_checkpoint_newest(f->store, f->m, a.job, &got, &e));
    OK(store_checkpoint_deleted(f->store, f->epoch, got.id, &e)); /* it was not marked */
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM checkpoint WHERE state = 2"), 4);
    FAILS(store_checkpoint_get(f->store, f->m, b.job, got.id, &got, &e), ST_NOT_FOUND, "does not exist");
    store_report_free(a.r);
    store_report_free(b.r);
}

/* The fork's own checkpoint is incomplete; then the fork has ended. */
static void the_origin_of_a_fork_is_kept_until_the_fork_has_a_checkpoint_or_ends(void **state) {
    struct fixture *f = *state;
    struct reporter parent = teller_of(f, job_of(f, 1, 0, (struct store_origin){ 0 }));
    run_first(f, parent.job);
    commit(&parent, 1, 1, false);
    struct store_checkpoint got;
    OK(store_checkpoint_newest(f->store, f->m, parent.job, &got, &e));
    const int64_t fork = job_of(f, 1, 0, (struct store_origin){ parent.job, got.id, false });
    commit(&parent, 2, 1, false);
    run_first(f, fork);
    assert_string_equal(pg_try(f->conninfo, "INSERT INTO checkpoint (job, attempt, step, world_size, directory) "
                                            "SELECT max(id), 1, 9, 1, '' FROM job"),
                        "00000");
    assert_string_equal(garbage_of(f, parent.job), "");
    OK(store_attempt_end(f->store, f->epoch, fork, 1, 0, "over", &e));
    fixture_move(f, fork, 1, STORE_JOB_RUNNING, STORE_JOB_FAILED);
    assert_string_equal(garbage_of(f, parent.job), "1 ");
    store_report_free(parent.r);
}

/* --- changes by the end of an attempt and by a rank's report --- */

/* For as long as it is paused. Checkpoints that it writes while it pauses do not hold its last state. */
static void a_paused_job_keeps_the_checkpoint_of_its_pause_and_resumes_from_it(void **state) {
    struct fixture *f = *state;
    struct reporter t = teller_of(f, job_of(f, 1, 0, (struct store_origin){ 0 }));
    run_first(f, t.job);
    commit(&t, 5, -1, false);
    fixture_move(f, t.job, 1, STORE_JOB_RUNNING, STORE_JOB_PAUSING);
    assert_int_equal(pg_number(f->conninfo, "SELECT state FROM attempt"), STORE_ATTEMPT_ENDING);
    commit(&t, 7, -1, false);
    OK(store_attempt_end(f->store, f->epoch, t.job, 1, 0, "paused", &e));
    fixture_move(f, t.job, 1, STORE_JOB_PAUSING, STORE_JOB_PAUSED);
    assert_string_equal(garbage_of(f, t.job), "5 ");
    struct store_checkpoint newest;
    OK(store_checkpoint_newest(f->store, f->m, t.job, &newest, &e));
    assert_int_equal(newest.step, 7);
    FAILS(store_checkpoint_delete(f->store, f->epoch, t.job, newest.id, &e), ST_FAILED_PRECONDITION,
          "is the one that its job would resume from");
    struct store_job row;
    OK(store_job_get(f->store, f->m, t.job, &row, &e));
    assert_string_equal(row.weights_sha256, "");
    assert_int_equal(row.end_time_us, 0);
    fixture_move(f, t.job, 1, STORE_JOB_PAUSED, STORE_JOB_QUEUED);
    t.attempt = fixture_attempt(f, t.job, STORE_JOB_QUEUED, 1);
    assert_int_equal(from_step(&t), 7);
    store_report_free(t.r);
}

static void an_end_is_of_one_attempt_and_comes_once(void **state) {
    struct fixture *f = *state;
    const int64_t job = fixture_running(f, 2);
    OK(store_attempt_end(f->store, f->epoch, job, 1, 1, "first", &e));
    OK(store_attempt_end(f->store, f->epoch, job, 1, 7, "again", &e));
    assert_int_equal(pg_number(f->conninfo, "SELECT restarts FROM job"), 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM attempt WHERE reason = 'first'"), 1);
    fixture_move(f, job, 1, STORE_JOB_RUNNING, STORE_JOB_RESTARTING);
    assert_int_equal(fixture_attempt(f, job, STORE_JOB_RESTARTING, 2), 2);
    struct store_rank_end end = { .rank = 1, .cause = 1, .message = "x", .last_sequence = 9 };
    FAILS(store_attempt_end(f->store, f->epoch, job, 1, 3, "late", &e), ST_FAILED_PRECONDITION, "fenced");
    assert_int_equal(pg_number(f->conninfo, "SELECT state FROM attempt WHERE number = 2"), 1);
    OK(store_rank_ended(f->store, f->epoch, "host", job, 2, &end, 1, &e));
    /* The two ranks of the first attempt ended with it, although their ends were not reported. */
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM placement WHERE end_time IS NOT NULL"), 2 + 1);
    assert_int_equal(
        pg_number(f->conninfo, "SELECT count(*) FROM placement WHERE attempt = 2 AND rank = 1 AND last_sequence = 9"),
        1);
}

static void numbers_are_of_one_attempt_and_rank(void **state) {
    struct fixture *f = *state;
    struct reporter t = teller_of(f, fixture_running(f, 2));
    double value = 1;
    struct store_record record = record_metrics(1, 1, LOSS, &value);
    for (int i = 0; i < 3; i++)
        report(&t, 0, &record);
    report(&t, 1, &record);
    next_attempt(&t, 2);
    report(&t, 0, &record);
    static const int64_t want[3][2] = { { 0, 0 }, { 3, 1 }, { 1, 0 } };
    for (int attempt = 1; attempt <= 2; attempt++)
        for (int rank = 0; rank < 2; rank++) {
            int64_t sequence;
            OK(store_rank_sequence(f->store, t.job, attempt, rank, &sequence, &e));
            assert_int_equal(sequence, want[attempt][rank]);
        }
    store_report_free(t.r);
}

/* A step that is reported late is below the step of the job. */
static void a_jobs_step_does_not_go_back(void **state) {
    struct fixture *f = *state;
    struct reporter t = teller_of(f, fixture_running(f, 1));
    double value = 1;
    struct store_record late = record_metrics(3, 1, LOSS, &value), record = record_metrics(9, 1, LOSS, &value);
    report(&t, 0, &record);
    report(&t, 0, &late);
    assert_int_equal(pg_number(f->conninfo, "SELECT step FROM job"), 9);
    store_report_free(t.r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_shard_counts_once_and_for_its_own_checkpoint_alone),
        TEST(a_shard_that_comes_after_its_checkpoint_was_given_up_revives_nothing),
        TEST(a_shard_cannot_undo_what_another_shard_set),
        TEST(a_shard_that_cannot_be_is_dropped),
        TEST(an_attempt_starts_from_the_highest_step_of_equals_the_latest_attempts),
        TEST(a_forks_own_checkpoint_comes_before_the_one_that_it_began_with),
        TEST(the_newest_is_kept_where_none_is_asked_for),
        TEST(the_best_has_a_loss_and_of_equals_is_the_latest_and_the_final_one_stays),
        TEST(the_last_ones_are_those_of_the_highest_steps),
        TEST(a_repeated_report_returns_its_own_checkpoint),
        TEST(a_checkpoint_being_written_is_kept_while_its_attempt_may_run),
        TEST(retention_of_one_job_touches_no_other_and_deletes_once),
        TEST(the_origin_of_a_fork_is_kept_until_the_fork_has_a_checkpoint_or_ends),
        TEST(a_paused_job_keeps_the_checkpoint_of_its_pause_and_resumes_from_it),
        TEST(an_end_is_of_one_attempt_and_comes_once),
        TEST(numbers_are_of_one_attempt_and_rank),
        TEST(a_jobs_step_does_not_go_back),
    };
    return cmocka_run_group_tests_name("checkpoints", tests, fixture_group_setup, fixture_group_teardown);
}
