/* A rank is killed, stopped or silent: which ranks notice it, how soon, and which rank they name in their message. */
#include "tests/engine/gang_calls.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Kills one rank of a gang during its calls: every survivor names that rank, not a rank that left because of it.
 * Returns the time until the last survivor noticed. */
static int64_t kill_one(gang_starter *start, int P, int victim, int64_t progress, enum call call) {
    struct gang *g = start(P, PATIENCE_MS, call_until_failure, &call);
    for (int r = 0; r < P; r++)
        gang_until(g, r, 1); /* all are connected */
    gang_until(g, victim, progress);
    int64_t killed = clock_mono_ms(), latest = 0;
    kill(g->pids[victim], SIGKILL);
    assert_int_equal(gang_await(g, victim), 128 + SIGKILL);
    char text[40];
    snprintf(text, sizeof text, "rank %d went away: ", victim);
    for (int r = 0; r < P; r++) {
        if (r == victim)
            continue;
        assert_int_equal(gang_await(g, r), 0);
        if (g->status[r] != ST_UNAVAILABLE)
            fail_msg("rank %d of %d ended with %s: %s", r, P, status_name(g->status[r]), g->error[r].msg);
        if (g->failed_at_ms[r] - killed > latest)
            latest = g->failed_at_ms[r] - killed;
        if (strncmp(g->error[r].msg, text, strlen(text)) != 0)
            fail_msg("of %d ranks %d was killed, in call %d; rank %d says: %s", P, victim, (int)call, r,
                     g->error[r].msg);
    }
    gang_free(g);
    return latest;
}

static void assert_told(gang_starter *start, int P, int victim, enum call call) {
    int64_t ms = kill_one(start, P, victim, 5 + victim, call);
    if (ms >= TOLD_MS)
        fail_msg("of %d ranks one knew of rank %d's death only after %lld ms, in call %d", P, victim, (long long)ms,
                 (int)call);
}

static void a_killed_rank_is_known_to_all_others_long_before_the_deadline(void **state) {
    (void)state;
    for (int P = 2; P <= GANG_RANKS; P *= 2)
        for (int victim = 0; victim < P; victim++)
            assert_told(P == 4 ? gang_start_apart : gang_start, P, victim, CALL_REDUCE);
}

static void a_killed_rank_is_known_in_every_call(void **state) {
    (void)state;
    for (enum call call = CALL_SCATTER; call < CALLS; call++)
        for (int apart = 0; apart < 2; apart++)
            assert_told(apart ? gang_start_apart : gang_start, 4, 1 + (int)call % 3, call);
}

static uint32_t draw(uint32_t *seed, uint32_t below) {
    *seed = *seed * 1664525 + 1013904223;
    return (*seed >> 8) % below;
}

/* TRAINYARD_KILLS sets the number of kills, TRAINYARD_SEED repeats those of another run. */
static void whenever_a_rank_is_killed_every_survivor_names_it(void **state) {
    (void)state;
    const char *many = getenv("TRAINYARD_KILLS"), *again = getenv("TRAINYARD_SEED");
    const int kills = many ? atoi(many) : 12;
    uint32_t seed = again ? (uint32_t)strtoul(again, NULL, 10) : (uint32_t)clock_mono_ns();
    printf("# TRAINYARD_SEED=%u\n", seed);
    for (int i = 0; i < kills; i++) {
        const int P = 4 << draw(&seed, 2), victim = (int)draw(&seed, (uint32_t)P);
        gang_starter *start = draw(&seed, 2) ? gang_start : gang_start_apart;
        kill_one(start, P, victim, 1 + draw(&seed, 6), (enum call)draw(&seed, CALLS));
    }
}

/* Each rank names the one that it waits for: with two ranks the stopped one, with four perhaps one that waits for it.
 */
static void a_stopped_rank_is_known_by_the_deadline(void **state) {
    (void)state;
    enum { TIMEOUT_MS = 1500 };
    for (int P = 2; P <= 4; P *= 2) {
        enum call call = CALL_REDUCE;
        struct gang *g = gang_start(P, TIMEOUT_MS, call_until_failure, &call);
        gang_until(g, 1, 5);
        int64_t stopped = clock_mono_ms();
        kill(g->pids[1], SIGSTOP);
        bool by_deadline = false;
        for (int r = 0; r < P; r++) {
            if (r == 1)
                continue;
            assert_int_equal(gang_await(g, r), 0);
            assert_in_range(g->failed_at_ms[r] - stopped, 0, TIMEOUT_MS + TOLD_MS);
            if (g->status[r] == ST_DEADLINE_EXCEEDED)
                by_deadline = by_deadline || strstr(g->error[r].msg, "did nothing for 1500 ms");
        }
        assert_true(by_deadline);
        if (P == 2)
            assert_string_equal(g->error[0].msg, "rank 1 did nothing for 1500 ms");
        kill(g->pids[1], SIGKILL);
        gang_await(g, 1);
        gang_free(g);
    }
}

/* Rank 1 dies while rank 0 is in no call. Rank 0's next call fails at once, although its peer is rank 2. */
static int idle_until_told(struct gang *g, int rank, struct collective *c) {
    struct err e = { "" };
    MUST(collective_barrier(c, COLLECTIVE_CONTROL, &e) == ST_OK);
    gang_reach(g, rank, 1);
    if (rank == 1)
        pause();
    gang_until(g, 1, 2);
    status_t st = ST_OK;
    int64_t begun = clock_mono_ms();
    char byte = 0;
    while (st == ST_OK && clock_mono_ms() - begun < PATIENCE_MS) {
        if (rank == 0)
            st = collective_send(c, COLLECTIVE_CONTROL, 2, &byte, 1, &e);
        else if (rank == 2)
            st = collective_recv(c, COLLECTIVE_CONTROL, 0, &byte, 1, &e);
        else
            st = collective_recv(c, COLLECTIVE_CONTROL, 2, &byte, 1,
                                 &e); /* rank 3 waits for a message that never arrives */
    }
    gang_note(g, rank, st, &e);
    return 0;
}

static void a_death_reaches_ranks_that_wait_for_someone_else(void **state) {
    (void)state;
    struct gang *g = gang_start(4, PATIENCE_MS, idle_until_told, NULL);
    for (int r = 0; r < 4; r++)
        gang_until(g, r, 1);
    kill(g->pids[1], SIGKILL);
    gang_await(g, 1);
    int64_t killed = clock_mono_ms();
    gang_reach(g, 1, 2);
    for (int r = 0; r < 4; r++) {
        if (r == 1)
            continue;
        assert_int_equal(gang_await(g, r), 0);
        assert_int_equal(g->status[r], ST_UNAVAILABLE);
        assert_in_range(g->failed_at_ms[r] - killed, 0, TOLD_MS);
    }
    gang_free(g);
}

/* Rank 1 makes no call until the others have noticed. */
static int fall_silent(struct gang *g, int rank, struct collective *c) {
    struct err e = { "" };
    MUST(collective_barrier(c, COLLECTIVE_CONTROL, &e) == ST_OK);
    if (rank != 1)
        return call_until_failure(g, rank, c);
    gang_until(g, 0, INT64_MAX);
    gang_note(g, rank, collective_barrier(c, COLLECTIVE_CONTROL, &e), &e);
    return 0;
}

static void a_silent_rank_of_a_process_is_known_by_the_deadline(void **state) {
    (void)state;
    enum { TIMEOUT_MS = 300 };
    enum call call = CALL_REDUCE;
    struct gang *g = gang_start_threads(2, TIMEOUT_MS, fall_silent, &call);
    int64_t begun = clock_mono_ms();
    assert_int_equal(gang_await(g, 0), 0);
    assert_in_range(g->failed_at_ms[0] - begun, TIMEOUT_MS - 1, TIMEOUT_MS + TOLD_MS);
    assert_int_equal(g->status[0], ST_DEADLINE_EXCEEDED);
    assert_string_equal(g->error[0].msg, "rank 1 did nothing for 300 ms");
    gang_reach(g, 0, INT64_MAX);
    assert_int_equal(gang_await(g, 1), 0);
    assert_int_equal(g->status[1], ST_UNAVAILABLE);
    assert_string_equal(g->error[1].msg, "rank 0 went away: rank 1 did nothing for 300 ms");
    gang_free(g);
}
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_rank_is_known_to_all_others_long_before_the_deadline),
        cmocka_unit_test(a_killed_rank_is_known_in_every_call),
        cmocka_unit_test(whenever_a_rank_is_killed_every_survivor_names_it),
        cmocka_unit_test(a_stopped_rank_is_known_by_the_deadline),
        cmocka_unit_test(a_death_reaches_ranks_that_wait_for_someone_else),
        cmocka_unit_test(a_silent_rank_of_a_process_is_known_by_the_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
