/* The end of one rank ends all ranks, over nccl_transport.c without a device: each rank's message after a death,
 * silence or a failure of NCCL. A long step is none of these. */
#include "tests/engine/nccl/ranks.h"

/* Rank 1 is silent until rank 0 has ended. The clock advances while rank 0 makes no progress. */
static int fall_silent(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    struct err e = { "" };
    if (rank != 1)
        return device_sum_until_failure(g, rank, c, k);
    while (!gang_until_most(g, 0, INT64_MAX, &(struct timespec){ .tv_nsec = 50000000 }))
        device_clocks_forward(PATIENCE_MS, 0);
    gang_note(g, rank, collective_barrier(c, COLLECTIVE_CONTROL, &e), &e);
    return 0;
}

static void a_silent_rank_is_known_by_the_deadline(void **state) {
    (void)state;
    struct task task = { .body = fall_silent };
    struct gang *g = gang_start_threads(2, PATIENCE_MS, on_device, &task);
    assert_int_equal(gang_await(g, 0), 0);
    assert_int_equal(g->status[0], ST_DEADLINE_EXCEEDED);
    assert_string_equal(g->error[0].msg, "rank 1 did nothing for 30000 ms");
    gang_reach(g, 0, INT64_MAX);
    assert_int_equal(gang_await(g, 1), 0);
    assert_int_equal(g->status[1], ST_UNAVAILABLE);
    assert_string_equal(g->error[1].msg, "rank 0 went away: rank 0 gave up: rank 1 did nothing for 30000 ms");
    gang_free(g);
}

static struct device_gate gates[3]; /* of long kernels */

static void gates_shut(void) {
    for (size_t i = 0; i < sizeof gates / sizeof *gates; i++)
        gates[i] = (struct device_gate)DEVICE_GATE_SHUT;
}

/* The kernel takes longer than another rank may be silent. Calls are posted before it, queued after it, and waited for
 * after it. */
static int compute_long(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    const struct collective_group world = collective_world(c);
    const int64_t cut[] = { 0, 10, 20 };
    struct err e = { "" };
    char *there = NULL;
    int recv, send;
    DEVICE_MUST(join_ring_of_two(c, rank) == 0);
    DEVICE_MUST(k->memory_new(k, 160, (void **)&there, &e) == ST_OK);
    DEVICE_MUST(k->fill(k, (float *)(void *)there, 0, 40, &e) == ST_OK);
    DEVICE_MUST(collective_post_recv(c, COLLECTIVE_FORWARD, 1 - rank, there, 40, &recv, &e) == ST_OK);
    device_queue(cuda_of(k)->stream, device_gate_pass, &gates[0]);
    DEVICE_MUST(collective_post_send(c, COLLECTIVE_FORWARD, 1 - rank, there + 40, 40, &send, &e) == ST_OK);
    DEVICE_MUST(collective_finish(c, COLLECTIVE_FORWARD, recv, &e) == ST_OK);
    DEVICE_MUST(collective_reduce_ordered(c, COLLECTIVE_DATA, &world, (float *)(void *)(there + 80), cut, &e) == ST_OK);
    DEVICE_MUST(collective_finish(c, COLLECTIVE_FORWARD, send, &e) == ST_OK);
    DEVICE_MUST(device_follow(c, &e) == ST_OK);
    pthread_barrier_wait(&g->met);
    if (rank == 0) {
        device_clocks_forward(2 * PATIENCE_MS, 2);
        device_gate_open(&gates[0]);
    }
    DEVICE_MUST(k->finish(k, &e) == ST_OK && collective_confirm(c, &e) == ST_OK);
    k->memory_free(k, there);
    return 0;
}

static void a_long_step_is_no_silence(void **state) {
    (void)state;
    gates_shut();
    assert_all_well(2, (struct task){ .body = compute_long });
}

static void open_gate(void *gate) { device_gate_open(gate); }

/* Rank 1 makes two pauses, neither of which is too long; rank 0 has queued both sums before the first. */
static int pause_twice(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    const struct collective_group world = collective_world(c);
    const int64_t cut[] = { 0, 10, 20 };
    struct err e = { "" };
    void *there = NULL;
    DEVICE_MUST(k->memory_new(k, 80, &there, &e) == ST_OK && k->fill(k, there, 0, 20, &e) == ST_OK);
    for (int i = 0; i < 2; i++) {
        if (rank == 1)
            device_queue(cuda_of(k)->stream, device_gate_pass, &gates[i]);
        DEVICE_MUST(collective_reduce_ordered(c, COLLECTIVE_DATA, &world, there, cut, &e) == ST_OK);
        if (rank == 1 && i == 0) { /* the first sum is over */
            DEVICE_MUST(device_follow(c, &e) == ST_OK);
            device_queue(cuda_of(k)->stream, open_gate, &gates[2]);
        }
    }
    DEVICE_MUST(device_follow(c, &e) == ST_OK);
    pthread_barrier_wait(&g->met);
    for (int i = 0; i < 2 && rank == 0; i++) {
        device_clocks_forward(0, 2);
        device_clocks_forward(2 * PATIENCE_MS / 3, 2);
        device_gate_open(&gates[i]);
        device_gate_pass(&gates[2]);
    }
    DEVICE_MUST(k->finish(k, &e) == ST_OK && collective_confirm(c, &e) == ST_OK);
    k->memory_free(k, there);
    return 0;
}

static void a_call_behind_another_is_late_only_from_then_on(void **state) {
    (void)state;
    gates_shut();
    assert_all_well(2, (struct task){ .body = pause_twice });
}

/* Rank 0 waits for its device alone, which waits for rank 1. */
static int await_rank_1(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    const struct collective_group world = collective_world(c);
    const int64_t cut[] = { 0, 10, 20 };
    struct err e = { "" };
    void *there = NULL;
    DEVICE_MUST(k->memory_new(k, 80, &there, &e) == ST_OK && k->fill(k, there, 0, 20, &e) == ST_OK);
    DEVICE_MUST(collective_reduce_scatter_ordered(c, COLLECTIVE_DATA, &world, there, cut, &e) == ST_OK);
    DEVICE_MUST(device_follow(c, &e) == ST_OK);
    gang_advance(g, rank);
    DEVICE_MUST(k->finish(k, &e) == ST_OK);
    gang_note(g, rank, collective_confirm(c, &e), &e);
    k->memory_free(k, there);
    return 0;
}

/* Like a killed process: its sockets end, and NCCL reports nothing. */
static int die(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    if (rank == 0)
        return await_rank_1(g, rank, c, k);
    gang_until(g, 0, 1);
    c->host->ops->abort(c->host, "killed");
    gang_until(g, 0, INT64_MAX);
    return 0;
}

/* Rank 1 dies during `body` once rank 0 waits. Rank 0 must notice it while rank 1's thread still runs. */
static void assert_a_death_is_known(int (*body)(struct gang *, int, struct collective *, const struct kernels *)) {
    struct task task = { .body = body };
    struct gang *g = gang_start_threads(2, PATIENCE_MS, on_device, &task);
    assert_int_equal(gang_await(g, 0), 0);
    assert_int_equal(g->status[0], ST_UNAVAILABLE);
    assert_string_equal(g->error[0].msg, "rank 1 went away: rank 1 gave up: killed");
    gang_reach(g, 0, INT64_MAX);
    assert_int_equal(gang_await(g, 1), 0);
    gang_free(g);
}

static void who_waits_for_the_device_alone_learns_of_a_death(void **state) {
    (void)state;
    assert_a_death_is_known(die);
}

/* Rank 1 blocks the device of rank 0, whose queues are full. */
static int die_while_nothing_answers(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    struct err e = { "" };
    DEVICE_MUST(collective_barrier(c, COLLECTIVE_CONTROL, &e) == ST_OK); /* both are attached: they query the device */
    if (rank == 1)
        return die(g, rank, c, k);
    device_mute(true);
    const int line = await_rank_1(g, rank, c, k);
    device_mute(false);
    return line;
}

static void a_death_is_known_where_the_device_answers_nothing(void **state) {
    (void)state;
    assert_a_death_is_known(die_while_nothing_answers);
}

static int break_nccl(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    struct err e = { "" };
    const struct task *task = g->arg;
    DEVICE_MUST(join_ring_of_two(c, rank) == 0);
    if (rank == 0)
        return await_rank_1(g, rank, c, k);
    gang_until(g, 0, 1);
    device_fail_everywhere(task->failing);
    gang_note(g, rank, collective_confirm(c, &e), &e);
    return 0;
}

static void who_waits_for_the_device_alone_learns_of_the_failure_of_any_communicator(void **state) {
    (void)state;
    const char *const names[] = { "world", "data", "pipeline" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct task task = { .body = break_nccl, .failing = names[i] };
        struct gang *g = gang_start_threads(2, PATIENCE_MS, on_device, &task);
        for (int r = 0; r < 2; r++)
            assert_int_equal(gang_await(g, r), 0);
        device_fail_everywhere(NULL);
        int first = 0; /* the first failure of both, or the one that the other rank reported */
        for (int r = 0; r < 2; r++) {
            first += g->status[r] == ST_INTERNAL && strstr(g->error[r].msg, "NCCL failed");
            assert_true(g->status[r] == ST_INTERNAL || g->status[r] == ST_UNAVAILABLE);
        }
        assert_true(first > 0);
        gang_free(g);
    }
}

/* Rank 1 fails after the others have sent their request, so they receive no confirmation. */
static int confirm(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    struct err e = { "" };
    (void)k;
    DEVICE_MUST(collective_confirm(c, &e) == ST_OK);
    if (rank == 1) {
        for (int r = 0; r < g->world_size; r++)
            if (r != 1)
                gang_until(g, r, 1);
        collective_abort(c, "enough");
    }
    gang_advance(g, rank);
    status_t st = collective_confirm(c, &e);
    gang_note(g, rank, st, &e);
    return 0;
}

static void nothing_is_confirmed_that_one_rank_has_not_come_through(void **state) {
    (void)state;
    struct task task = { .body = confirm };
    struct gang *g = gang_start_threads(4, PATIENCE_MS, on_device, &task);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(gang_await(g, r), 0);
        assert_int_equal(g->status[r], r == 1 ? ST_CANCELLED : ST_UNAVAILABLE);
    }
    gang_free(g);
}

static const char *const CALLS[] = { "ncclRecv", "ncclSend", "ncclGroupEnd", "ncclBroadcast", "ncclCommGetAsyncError" };
enum { CALLS_N = sizeof CALLS / sizeof *CALLS };

static int fail_at_a_call(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    const struct task *task = g->arg;
    if (rank == 1)
        device_fail(task->failing);
    int line = device_sum_until_failure(g, rank, c, k);
    device_fail(NULL);
    return line;
}

/* Also a call in a group: an open group would block the abort. */
static void a_call_of_nccl_that_fails_ends_all_ranks(void **state) {
    (void)state;
    struct task tasks[CALLS_N];
    struct gang *gangs[CALLS_N];
    for (int i = 0; i < CALLS_N; i++) {
        tasks[i] = (struct task){ .body = fail_at_a_call, .failing = CALLS[i] };
        gangs[i] = gang_start_threads(2, PATIENCE_MS, on_device, &tasks[i]);
    }
    for (int i = 0; i < CALLS_N; i++) {
        const struct gang *g = gangs[i];
        for (int r = 0; r < 2; r++)
            assert_int_equal(gang_await(gangs[i], r), 0);
        assert_int_equal(g->status[1], ST_INTERNAL);
        assert_non_null(strstr(g->error[1].msg, "an error"));
        assert_int_equal(g->status[0], ST_UNAVAILABLE);
        gang_free(gangs[i]);
    }
}

static int failed_before;

static int fail_before_the_host(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    if (rank == 0) {
        device_fail("ncclCommGetAsyncError");
        int line = device_sum_until_failure(g, rank, c, k);
        device_fail(NULL);
        return line;
    }
    device_await_failure(failed_before + 1); /* NCCL has reported it to rank 0 */
    collective_abort(c, "enough");
    return device_sum_until_failure(g, rank, c, k);
}

static void the_failed_rank_is_named_even_if_nccl_fails_first(void **state) {
    (void)state;
    struct task task = { .body = fail_before_the_host };
    failed_before = device_failed();
    struct gang *g = gang_start_threads(2, PATIENCE_MS, on_device, &task);
    for (int r = 0; r < 2; r++)
        assert_int_equal(gang_await(g, r), 0);
    assert_int_equal(g->status[0], ST_UNAVAILABLE);
    assert_string_equal(g->error[0].msg, "rank 1 went away: rank 1 gave up: enough");
    assert_int_equal(g->status[1], ST_CANCELLED);
    gang_free(g);
}

/* Rank 1 joins the others, and then dies or does nothing: no watch has begun. */
static int attach_alone(struct gang *g, int rank, struct collective *c) {
    const bool *dies = g->arg;
    struct err e = { "" };
    struct bytes all[2];
    if (rank == 0) {
        struct cuda *cuda = device_new();
        const struct collective_device device = { .kernels = &cuda->table, .data = 2 };
        gang_note(g, rank, collective_attach_plugin(c, &collective_plugin, &device, &e), &e);
        gang_reach(g, rank, INT64_MAX);
        device_free(cuda);
        return 0;
    }
    for (int r = 0; r < 2; r++)
        bytes_init(&all[r], 4096);
    DEVICE_MUST(collective_all_gather_blobs(c, COLLECTIVE_CONTROL, "", 0, all, &e) == ST_OK);
    for (int r = 0; r < 2; r++)
        bytes_done(&all[r]);
    if (*dies)
        c->host->ops->abort(c->host, "killed");
    while (!gang_until_most(g, 0, INT64_MAX, &(struct timespec){ .tv_nsec = 50000000 }))
        device_clocks_forward(*dies ? 0 : PATIENCE_MS, 0);
    return 0;
}

static void a_rank_that_connects_notices_a_death_and_does_not_wait_forever(void **state) {
    (void)state;
    for (int dies = 0; dies < 2; dies++) {
        bool arg = dies;
        struct gang *g = gang_start_threads(2, PATIENCE_MS, attach_alone, &arg);
        for (int r = 0; r < 2; r++)
            assert_int_equal(gang_await(g, r), 0);
        assert_int_equal(g->status[0], dies ? ST_UNAVAILABLE : ST_DEADLINE_EXCEEDED);
        assert_string_equal(g->error[0].msg, dies ? "rank 1 went away: rank 1 gave up: killed"
                                                  : "the other ranks did nothing for 30000 ms");
        gang_free(g);
    }
}
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_step_is_no_silence),
        cmocka_unit_test(a_call_behind_another_is_late_only_from_then_on),
        cmocka_unit_test(who_waits_for_the_device_alone_learns_of_a_death),
        cmocka_unit_test(a_death_is_known_where_the_device_answers_nothing),
        cmocka_unit_test(who_waits_for_the_device_alone_learns_of_the_failure_of_any_communicator),
        cmocka_unit_test(nothing_is_confirmed_that_one_rank_has_not_come_through),
        cmocka_unit_test(the_failed_rank_is_named_even_if_nccl_fails_first),
        cmocka_unit_test(a_call_of_nccl_that_fails_ends_all_ranks),
        cmocka_unit_test(a_silent_rank_is_known_by_the_deadline),
        cmocka_unit_test(a_rank_that_connects_notices_a_death_and_does_not_wait_forever),
    };
    device_clocks_take();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
