/* service/scheduler/silence: when the ranks of a program hang, and which rank is named. */
#include "tests/unit/scheduler_bench.h"

enum { RANKS = 3 };

/* A running gang of three: rank r on its own host. */
static void gang(struct bench *b) {
    static const char *const hosts[RANKS] = { "a", "b", "c" };
    for (int r = 0; r < RANKS; r++)
        attach(b, hosts[r], 1, 1, NULL);
    submit(b, 1, 0, RANKS, 3);
    for (int r = 0; r < RANKS; r++)
        tell(b, (struct scheduler_event){ .kind = EV_RANK_JOINED, .job = 1, .attempt = 1, .rank = r });
    assert_int_equal(find(b, ACT_JOB_STATE)->to, JOB_STATE_RUNNING);
}

static void silent(struct bench *b, int rank, int64_t ms, int64_t step) {
    tell(b, (struct scheduler_event){
                .kind = EV_RANK_SILENT, .job = 1, .attempt = 1, .rank = rank, .silent_ms = ms, .step = step });
}

static void assert_hangs(const struct bench *b, const char *why) {
    int stops = 0;
    for (size_t i = 0; i < b->out.n; i++)
        if (b->out.items[i].kind == ACT_SEND_STOP) {
            assert_true(b->out.items[i].collect_stacks);
            assert_string_equal(b->out.items[i].text, why);
            stops++;
        }
    assert_int_equal(stops, RANKS);
    assert_int_equal(find(b, ACT_JOB_STATE)->to, JOB_STATE_RESTARTING);
    assert_string_equal(find(b, ACT_JOB_STATE)->text, why);
}

static void a_gang_hangs_when_all_its_ranks_are_silent_and_the_lowest_step_is_behind(void **state) {
    struct bench *b = *state;
    gang(b);
    silent(b, 0, 60000, 7);
    silent(b, 1, 61000, 5);
    assert_int_equal(b->out.n, 0);
    silent(b, 2, 90000, -1);
    assert_hangs(b, "rank 1: is behind at step 5, rank 0 is at step 7: no rank has reported anything for 60 s "
                    "(program.progress.timeout)");
    silent(b, 0, 65000, 7);
    assert_int_equal(b->out.n, 0); /* it ends already */
}

static void without_different_steps_the_rank_that_was_silent_first_is_named(void **state) {
    struct bench *b = *state;
    gang(b);
    silent(b, 0, 60000, 7);
    silent(b, 2, 90000, 7);
    silent(b, 1, 61000, -1);
    assert_hangs(b, "rank 2: was silent first, for 90 s: no rank has reported anything for 60 s "
                    "(program.progress.timeout)");
}

static void a_rank_that_reports_again_or_does_not_repeat_its_silence_is_not_silent(void **state) {
    struct bench *b = *state;
    gang(b);
    silent(b, 0, 60000, 7);
    silent(b, 1, 60000, 7);
    silent(b, 0, 0, 8);
    silent(b, 2, 60000, 7);
    assert_int_equal(b->out.n, 0);
    b->now += SCHEDULER_SILENCE_MS;
    silent(b, 0, 60000, 8);
    assert_int_equal(b->out.n, 0);
    silent(b, 1, 72000, 7);
    assert_int_equal(b->out.n, 0);
    silent(b, 2, 72000, 7);
    assert_non_null(find(b, ACT_SEND_STOP));
}

static void ranks_that_have_ended_or_follow_another_one_are_not_waited_for(void **state) {
    struct bench *b = *state;
    gang(b);
    tell(b, (struct scheduler_event){
                .kind = EV_RANK_SILENT, .job = 1, .attempt = 1, .rank = 1, .step = -1, .follows = true });
    end_part(b, "c", 1, 1, 2, RANK_END_FINISHED, "");
    assert_null(find(b, ACT_SEND_STOP));
    silent(b, 0, 60000, 7);
    assert_non_null(find(b, ACT_SEND_STOP));
}

static void a_gang_that_starts_or_ends_does_not_hang_and_a_wrong_report_harms_nothing(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 3);
    silent(b, 0, 60000, 7);
    assert_int_equal(b->out.n, 0); /* it has not joined */
    run_one(b, 1, 1);
    silent(b, 1, 60000, 7);
    silent(b, -1, 60000, 7);
    silent(b, 0, -5, -7);
    assert_int_equal(b->out.n, 0);
    tell(b, (struct scheduler_event){ .kind = EV_JOB_CANCEL, .job = 1 });
    silent(b, 0, 60000, 7);
    assert_null(find(b, ACT_SEND_STOP));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_BENCH(a_gang_hangs_when_all_its_ranks_are_silent_and_the_lowest_step_is_behind),
        ON_BENCH(without_different_steps_the_rank_that_was_silent_first_is_named),
        ON_BENCH(a_rank_that_reports_again_or_does_not_repeat_its_silence_is_not_silent),
        ON_BENCH(ranks_that_have_ended_or_follow_another_one_are_not_waited_for),
        ON_BENCH(a_gang_that_starts_or_ends_does_not_hang_and_a_wrong_report_harms_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
