/* nccl.c without a device: its ranks are threads, CUDA and NCCL are stand-ins (nccl/device.c, nccl/threads.c). What it
 * decides is its own: who swaps what and when it is added, what ends a wait, and that the end of one is the end of all.
 */
#include "executor/engine/collective/device.h"
#include "executor/engine/collective/internal.h"
#include "tests/engine/device_ranks.h"
#include "tests/engine/nccl/device.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { PATIENCE_MS = 30000 };

extern const struct collective_plugin collective_plugin;

struct task {
    bool native;
    int timeout_ms;
    int (*body)(struct gang *g, int rank, struct collective *c, const struct kernels *k);
};

static status_t exchange_on(void *ctx, const void *mine, size_t n, struct bytes *all, struct err *e) {
    return collective_exchange(ctx, COLLECTIVE_CONTROL, mine, n, all, e);
}

static int on_device(struct gang *g, int rank, struct collective *c) {
    const struct task *task = g->arg;
    struct cuda *cuda = device_new();
    const struct collective_device device = { .kernels = &cuda->table, .data = g->world_size, .native = task->native };
    const struct device_gang gang = { .rank = rank,
                                      .world_size = g->world_size,
                                      .timeout_ms = task->timeout_ms ? task->timeout_ms : PATIENCE_MS,
                                      .piece = collective_piece(rank, g->world_size),
                                      .host = c->host,
                                      .exchange = exchange_on,
                                      .exchange_ctx = c };
    struct err e = { "" };
    DEVICE_MUST(collective_plugin.open(&gang, &device, &c->device, &e) == ST_OK);
    int line = task->body(g, rank, c, &cuda->table);
    collective_detach(c);
    device_free(cuda);
    return line;
}

static void assert_all_well(int ranks, struct task task) {
    assert_int_equal(gang_end(gang_start_threads(ranks, PATIENCE_MS, on_device, &task)), 0);
}

static int sums(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    return device_sums(g, rank, c, k, 9 * (int64_t)NCCL_SEGMENT_BYTES / (int64_t)sizeof(float) + 1);
}

static void sums_on_a_device_are_the_serial_tree_to_the_bit(void **state) {
    (void)state;
    for (int P = 2; P <= GANG_RANKS; P *= 2)
        assert_all_well(P, (struct task){ .body = sums });
}

static void a_native_sum_is_right(void **state) {
    (void)state;
    for (int P = 2; P <= GANG_RANKS; P *= 2)
        assert_all_well(P, (struct task){ .native = true, .body = device_native_sum });
}

static void a_union_of_device_memory_is_whole_on_every_rank(void **state) {
    (void)state;
    for (int P = 2; P <= GANG_RANKS; P *= 2)
        assert_all_well(P, (struct task){ .body = device_union });
}

static void receives_posted_early_hold_up_no_other_transfer(void **state) {
    (void)state;
    for (int P = 2; P <= 5; P++)
        assert_all_well(P, (struct task){ .body = device_transfers });
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

static int fall_silent(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    struct err e = { "" };
    if (rank != 1)
        return device_sum_until_failure(g, rank, c, k);
    gang_until(g, 0, INT64_MAX);
    gang_note(g, rank, collective_barrier(c, COLLECTIVE_CONTROL, &e), &e);
    return 0;
}

static void a_silent_rank_is_known_by_the_deadline(void **state) {
    (void)state;
    struct task task = { .body = fall_silent, .timeout_ms = 1500 };
    struct gang *g = gang_start_threads(2, PATIENCE_MS, on_device, &task);
    assert_int_equal(gang_await(g, 0), 0);
    assert_int_equal(g->status[0], ST_DEADLINE_EXCEEDED);
    assert_string_equal(g->error[0].msg, "rank 1 did nothing for 1500 ms");
    atomic_store(&g->progress[0], INT64_MAX);
    assert_int_equal(gang_await(g, 1), 0);
    assert_int_equal(g->status[1], ST_UNAVAILABLE);
    assert_string_equal(g->error[1].msg, "rank 0 went away: rank 0 gave up: rank 1 did nothing for 1500 ms");
    gang_free(g);
}

static int post_to_a_stranger(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    struct err e = { "" };
    char byte = 0;
    int ticket;
    (void)k;
    status_t st = collective_barrier(c, COLLECTIVE_CONTROL, &e); /* all are connected */
    if (st == ST_OK)
        st = rank == 0 ? collective_post_send(c, COLLECTIVE_FORWARD, 1, &byte, 1, &ticket, &e)
                       : collective_recv(c, COLLECTIVE_CONTROL, 0, &byte, 1, &e);
    gang_note(g, rank, st, &e);
    return 0;
}

static void a_transfer_that_nobody_asked_a_connection_for_is_told(void **state) {
    (void)state;
    struct task task = { .body = post_to_a_stranger };
    struct gang *g = gang_start_threads(2, PATIENCE_MS, on_device, &task);
    for (int r = 0; r < 2; r++)
        assert_int_equal(gang_await(g, r), 0);
    assert_int_equal(g->status[0], ST_INTERNAL);
    assert_string_equal(g->error[0].msg, "no connection was asked for by which rank 0 sends to rank 1");
    assert_int_equal(g->status[1], ST_UNAVAILABLE);
    gang_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_on_a_device_are_the_serial_tree_to_the_bit),
        cmocka_unit_test(a_native_sum_is_right),
        cmocka_unit_test(a_union_of_device_memory_is_whole_on_every_rank),
        cmocka_unit_test(receives_posted_early_hold_up_no_other_transfer),
        cmocka_unit_test(a_rank_that_gives_up_ends_the_calls_of_all_others),
        cmocka_unit_test(a_silent_rank_is_known_by_the_deadline),
        cmocka_unit_test(a_transfer_that_nobody_asked_a_connection_for_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
