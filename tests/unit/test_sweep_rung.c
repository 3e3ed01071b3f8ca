/* Asynchronous successive halving (service/scheduler/sweep_rung.h): a history that was computed by hand, and properties
 * of random ones. TRAINYARD_SEED=n replays those. */
#include "service/scheduler/sweep_rung.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { MANY = 400 };

static void the_rungs_are_min_steps_times_powers_of_eta_below_max_steps(void **state) {
    (void)state;
    int64_t steps[SWEEP_MAX_RUNGS];
    assert_int_equal(sweep_rung_steps(20, 2000, 3, steps), 5);
    assert_int_equal(steps[0], 20);
    assert_int_equal(steps[1], 60);
    assert_int_equal(steps[2], 180);
    assert_int_equal(steps[3], 540);
    assert_int_equal(steps[4], 1620);
    assert_int_equal(sweep_rung_steps(20, 1620, 3, steps), 4); /* max_steps is no rung */
    assert_int_equal(sweep_rung_steps(1, 2, 2, steps), 1);
    assert_int_equal(sweep_rung_steps(5, 5, 2, steps), 0);
    assert_int_equal(sweep_rung_steps(1, INT64_MAX, 2, steps), 63); /* 2^62 is the last step that fits */
    assert_int_equal(sweep_rung_steps(INT64_MAX - 1, INT64_MAX, 2, steps), 1);
}

/* eta 3: one of three continues. By hand: result, rank of n, and whether rank <= max(1, n / 3). */
static void a_history_is_judged_as_computed_by_hand(void **state) {
    (void)state;
    static const struct {
        double score;
        int rank;
        bool continues;
    } history[] = {
        { 5, 1, true },    /* 1 of 1, keep 1 */
        { 6, 2, false },   /* 2 of 2, keep 1 */
        { 4, 1, true },    /* 1 of 3, keep 1 */
        { 5, 3, false },   /* 3 of 4, keep 1: an equal result was first */
        { 4.5, 2, false }, /* 2 of 5, keep 1 */
        { 4.2, 2, true },  /* 2 of 6, keep 2 */
        { 7, 7, false },   /* 7 of 7, keep 2 */
        { 4.1, 2, true },  /* 2 of 8, keep 2 */
        { 4.15, 3, true }, /* 3 of 9, keep 3 */
        { INFINITY, 10, false }, { INFINITY, 11, false },
    };
    double scores[sizeof history / sizeof *history];
    for (size_t i = 0; i < sizeof history / sizeof *history; i++) {
        const struct sweep_rung_decision v = sweep_rung_judge(scores, i, history[i].score, 200, 3);
        assert_int_equal(v.rank, history[i].rank);
        assert_int_equal(v.n, i + 1);
        assert_int_equal(v.continues, history[i].continues);
        assert_int_equal(v.reason[0] == '\0', v.continues);
        scores[i] = history[i].score;
    }
}

static void the_reason_says_the_rank_and_the_share(void **state) {
    (void)state;
    const double scores[] = { 1, 2, 3, 4, 6, 7, 8, 9 };
    assert_string_equal(sweep_rung_judge(scores, 8, 5, 200, 3).reason,
                        "stopped at step 200: rank 5 of 9 at this rung, the best third continues");
    assert_string_equal(sweep_rung_judge(scores, 8, 9, 1, 2).reason,
                        "stopped at step 1: rank 9 of 9 at this rung, the best half continues");
    assert_string_equal(sweep_rung_judge(scores, 8, 9, 1, 16).reason,
                        "stopped at step 1: rank 9 of 9 at this rung, the best 1/16 continues");
}

static void a_score_orders_metrics_by_the_goal_and_not_a_number_last(void **state) {
    (void)state;
    assert_true(sweep_score(1, false) < sweep_score(2, false));
    assert_true(sweep_score(2, true) < sweep_score(1, true));
    for (int maximize = 0; maximize < 2; maximize++) {
        assert_true(sweep_score((double)NAN, maximize) == INFINITY);
        assert_true(sweep_score(maximize ? -1e308 : 1e308, maximize) < sweep_score((double)NAN, maximize));
    }
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The rank by sorting; scores of a coarse grid have many ties. */
static int rank_by_sorting(const double *scores, size_t n, double score) {
    double sorted[MANY + 1];
    int rank = 0;
    memcpy(sorted, scores, n * sizeof *sorted);
    sorted[n] = score;
    qsort(sorted, n + 1, sizeof *sorted, by_value);
    while (rank <= (int)n && sorted[rank] <= score)
        rank++;
    return rank;
}

static void check_history(int eta) {
    double scores[MANY], best = INFINITY;
    for (size_t n = 0; n < MANY; n++) {
        const double score = rand() % 8 ? (double)(rand() % 1000) : INFINITY;
        const struct sweep_rung_decision v = sweep_rung_judge(scores, n, score, 1, eta);
        assert_int_equal(v.rank, rank_by_sorting(scores, n, score));
        assert_int_equal(v.continues, v.rank == 1 || v.rank * eta <= v.n);
        assert_true(v.continues || (n > 0 && score >= best)); /* the first one and a new best one continue */
        /* A better result is never judged worse, and the order of earlier results does not matter. */
        assert_true(sweep_rung_judge(scores, n, score - 1, 1, eta).continues || !v.continues);
        if (n > 1) {
            const double swapped = scores[0];
            scores[0] = scores[n - 1];
            scores[n - 1] = swapped;
            assert_int_equal(sweep_rung_judge(scores, n, score, 1, eta).rank, v.rank);
        }
        scores[n] = score;
        best = score < best ? score : best;
    }
}

static void random_histories_follow_the_rule(void **state) {
    (void)state;
    const char *given = getenv("TRAINYARD_SEED");
    const unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    srand(seed);
    for (int eta = 2; eta <= 16; eta++)
        check_history(eta);
}

/* Of results in random order, the n-th continues with probability floor(n / eta) / n: about MANY / eta in all. */
static void about_one_of_eta_continues(void **state) {
    (void)state;
    srand(1);
    for (int eta = 2; eta <= 5; eta++) {
        int continued = 0;
        for (int round = 0; round < 50; round++) {
            double scores[MANY];
            for (size_t n = 0; n < MANY; n++) {
                scores[n] = rand();
                continued += sweep_rung_judge(scores, n, scores[n], 1, eta).continues;
            }
        }
        const double expected = 50.0 * MANY / eta;
        assert_true(continued > 0.93 * expected && continued < 1.07 * expected);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rungs_are_min_steps_times_powers_of_eta_below_max_steps),
        cmocka_unit_test(a_history_is_judged_as_computed_by_hand),
        cmocka_unit_test(the_reason_says_the_rank_and_the_share),
        cmocka_unit_test(a_score_orders_metrics_by_the_goal_and_not_a_number_last),
        cmocka_unit_test(random_histories_follow_the_rule),
        cmocka_unit_test(about_one_of_eta_continues),
    };
    return cmocka_run_group_tests_name("sweep rungs", tests, NULL, NULL);
}
