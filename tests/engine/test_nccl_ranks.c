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
    int data;            /* ranks of a stage; 0: all, or one where all are no power of two */
    const char *failing; /* a call of NCCL, on rank 1 */
    int (*body)(struct gang *g, int rank, struct collective *c, const struct kernels *k);
};

static int on_device(struct gang *g, int rank, struct collective *c) {
    const struct task *task = g->arg;
    const int all = g->world_size & (g->world_size - 1) ? 1 : g->world_size;
    struct cuda *cuda = device_new();
    const struct collective_device device = { .kernels = &cuda->table,
                                              .data = task->data ? task->data : all,
                                              .native = task->native };
    struct err e = { "" };
    DEVICE_MUST(collective_attach_plugin(c, &collective_plugin, &device, &e) == ST_OK);
    int line = task->body(g, rank, c, &cuda->table);
    collective_detach(c);
    device_free(cuda);
    return line;
}

static void assert_all_well(int ranks, struct task task) {
    assert_int_equal(gang_end(gang_start_threads(ranks, PATIENCE_MS, on_device, &task)), 0);
    assert_int_equal(device_communicators(), 0);
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
    for (int P = 2; P <= GANG_RANKS; P++)
        assert_all_well(P, (struct task){ .body = device_union });
}

static void receives_posted_early_hold_up_no_other_transfer(void **state) {
    (void)state;
    for (int P = 2; P <= 5; P++)
        assert_all_well(P, (struct task){ .body = device_transfers });
}

/* Sums, unions and gathers over all groups that a layout has. */
static int all_calls_over(struct collective *c, const struct kernels *k, int rank,
                          const struct collective_group *group) {
    enum { N = 4096 };
    struct err e = { "" };
    const bool halves = !(group->count & (group->count - 1));
    int64_t cut[GANG_RANKS + 1];
    void *x = NULL;
    for (int j = 0; j <= group->count; j++)
        cut[j] = (int64_t)N * j / group->count;
    DEVICE_MUST(k->memory_new(k, N * sizeof(uint64_t), &x, &e) == ST_OK && k->fill(k, x, 0, 2 * N, &e) == ST_OK);
    DEVICE_MUST(collective_or(c, COLLECTIVE_DATA, group, x, N, &e) == ST_OK);
    DEVICE_MUST(!halves || collective_reduce_ordered(c, COLLECTIVE_DATA, group, x, cut, &e) == ST_OK);
    DEVICE_MUST(!halves || collective_reduce_scatter_ordered(c, COLLECTIVE_DATA, group, x, cut, &e) == ST_OK);
    DEVICE_MUST(!halves || collective_all_gather_pieces(c, COLLECTIVE_DATA, group, x, 4, cut, &e) == ST_OK);
    DEVICE_MUST(device_follow(c, &e) == ST_OK);
    k->memory_free(k, x);
    return 0;
}

static int connect_nothing_new(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    const struct task *task = g->arg;
    const int D = task->data, P = g->world_size;
    const struct collective_group groups[] = { { rank / D * D, 1, D }, { rank % D, D, P / D }, { 0, 1, P } };
    struct err e = { "" };
    DEVICE_MUST(collective_barrier(c, COLLECTIVE_CONTROL, &e) == ST_OK); /* all are attached */
    const int before = device_connected();
    DEVICE_MUST(before > 0);
    for (int i = 0; i < 3; i++) {
        int line = all_calls_over(c, k, rank, &groups[i]);
        if (line)
            return line;
    }
    DEVICE_MUST(device_connected() == before);
    return 0;
}

static void all_that_a_step_will_use_is_connected_before(void **state) {
    (void)state;
    const int layouts[][2] = { { 2, 2 }, { 2, 1 }, { 4, 4 }, { 4, 2 }, { 6, 2 }, { 5, 1 }, { 8, 4 } }; /* ranks, data */
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (int native = 0; native < 2; native++)
            assert_all_well(layouts[i][0],
                            (struct task){ .native = native, .data = layouts[i][1], .body = connect_nothing_new });
}

struct caller {
    struct gang *g;
    int rank;
    struct collective *c;
    char *there;
};

/* Each on a thread of its own that has not chosen the device, like the engine's second one. */
static void *post_from_elsewhere(void *arg) {
    struct caller *a = arg;
    struct err e = { "" };
    int recv, send;
    const bool well = collective_post_recv(a->c, COLLECTIVE_FORWARD, 1 - a->rank, a->there, 40, &recv, &e) == ST_OK &&
                      collective_post_send(a->c, COLLECTIVE_FORWARD, 1 - a->rank, a->there + 40, 40, &send, &e) ==
                          ST_OK;
    return well && recv == 0 && send == 1 ? a : NULL;
}

static void *finish_from_elsewhere(void *arg) {
    struct caller *a = arg;
    struct err e = { "" };
    return collective_finish(a->c, COLLECTIVE_FORWARD, 0, &e) == ST_OK &&
                   collective_finish(a->c, COLLECTIVE_FORWARD, 1, &e) == ST_OK
               ? a
               : NULL;
}

static void *sum_from_elsewhere(void *arg) {
    struct caller *a = arg;
    const struct collective_group world = collective_world(a->c);
    const int64_t cut[] = { 0, 10, 20 };
    struct err e = { "" };
    return collective_reduce_ordered(a->c, COLLECTIVE_DATA, &world, (float *)(void *)a->there, cut, &e) == ST_OK ? a
                                                                                                                 : NULL;
}

static void *gather_from_elsewhere(void *arg) {
    struct caller *a = arg;
    const struct collective_group world = collective_world(a->c);
    const int64_t cut[] = { 0, 10, 20 };
    struct err e = { "" };
    return collective_all_gather_pieces(a->c, COLLECTIVE_DATA, &world, a->there, 4, cut, &e) == ST_OK ? a : NULL;
}

static void *mark_from_elsewhere(void *arg) {
    struct caller *a = arg;
    struct err e = { "" };
    int ticket;
    return collective_mark(a->c, &ticket, &e) == ST_OK ? a : NULL;
}

static void *detach_from_elsewhere(void *arg) {
    struct caller *a = arg;
    collective_detach(a->c);
    return a;
}

static int join_ring_of_two(struct collective *c, int rank) {
    struct err e = { "" };
    const struct collective_link links[] = { { COLLECTIVE_FORWARD, 1 - rank, true },
                                             { COLLECTIVE_FORWARD, 1 - rank, false } };
    DEVICE_MUST(collective_connect(c, links, 2, &e) == ST_OK);
    return 0;
}

static int call_from_many_threads(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    void *(*const calls[])(void *) = { post_from_elsewhere,   finish_from_elsewhere, sum_from_elsewhere,
                                       gather_from_elsewhere, mark_from_elsewhere,   detach_from_elsewhere };
    struct caller a = { .g = g, .rank = rank, .c = c };
    struct err e = { "" };
    DEVICE_MUST(join_ring_of_two(c, rank) == 0);
    DEVICE_MUST(k->memory_new(k, 80, (void **)&a.there, &e) == ST_OK);
    DEVICE_MUST(k->fill(k, (float *)(void *)a.there, 0, 20, &e) == ST_OK);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        pthread_t thread;
        void *well = NULL;
        DEVICE_MUST(pthread_create(&thread, NULL, calls[i], &a) == 0);
        pthread_join(thread, &well);
        DEVICE_MUST(well);
    }
    k->memory_free(k, a.there);
    return 0;
}

static void each_thread_that_calls_chooses_the_device(void **state) {
    (void)state;
    assert_all_well(2, (struct task){ .body = call_from_many_threads });
}

static void *abort_from_elsewhere(void *arg) {
    struct caller *a = arg;
    gang_until(a->g, a->rank, 1);
    collective_abort(a->c, "enough");
    return NULL;
}

/* Nobody sends: what ends the wait is the abort, and who has waited learns that it was in vain. */
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

/* It is silent until rank 0 says so; time goes on when that waits. */
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

static struct device_gate gates[3]; /* of kernels that are long */

static void gates_shut(void) {
    for (size_t i = 0; i < sizeof gates / sizeof *gates; i++)
        gates[i] = (struct device_gate)DEVICE_GATE_SHUT;
}

/* The kernel takes longer than another rank may stay silent. Posted before it, queued behind it, and waited for behind
 * it. */
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

/* As a process that is killed: its sockets end, and NCCL has nothing to say. */
static int die(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    if (rank == 0)
        return await_rank_1(g, rank, c, k);
    gang_until(g, 0, 1);
    c->host->ops->abort(c->host, "killed");
    gang_until(g, 0, INT64_MAX);
    return 0;
}

/* Rank 1 dies of `body` once rank 0 waits: rank 0 learns of it while rank 1 still stands there. */
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

/* Rank 0's device stands still because of rank 1, with its queues full. */
static int die_while_nothing_answers(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    struct err e = { "" };
    DEVICE_MUST(collective_barrier(c, COLLECTIVE_CONTROL, &e) == ST_OK); /* both are attached, by asking */
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
        int first = 0; /* of both, or the one that the other learned it from */
        for (int r = 0; r < 2; r++) {
            first += g->status[r] == ST_INTERNAL && strstr(g->error[r].msg, "NCCL failed");
            assert_true(g->status[r] == ST_INTERNAL || g->status[r] == ST_UNAVAILABLE);
        }
        assert_true(first > 0);
        gang_free(g);
    }
}

/* Calls that others may wait behind are not waited for: two sums, one after the other, behind one long kernel. */
static int queue_twice(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    const struct collective_group world = collective_world(c);
    const int64_t cut[] = { 0, 10, 20 };
    struct err e = { "" };
    float *there = NULL, x[20];
    for (int i = 0; i < 20; i++)
        x[i] = 1;
    DEVICE_MUST(k->memory_new(k, sizeof x, (void **)&there, &e) == ST_OK);
    device_queue(cuda_of(k)->stream, device_gate_pass, &gates[0]);
    DEVICE_MUST(k->upload(k, there, x, sizeof x, &e) == ST_OK);
    for (int i = 0; i < 2; i++)
        DEVICE_MUST(collective_reduce_ordered(c, COLLECTIVE_DATA, &world, there, cut, &e) == ST_OK);
    DEVICE_MUST(device_follow(c, &e) == ST_OK);
    pthread_barrier_wait(&g->met); /* both have come here, and the kernel is still there */
    device_gate_open(&gates[0]);
    DEVICE_MUST(k->download(k, x, there, sizeof x, &e) == ST_OK && k->finish(k, &e) == ST_OK);
    for (int i = 0; i < 20; i++)
        DEVICE_MUST(x[i] == 4);
    k->memory_free(k, there);
    return 0;
}

static void calls_only_queue_and_come_one_after_the_other(void **state) {
    (void)state;
    gates_shut();
    assert_all_well(2, (struct task){ .body = queue_twice });
}

/* Rank 1 fails after the others have asked: they have not been told that all is well. */
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

/* Also a call in a group: left open, the group would hold up the abort. */
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
    device_await_failure(failed_before + 1); /* NCCL has told rank 0 */
    collective_abort(c, "enough");
    return device_sum_until_failure(g, rank, c, k);
}

static void who_failed_is_told_also_when_nccl_knows_first(void **state) {
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

/* Its streams: two of the kernels, two of DATA, and four links. */
static int connect_in_few_queues(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    const int next = (rank + 1) % g->world_size, before = (rank + g->world_size - 1) % g->world_size;
    const struct collective_link links[] = { { COLLECTIVE_FORWARD, next, true },
                                             { COLLECTIVE_FORWARD, before, false },
                                             { COLLECTIVE_BACKWARD, before, true },
                                             { COLLECTIVE_BACKWARD, next, false } };
    struct err e = { "" };
    (void)k;
    status_t st = collective_barrier(c, COLLECTIVE_CONTROL, &e); /* all are attached */
    if (st == ST_OK)
        st = collective_connect(c, links, 4, &e);
    gang_note(g, rank, st, &e);
    return 0;
}

static void a_pipeline_is_refused_where_its_streams_would_share_a_queue(void **state) {
    (void)state;
    static const struct {
        const char *queues;
        status_t status;
    } cases[] = { { "7", ST_FAILED_PRECONDITION }, { "8", ST_OK }, { NULL, ST_OK } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct task task = { .body = connect_in_few_queues };
        unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
        if (cases[i].queues)
            setenv("CUDA_DEVICE_MAX_CONNECTIONS", cases[i].queues, 1);
        struct gang *g = gang_start_threads(3, PATIENCE_MS, on_device, &task);
        bool named = false;
        for (int r = 0; r < 3; r++) {
            assert_int_equal(gang_await(g, r), 0);
            assert_true(g->status[r] == cases[i].status ||
                        (cases[i].status != ST_OK && g->status[r] == ST_UNAVAILABLE));
            named = named || strcmp(g->error[r].msg,
                                    "a rank of this pipeline has 8 streams, but CUDA_DEVICE_MAX_CONNECTIONS gives its "
                                    "device 7 queues for them, in which a receive could wait for ever: unset it") == 0;
        }
        assert_true(named == (cases[i].status != ST_OK));
        gang_free(g);
    }
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
}

/* Rank 1 meets the others, and then dies, or does nothing more: nothing is watched yet. */
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
    DEVICE_MUST(collective_exchange(c, COLLECTIVE_CONTROL, "", 0, all, &e) == ST_OK);
    for (int r = 0; r < 2; r++)
        bytes_done(&all[r]);
    if (*dies)
        c->host->ops->abort(c->host, "killed");
    while (!gang_until_most(g, 0, INT64_MAX, &(struct timespec){ .tv_nsec = 50000000 }))
        device_clocks_forward(*dies ? 0 : PATIENCE_MS, 0);
    return 0;
}

static void who_connects_learns_of_a_death_and_waits_for_nobody_for_ever(void **state) {
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

/* Rank 0 is in the midst of the split, which writes what it makes while it is aborted. */
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

/* Once both ranks ask their devices whether the trial is through, rank 1 dies; no answer comes until all is aborted. */
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
    DEVICE_MUST(collective_barrier(c, COLLECTIVE_CONTROL, &e) == ST_OK); /* both are attached, by asking */
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

/* Rank 1 has given up, and both know. */
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
        collective_all_gather_pieces(c, COLLECTIVE_DATA, &world, there, 4, cut, &told[1]),
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
        cmocka_unit_test(all_that_a_step_will_use_is_connected_before),
        cmocka_unit_test(each_thread_that_calls_chooses_the_device),
        cmocka_unit_test(what_an_abort_cuts_short_has_not_arrived),
        cmocka_unit_test(an_abort_may_come_while_the_device_is_detached),
        cmocka_unit_test(calls_only_queue_and_come_one_after_the_other),
        cmocka_unit_test(a_long_step_is_no_silence),
        cmocka_unit_test(a_call_behind_another_is_late_only_from_then_on),
        cmocka_unit_test(who_waits_for_the_device_alone_learns_of_a_death),
        cmocka_unit_test(a_death_is_known_where_the_device_answers_nothing),
        cmocka_unit_test(who_waits_for_the_device_alone_learns_of_the_failure_of_any_communicator),
        cmocka_unit_test(nothing_is_confirmed_that_one_rank_has_not_come_through),
        cmocka_unit_test(who_failed_is_told_also_when_nccl_knows_first),
        cmocka_unit_test(a_call_of_nccl_that_fails_ends_all_ranks),
        cmocka_unit_test(a_rank_that_gives_up_ends_the_calls_of_all_others),
        cmocka_unit_test(a_silent_rank_is_known_by_the_deadline),
        cmocka_unit_test(a_pipeline_is_refused_where_its_streams_would_share_a_queue),
        cmocka_unit_test(a_failure_is_repeated_by_every_later_call),
        cmocka_unit_test(who_connects_learns_of_a_death_and_waits_for_nobody_for_ever),
        cmocka_unit_test(a_split_that_is_cut_short_leaves_no_communicator_behind),
        cmocka_unit_test(what_an_abort_cuts_short_is_not_connected),
        cmocka_unit_test(a_transfer_that_nobody_asked_a_connection_for_is_told),
    };
    device_clocks_take();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
