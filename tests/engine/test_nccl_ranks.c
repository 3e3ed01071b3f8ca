/* nccl_transport.c without a device: its ranks are threads, and CUDA and NCCL are stand-ins (nccl/device.c,
 * nccl/threads.c). The transport's own decisions are under test: which ranks exchange which data, when it is added,
 * which ranks are connected, and what a call waits for. */
#include "tests/engine/nccl/ranks.h"

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

static void receives_that_are_posted_early_block_no_other_transfer(void **state) {
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
    DEVICE_MUST(!halves || collective_all_gather_shards(c, COLLECTIVE_DATA, group, x, 4, cut, &e) == ST_OK);
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

/* Each call on its own thread, which has not selected the device, like the engine's second thread. */
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
    return collective_all_gather_shards(a->c, COLLECTIVE_DATA, &world, a->there, 4, cut, &e) == ST_OK ? a : NULL;
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

static struct device_gate gate = DEVICE_GATE_SHUT; /* of a long kernel */

/* Calls do not wait for earlier calls: two sums are queued one after the other behind one long kernel. */
static int queue_twice(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    const struct collective_group world = collective_world(c);
    const int64_t cut[] = { 0, 10, 20 };
    struct err e = { "" };
    float *there = NULL, x[20];
    for (int i = 0; i < 20; i++)
        x[i] = 1;
    DEVICE_MUST(k->memory_new(k, sizeof x, (void **)&there, &e) == ST_OK);
    device_queue(cuda_of(k)->stream, device_gate_pass, &gate);
    DEVICE_MUST(k->upload(k, there, x, sizeof x, &e) == ST_OK);
    for (int i = 0; i < 2; i++)
        DEVICE_MUST(collective_reduce_ordered(c, COLLECTIVE_DATA, &world, there, cut, &e) == ST_OK);
    DEVICE_MUST(device_follow(c, &e) == ST_OK);
    pthread_barrier_wait(&g->met); /* both ranks are here, and the kernel still runs */
    device_gate_open(&gate);
    DEVICE_MUST(k->download(k, x, there, sizeof x, &e) == ST_OK && k->finish(k, &e) == ST_OK);
    for (int i = 0; i < 20; i++)
        DEVICE_MUST(x[i] == 4);
    k->memory_free(k, there);
    return 0;
}

static void calls_only_queue_and_come_one_after_the_other(void **state) {
    (void)state;
    assert_all_well(2, (struct task){ .body = queue_twice });
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
            named = named ||
                    strcmp(g->error[r].msg,
                           "a rank of this pipeline uses 8 CUDA streams, but CUDA_DEVICE_MAX_CONNECTIONS allows only "
                           "7 hardware queues, so that a receive could wait for ever: unset the variable") == 0;
        }
        assert_true(named == (cases[i].status != ST_OK));
        gang_free(g);
    }
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
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

static void a_transfer_without_a_declared_link_is_an_error(void **state) {
    (void)state;
    struct task task = { .body = post_to_a_stranger };
    struct gang *g = gang_start_threads(2, PATIENCE_MS, on_device, &task);
    for (int r = 0; r < 2; r++)
        assert_int_equal(gang_await(g, r), 0);
    assert_int_equal(g->status[0], ST_INTERNAL);
    assert_string_equal(g->error[0].msg,
                        "rank 0 sends to rank 1 without a connection: collective_connect did not name this link");
    assert_int_equal(g->status[1], ST_UNAVAILABLE);
    gang_free(g);
}
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_on_a_device_are_the_serial_tree_to_the_bit),
        cmocka_unit_test(a_native_sum_is_right),
        cmocka_unit_test(a_union_of_device_memory_is_whole_on_every_rank),
        cmocka_unit_test(receives_that_are_posted_early_block_no_other_transfer),
        cmocka_unit_test(all_that_a_step_will_use_is_connected_before),
        cmocka_unit_test(each_thread_that_calls_chooses_the_device),
        cmocka_unit_test(calls_only_queue_and_come_one_after_the_other),
        cmocka_unit_test(a_pipeline_is_refused_where_its_streams_would_share_a_queue),
        cmocka_unit_test(a_transfer_without_a_declared_link_is_an_error),
    };
    device_clocks_take();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
