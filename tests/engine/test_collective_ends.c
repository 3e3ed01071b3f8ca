/* A rank gives up, closes or disagrees: its own calls and those of the others end, and every message names the first
 * rank that ended. */
#include "engine/collective/internal.h"
#include "tests/engine/gang_calls.h"

#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct waiter {
    struct collective *c;
    status_t st;
    struct err e;
};

static void *wait_for_rank_1(void *arg) {
    struct waiter *w = arg;
    char byte;
    w->st = collective_recv(w->c, COLLECTIVE_DATA, 1, &byte, 1, &w->e);
    return NULL;
}

static int abort_or_be_told(struct gang *g, int rank, struct collective *c) {
    struct err e = { "" };
    char byte;
    MUST(collective_barrier(c, COLLECTIVE_CONTROL, &e) == ST_OK);
    pthread_barrier_wait(&g->met); /* no rank is still in the call that the abort would end */
    if (rank == 1) {
        status_t st = collective_recv(c, COLLECTIVE_CONTROL, 0, &byte, 1, &e);
        MUST(st == ST_UNAVAILABLE && strncmp(e.msg, "rank 0 went away", 16) == 0);
        return 0;
    }
    struct waiter w = { .c = c };
    pthread_t thread;
    pthread_create(&thread, NULL, wait_for_rank_1, &w);
    int64_t begun = clock_mono_ms();
    collective_abort(c, "the spool is on fire");
    pthread_join(thread, NULL);
    MUST(clock_mono_ms() - begun < TOLD_MS);
    MUST(w.st == ST_CANCELLED && strcmp(w.e.msg, "rank 0 gave up: the spool is on fire") == 0);
    MUST(collective_barrier(c, COLLECTIVE_CONTROL, &e) == ST_CANCELLED);
    return 0;
}

static void an_abort_ends_this_ranks_calls_and_its_peers(void **state) {
    (void)state;
    assert_all_well(2, abort_or_be_told, NULL);
}

/* Rank 0 has nothing more to do and closes; the others still communicate. */
static int leave_early(struct gang *g, int rank, struct collective *c) {
    struct err e = { "" };
    MUST(collective_barrier(c, COLLECTIVE_CONTROL, &e) == ST_OK);
    if (rank == 0) {
        gang_reach(g, 0, 1);
        return 0;
    }
    gang_until(g, 0, 1);
    int64_t begun = clock_mono_ms();
    char bytes[5000] = { 0 }, more = rank != 1; /* rank 3 decides when to stop */
    for (size_t i = 0; more; i++) {
        if (rank == 2) {
            MUST(collective_send(c, COLLECTIVE_CONTROL, 3, bytes, 1 + i % 5000, &e) == ST_OK);
            MUST(collective_recv(c, COLLECTIVE_CONTROL, 3, &more, 1, &e) == ST_OK);
        } else {
            MUST(collective_recv(c, COLLECTIVE_CONTROL, 2, bytes, 1 + i % 5000, &e) == ST_OK);
            more = clock_mono_ms() - begun < 300;
            MUST(collective_send(c, COLLECTIVE_CONTROL, 2, &more, 1, &e) == ST_OK);
        }
    }
    return 0;
}

static void a_rank_that_closes_in_order_disturbs_no_other(void **state) {
    (void)state;
    assert_all_well(4, leave_early, NULL);
}

/* Rank 0 closes in order; rank 1 still needs it: first in a call that already waits, then in a new one. */
static int want_more(struct gang *g, int rank, struct collective *c) {
    struct err e = { "" };
    char byte;
    MUST(collective_barrier(c, COLLECTIVE_CONTROL, &e) == ST_OK);
    (void)g;
    if (rank == 0)
        return 0;
    int64_t begun = clock_mono_ms();
    MUST(collective_recv(c, COLLECTIVE_CONTROL, 0, &byte, 1, &e) == ST_UNAVAILABLE);
    MUST(strncmp(e.msg, "rank 0 went away", 16) == 0);
    MUST(collective_recv(c, COLLECTIVE_DATA, 0, &byte, 1, &e) == ST_UNAVAILABLE);
    MUST(clock_mono_ms() - begun < TOLD_MS);
    return 0;
}

static void a_rank_that_closed_in_order_is_missed_at_once(void **state) {
    (void)state;
    assert_all_well(2, want_more, NULL);
}

/* The victim gives up in the middle of the others' calls. */
static int give_up_after_some(struct gang *g, int rank, struct collective *c) {
    if (rank == 2 % g->world_size) {
        for (int r = 0; r < g->world_size; r++)
            if (r != rank)
                gang_until(g, r, 1);
        collective_abort(c, "enough");
    }
    return call_until_failure(g, rank, c);
}

static void a_rank_that_gives_up_ends_every_call_of_all_others(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof STARTERS / sizeof *STARTERS; i++)
        for (enum call call = 0; call < CALLS; call++)
            for (int P = 2; P <= GANG_RANKS; P *= 2) {
                struct gang *g = STARTERS[i](P, PATIENCE_MS, give_up_after_some, &call);
                const int quitter = 2 % P;
                for (int r = 0; r < P; r++) {
                    char says[60] = "";
                    if (r != quitter)
                        snprintf(says, sizeof says, "rank %d went away: ", quitter);
                    snprintf(says + strlen(says), sizeof says - strlen(says), "rank %d gave up: enough", quitter);
                    assert_int_equal(gang_await(g, r), 0);
                    if (g->status[r] != (r == quitter ? ST_CANCELLED : ST_UNAVAILABLE) ||
                        strcmp(g->error[r].msg, says) != 0)
                        fail_msg("starter %zu, call %d: rank %d of %d: %s: %s", i, (int)call, r, P,
                                 status_name(g->status[r]), g->error[r].msg);
                }
                gang_free(g);
            }
}

/* Rank 2 gives up while rank 1 is stopped. Rank 0 notices at once. Ranks 0 and 2 wait for rank 1 when they close. */
static int outlast_a_stop(struct gang *g, int rank, struct collective *c) {
    struct err e = { "" };
    char byte;
    MUST(collective_barrier(c, COLLECTIVE_CONTROL, &e) == ST_OK);
    gang_reach(g, rank, 1);
    if (rank == 2) {
        gang_until(g, 2, 2);
        collective_abort(c, "enough");
    }
    while (rank == 0 && c->host->ops->check(c->host, &e) == ST_OK)
        sched_yield();
    if (rank == 0)
        gang_reach(g, 0, 2);
    gang_note(g, rank, collective_recv(c, COLLECTIVE_DATA, (rank + 1) % 3, &byte, 1, &e), &e);
    gang_reach(g, rank, 3);
    return 0;
}

static void no_rank_closes_before_all_that_live_know_whose_end_it_was(void **state) {
    (void)state;
    struct gang *g = gang_start(3, PATIENCE_MS, outlast_a_stop, NULL);
    for (int r = 0; r < 3; r++)
        gang_until(g, r, 1);
    kill(g->pids[1], SIGSTOP);
    assert_int_equal(waitpid(g->pids[1], NULL, WUNTRACED), g->pids[1]);
    gang_reach(g, 2, 2);
    gang_until(g, 0, 2);
    assert_false(gang_until_most(g, 2, 3, &(struct timespec){ .tv_nsec = 300000000 }));
    assert_int_equal(atomic_load(&g->progress[0]), 2);
    kill(g->pids[1], SIGCONT);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(gang_await(g, r), 0);
        assert_string_equal(g->error[r].msg,
                            r == 2 ? "rank 2 gave up: enough" : "rank 2 went away: rank 2 gave up: enough");
    }
    gang_free(g);
}

static int talk_past_each_other(struct gang *g, int rank, struct collective *c) {
    struct err e = { "" };
    char bytes[8] = { 0 };
    gang_note(g, rank,
              rank == 0 ? collective_send(c, COLLECTIVE_DATA, 1, bytes, 8, &e)
                        : collective_recv(c, COLLECTIVE_DATA, 0, bytes, 4, &e),
              &e);
    return 0;
}

static void threads_that_disagree_about_a_size_get_an_error(void **state) {
    (void)state;
    static const char what[] = "rank 0 sends 8 bytes, but rank 1 receives 4";
    struct gang *g = gang_start_threads(2, PATIENCE_MS, talk_past_each_other, NULL);
    for (int r = 0; r < 2; r++)
        assert_int_equal(gang_await(g, r), 0);
    int second = g->status[1] == ST_INTERNAL; /* the rank that came second reports it */
    assert_int_equal(g->status[second], ST_INTERNAL);
    assert_string_equal(g->error[second].msg, what);
    assert_int_equal(g->status[!second], ST_UNAVAILABLE);
    assert_non_null(strstr(g->error[!second].msg, what));
    gang_free(g);
}
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_abort_ends_this_ranks_calls_and_its_peers),
        cmocka_unit_test(a_rank_that_closes_in_order_disturbs_no_other),
        cmocka_unit_test(a_rank_that_closed_in_order_is_missed_at_once),
        cmocka_unit_test(a_rank_that_gives_up_ends_every_call_of_all_others),
        cmocka_unit_test(no_rank_closes_before_all_that_live_know_whose_end_it_was),
        cmocka_unit_test(threads_that_disagree_about_a_size_get_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
