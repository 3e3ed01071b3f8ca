/* An abort in nccl_transport.c, without a device: every waiting call returns, no message arrives and no rank connects
 * afterwards, no communicator remains, and every later call returns the reason. */
#include "tests/engine/nccl/ranks.h"

static void *abort_from_elsewhere(void *arg) {
    struct caller *a = arg;
    gang_until(a->g, a->rank, 1);
    collective_abort(a->c, "enough");
    return NULL;
}

/* No rank sends: the abort ends the wait, and the waiting rank gets an error. */
static int await_in_vain(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    struct caller a = { .g = g, .rank = rank, .c = c };
    struct err e = { "" };
    pthread_t thread;
    int ticket;
    DEVICE_MUST(join_ring_of_two(c, rank) == 0);
    DEVICE_MUST(k->memory_new(k, 80, (void **)&a.there, &e) == ST_OK);
    DEVICE_MUST(collective_post_recv(c, COLLECTIVE_FORWARD, 1 - rank, a.there, 80, &ticket, &e) == ST_OK);
    pthread_barrier_wait(&g->met);
    DEVICE_MUST(pthread_create(&thread, NULL, abort_from_elsewhere, &a) == 0);
    gang_advance(g, rank);
    status_t st = collective_finish(c, COLLECTIVE_FORWARD, ticket, &e);
    if (st == ST_OK)
        st = k->finish(k, &e);
    if (st == ST_OK)
        st = collective_confirm(c, &e);
    pthread_join(thread, NULL);
    DEVICE_MUST(st == ST_CANCELLED || st == ST_UNAVAILABLE); /* the other's abort may be first */
    k->memory_free(k, a.there);
    return 0;
}

static void what_an_abort_cuts_short_has_not_arrived(void **state) {
    (void)state;
    for (int i = 0; i < 100; i++)
        assert_all_well(2, (struct task){ .body = await_in_vain });
}

/* The abort comes before, beside or after the detaching. */
static int detach_beside_an_abort(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    struct caller a = { .g = g, .rank = rank, .c = c };
    struct err e = { "" };
    pthread_t thread;
    (void)k;
    DEVICE_MUST(join_ring_of_two(c, rank) == 0);
    pthread_barrier_wait(&g->met);
    DEVICE_MUST(pthread_create(&thread, NULL, abort_from_elsewhere, &a) == 0);
    gang_advance(g, rank);
    collective_detach(c);
    pthread_join(thread, NULL);
    DEVICE_MUST(collective_barrier(c, COLLECTIVE_CONTROL, &e) != ST_OK);
    return 0;
}

static void an_abort_may_come_while_the_device_is_detached(void **state) {
    (void)state;
    for (int i = 0; i < 100; i++)
        assert_all_well(2, (struct task){ .body = detach_beside_an_abort });
}

static int give_up(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    for (int r = 0; r < g->world_size && rank == 1; r++)
        if (r != 1)
            gang_until(g, r, 1);
    if (rank == 1)
        collective_abort(c, "enough");
    return device_sum_until_failure(g, rank, c, k);
}

static void a_rank_that_gives_up_ends_the_calls_of_all_others(void **state) {
    (void)state;
    struct task task = { .body = give_up };
    struct gang *g = gang_start_threads(4, PATIENCE_MS, on_device, &task);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(gang_await(g, r), 0);
        assert_int_equal(g->status[r], r == 1 ? ST_CANCELLED : ST_UNAVAILABLE);
    }
    assert_string_equal(g->error[1].msg, "rank 1 gave up: enough");
    gang_free(g);
}

/* Rank 0 is inside the split, which stores its result during the abort. */
static int split_alone(struct gang *g, int rank, struct collective *c) {
    struct cuda *cuda = device_new();
    const struct collective_device device = { .kernels = &cuda->table, .data = 2 };
    struct err e = { "" };
    if (rank == 1)
        device_fail("ncclCommSplit");
    gang_note(g, rank, collective_attach_plugin(c, &collective_plugin, &device, &e), &e);
    device_fail(NULL);
    device_free(cuda);
    return 0;
}

static void a_split_that_is_cut_short_leaves_no_communicator_behind(void **state) {
    (void)state;
    struct gang *g = gang_start_threads(2, PATIENCE_MS, split_alone, NULL);
    for (int r = 0; r < 2; r++)
        assert_int_equal(gang_await(g, r), 0);
    assert_int_equal(g->status[0], ST_UNAVAILABLE);
    assert_int_equal(g->status[1], ST_INTERNAL);
    assert_int_equal(device_communicators(), 0);
    gang_free(g);
}

/* When both ranks have queried whether the trial is finished, rank 1 dies. No query is answered before all is
 * aborted. */
static void *die_unanswered(void *arg) {
    struct caller *a = arg;
    device_await_unanswered(2);
    a->c->host->ops->abort(a->c->host, "killed");
    device_await_silence();
    device_mute(false);
    return NULL;
}

static int connect_beside_a_death(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    struct caller a = { .g = g, .rank = rank, .c = c };
    const struct collective_link link = { COLLECTIVE_FORWARD, 1 - rank, rank == 0 };
    struct err e = { "" };
    pthread_t thread;
    (void)k;
    DEVICE_MUST(collective_barrier(c, COLLECTIVE_CONTROL, &e) == ST_OK); /* both are attached: they query the device */
    device_mute(true);
    DEVICE_MUST(rank != 1 || pthread_create(&thread, NULL, die_unanswered, &a) == 0);
    gang_note(g, rank, collective_connect(c, &link, 1, &e), &e);
    if (rank == 1)
        pthread_join(thread, NULL);
    return 0;
}

static void what_an_abort_cuts_short_is_not_connected(void **state) {
    (void)state;
    struct task task = { .body = connect_beside_a_death };
    struct gang *g = gang_start_threads(2, PATIENCE_MS, on_device, &task);
    for (int r = 0; r < 2; r++)
        assert_int_equal(gang_await(g, r), 0);
    assert_int_equal(g->status[0], ST_UNAVAILABLE);
    assert_string_equal(g->error[0].msg, "rank 1 went away: rank 1 gave up: killed");
    assert_int_equal(g->status[1], ST_CANCELLED);
    gang_free(g);
}

/* Rank 1 has failed, and both ranks have noticed. */
static int call_on(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    enum { CALLED = 6 };
    const struct collective_group world = collective_world(c);
    const int64_t cut[] = { 0, 10, 20 };
    const char *const says = rank == 1 ? "rank 1 gave up: enough" : "rank 1 went away: rank 1 gave up: enough";
    struct err e = { "" }, told[CALLED];
    float *there = NULL;
    int recv, marked, ticket;
    DEVICE_MUST(join_ring_of_two(c, rank) == 0);
    DEVICE_MUST(k->memory_new(k, 80, (void **)&there, &e) == ST_OK && k->fill(k, there, 0, 20, &e) == ST_OK);
    DEVICE_MUST(collective_post_recv(c, COLLECTIVE_FORWARD, 1 - rank, there, 40, &recv, &e) == ST_OK);
    DEVICE_MUST(collective_mark(c, &marked, &e) == ST_OK);
    pthread_barrier_wait(&g->met);
    if (rank == 1)
        collective_abort(c, "enough");
    DEVICE_MUST(collective_confirm(c, &e) != ST_OK);
    const status_t called[CALLED] = {
        collective_reduce_ordered(c, COLLECTIVE_DATA, &world, there, cut, &told[0]),
        collective_all_gather_shards(c, COLLECTIVE_DATA, &world, there, 4, cut, &told[1]),
        collective_post_send(c, COLLECTIVE_FORWARD, 1 - rank, there, 40, &ticket, &told[2]),
        collective_mark(c, &ticket, &told[3]),
        collective_finish(c, COLLECTIVE_DATA, marked, &told[4]),
        collective_finish(c, COLLECTIVE_FORWARD, recv, &told[5]),
    };
    for (int i = 0; i < CALLED; i++)
        DEVICE_MUST(called[i] == (rank == 1 ? ST_CANCELLED : ST_UNAVAILABLE) && strcmp(told[i].msg, says) == 0);
    k->memory_free(k, there);
    return 0;
}

static void a_failure_is_repeated_by_every_later_call(void **state) {
    (void)state;
    assert_all_well(2, (struct task){ .body = call_on });
}
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_an_abort_cuts_short_has_not_arrived),
        cmocka_unit_test(an_abort_may_come_while_the_device_is_detached),
        cmocka_unit_test(a_rank_that_gives_up_ends_the_calls_of_all_others),
        cmocka_unit_test(a_failure_is_repeated_by_every_later_call),
        cmocka_unit_test(a_split_that_is_cut_short_leaves_no_communicator_behind),
        cmocka_unit_test(what_an_abort_cuts_short_is_not_connected),
    };
    device_clocks_take();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
