/* Sums, unions, gathers and transfers between ranks over every transport; opening a collective, and its memory. */
#include "engine/collective/internal.h"
#include "engine/collective/shm_transport.h"
#include "tests/engine/gang_calls.h"
#include "tests/engine/ordered_sum.h"
#include "tests/sanitized.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* One reduce-scatter and the all-gather that reverses it, over a group that contains this rank. */
static int reduce_over(struct collective *c, int rank, const struct collective_group *group, int64_t n,
                       uint32_t *state) {
    struct err e = { "" };
    int64_t cut[GANG_RANKS + 1];
    int number = (rank - group->first) / group->stride, piece = collective_shard(number, group->count);
    draw_cuts(state, n, group->count, cut);
    CLEANUP(freep) float *x = malloc(((size_t)n + 1) * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = value_of(rank, i, n);
    x[n] = 42;
    MUST(collective_reduce_scatter_ordered(c, COLLECTIVE_DATA, group, x, cut, &e) == ST_OK);
    for (int64_t i = cut[piece]; i < cut[piece + 1]; i++) {
        float want = tree_over(group, 0, group->count, i, n);
        MUST(memcmp(&x[i], &want, sizeof want) == 0);
    }
    for (int64_t i = 0; i < n; i++)
        if (i < cut[piece] || i >= cut[piece + 1])
            x[i] = -1;
    MUST(collective_all_gather_shards(c, COLLECTIVE_DATA, group, x, sizeof *x, cut, &e) == ST_OK);
    for (int64_t i = 0; i < n; i++) {
        float want = tree_over(group, 0, group->count, i, n);
        MUST(memcmp(&x[i], &want, sizeof want) == 0);
    }
    MUST(x[n] == 42);
    return 0;
}

static int sums_equal_the_tree(struct gang *g, int rank, struct collective *c) {
    static const int64_t sizes[] = { 0, 1, 2, 3, 5, 7, 64, 1000, 100003, 700001 };
    uint32_t state = *(const uint32_t *)g->arg;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes - SANITIZED; s++)
        for (int count = 1; count <= g->world_size; count *= 2) {
            /* Adjacent ranks, as data ranks are, and ranks a stride apart: every rank is in one group of each kind. */
            struct collective_group near = { .first = rank / count * count, .stride = 1, .count = count };
            int stride = g->world_size / count;
            struct collective_group far = { .first = rank % stride, .stride = stride, .count = count };
            if (reduce_over(c, rank, &near, sizes[s], &state) || reduce_over(c, rank, &far, sizes[s], &state))
                return 1;
        }
    return 0;
}

static void an_ordered_sum_is_the_serial_tree_to_the_bit_for_any_cuts_and_groups(void **state) {
    (void)state;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint32_t seed = (uint32_t)now.tv_nsec;
    printf("# seed %u\n", seed);
    for (int P = 1; P <= GANG_RANKS; P *= 2)
        assert_all_well(P, sums_equal_the_tree, &seed);
}

static void piece_and_rank_are_each_others_bits_reversed(void **state) {
    (void)state;
    static const int want[8] = { 0, 4, 2, 6, 1, 5, 3, 7 };
    for (int j = 0; j < 8; j++) {
        assert_int_equal(collective_shard(j, 8), want[j]);
        assert_int_equal(collective_shard(j, 1), 0);
    }
}

/* Each rank fills in its own words of a long array; all request flags. Groups of any size, also three and five. */
static int unions_are_whole(struct gang *g, int rank, struct collective *c) {
    struct err e = { "" };
    enum { N = 200003 };
    const struct collective_group world = collective_world(c);
    CLEANUP(freep) uint64_t *x = calloc(N, sizeof *x);
    for (int i = rank; i < N; i += g->world_size)
        x[i] = (uint64_t)i * 0x9e3779b97f4a7c15ULL + 1;
    MUST(collective_or(c, COLLECTIVE_DATA, &world, x, N, &e) == ST_OK);
    for (int i = 0; i < N; i++)
        MUST(x[i] == (uint64_t)i * 0x9e3779b97f4a7c15ULL + 1);
    for (int n = 1; n <= 7; n++) {
        uint64_t flags[7] = { 0 };
        flags[n - 1] = (uint64_t)1 << rank;
        MUST(collective_or(c, COLLECTIVE_CONTROL, &world, flags, n, &e) == ST_OK);
        MUST(flags[n - 1] == ((uint64_t)1 << g->world_size) - 1);
    }
    return 0;
}

static void a_union_is_whole_on_every_rank_of_a_group_of_any_size(void **state) {
    (void)state;
    for (int P = 1; P <= GANG_RANKS; P++)
        assert_all_well(P, unions_are_whole, NULL);
}

enum { POSTED = 40, POSTED_FLOATS = 30000 };

/* Transfers between adjacent stages: many are posted before the first wait, they complete in another order, and both
 * channels are used at once. */
static int posted_transfers_match(struct gang *g, int rank, struct collective *c) {
    struct err e = { "" };
    int next = rank + 1 < g->world_size ? rank + 1 : -1, before = rank - 1;
    size_t n = POSTED_FLOATS;
    CLEANUP(freep) float *out = malloc(POSTED * n * sizeof *out), *in = malloc(POSTED * n * sizeof *in);
    int sends[2][POSTED], recvs[2][POSTED];
    for (size_t i = 0; i < POSTED * n; i++)
        out[i] = value_of(rank, (int64_t)i, 1);
    for (int k = 0; k < POSTED; k++) {
        size_t bytes = (n - (size_t)k) * sizeof *out;
        if (next >= 0)
            MUST(collective_post_send(c, COLLECTIVE_FORWARD, next, out + (size_t)k * n, bytes, &sends[0][k], &e) == 0);
        if (before >= 0) {
            MUST(collective_post_recv(c, COLLECTIVE_FORWARD, before, in + (size_t)k * n, bytes, &recvs[0][k], &e) == 0);
            MUST(collective_post_send(c, COLLECTIVE_BACKWARD, before, out, 4, &sends[1][k], &e) == ST_OK);
        }
    }
    for (int k = POSTED - 1; k >= 0 && before >= 0; k--) {
        MUST(collective_finish(c, COLLECTIVE_FORWARD, recvs[0][k], &e) == ST_OK);
        for (size_t i = 0; i < n - (size_t)k; i++)
            MUST(in[(size_t)k * n + i] == value_of(before, (int64_t)((size_t)k * n + i), 1));
    }
    float got[POSTED];
    for (int k = 0; k < POSTED && next >= 0; k++)
        MUST(collective_post_recv(c, COLLECTIVE_BACKWARD, next, &got[k], 4, &recvs[1][k], &e) == ST_OK);
    for (int k = 0; k < POSTED; k++) {
        if (next >= 0) {
            MUST(collective_finish(c, COLLECTIVE_FORWARD, sends[0][k], &e) == ST_OK);
            MUST(collective_finish(c, COLLECTIVE_BACKWARD, recvs[1][k], &e) == ST_OK && got[k] == value_of(next, 0, 1));
        }
        if (before >= 0)
            MUST(collective_finish(c, COLLECTIVE_BACKWARD, sends[1][k], &e) == ST_OK);
    }
    return 0;
}

static void posted_transfers_match_in_the_order_posted_and_finish_in_any(void **state) {
    (void)state;
    for (int P = 2; P <= 5; P++)
        assert_all_well(P, posted_transfers_match, NULL);
}

static int everything_small(struct gang *g, int rank, struct collective *c) {
    struct err e = { "" };
    int P = g->world_size;
    const struct collective_group world = collective_world(c);
    MUST(collective_rank(c) == rank && collective_world_size(c) == P && world.count == P);

    int all[GANG_RANKS], mine = 10 + rank;
    MUST(collective_all_gather(c, COLLECTIVE_CONTROL, &mine, sizeof mine, all, &e) == ST_OK);
    for (int r = 0; r < P; r++)
        MUST(all[r] == 10 + r);

    uint64_t flags = (uint64_t)1 << rank;
    MUST(collective_or(c, COLLECTIVE_CONTROL, &world, &flags, 1, &e) == ST_OK);
    MUST(flags == ((uint64_t)1 << P) - 1);

    struct bytes blobs[GANG_RANKS];
    for (int r = 0; r < P; r++)
        bytes_init(&blobs[r], 1 << 20);
    char blob[GANG_RANKS * 1000];
    memset(blob, 'A' + rank, sizeof blob);
    MUST(collective_all_gather_blobs(c, COLLECTIVE_CHECKPOINT, blob, (size_t)rank * 1000, blobs, &e) == ST_OK);
    for (int r = 0; r < P; r++) {
        MUST(blobs[r].len == (size_t)r * 1000 && (r == 0 || blobs[r].data[r * 1000 - 1] == 'A' + r));
        bytes_done(&blobs[r]);
    }

    /* A row by send and recv: even ranks send first. */
    int next = rank + 1, before = rank - 1, got = -1;
    for (int turn = 0; turn < 2; turn++) {
        if (rank % 2 == turn && next < P)
            MUST(collective_send(c, COLLECTIVE_FORWARD, next, &rank, sizeof rank, &e) == ST_OK);
        if (rank % 2 != turn && before >= 0)
            MUST(collective_recv(c, COLLECTIVE_FORWARD, before, &got, sizeof got, &e) == ST_OK);
    }
    MUST(got == before);
    MUST(collective_barrier(c, COLLECTIVE_CONTROL, &e) == ST_OK);
    return 0;
}

static void gathers_exchanges_and_flags_reach_every_rank(void **state) {
    (void)state;
    for (int P = 1; P <= GANG_RANKS; P++)
        assert_all_well(P, everything_small, NULL);
}

struct reducer {
    struct collective *c;
    int rank, P;
    bool ok;
};

static void *reduce_many(void *arg) {
    struct reducer *r = arg;
    enum { N = 50000 };
    CLEANUP(freep) float *x = malloc(N * sizeof *x);
    const struct collective_group world = collective_world(r->c);
    int64_t cut[GANG_RANKS + 1];
    uint32_t state = 1;
    draw_cuts(&state, N, r->P, cut);
    struct err e;
    for (int round = 0; round < 50; round++) {
        for (int64_t i = 0; i < N; i++)
            x[i] = value_of(r->rank, i, round);
        if (collective_reduce_ordered(r->c, COLLECTIVE_DATA, &world, x, cut, &e) != ST_OK)
            return NULL;
        for (int64_t i = 0; i < N; i += 997)
            if (x[i] != tree_over(&world, 0, r->P, i, round))
                return NULL;
    }
    r->ok = true;
    return NULL;
}

static int two_threads(struct gang *g, int rank, struct collective *c) {
    struct err e = { "" };
    struct reducer r = { c, rank, g->world_size, false };
    pthread_t thread;
    pthread_create(&thread, NULL, reduce_many, &r);
    for (int round = 0; round < 300; round++) {
        const struct collective_group world = collective_world(c);
        uint64_t x = (uint64_t)1 << (rank + round % 50);
        MUST(collective_or(c, COLLECTIVE_CONTROL, &world, &x, 1, &e) == ST_OK);
        MUST(x == (((uint64_t)1 << g->world_size) - 1) << round % 50);
    }
    pthread_join(thread, NULL);
    MUST(r.ok);
    return 0;
}

static void two_channels_work_at_once_from_two_threads(void **state) {
    (void)state;
    for (int P = 2; P <= 4; P *= 2)
        assert_all_well(P, two_threads, NULL);
}

static status_t no_rendezvous(void *ctx, const void *mine, size_t n, struct bytes *all, struct err *e) {
    (void)ctx, (void)mine, (void)n, (void)all;
    return err_set(e, ST_CANCELLED, "the rendezvous was called off");
}

/* --- ranks of one host ---*/

/* Whether this machine lets a process read the memory of another process of the same user. */
static bool processes_are_readable(void) {
    volatile char byte = 42;
    char found = 0;
    struct iovec local = { &found, 1 }, remote = { (void *)&byte, 1 };
    pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    bool read = process_vm_readv(child, &local, 1, &remote, 1, 0) == 1 && found == 42;
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return read;
}

static int count_the_near(struct gang *g, int rank, struct collective *c) {
    struct err e = { "" };
    for (int r = 0; r < g->world_size; r++)
        MUST(shm_transport_shares(c->host, r) == (r != rank && !g->sockets_only));
    return 0;
}

static void ranks_of_one_host_read_each_others_memory_unless_disabled(void **state) {
    (void)state;
    if (!processes_are_readable())
        skip();
    assert_int_equal(gang_end(gang_start(3, PATIENCE_MS, count_the_near, NULL)), 0);
    assert_int_equal(gang_end(gang_start_apart(3, PATIENCE_MS, count_the_near, NULL)), 0);
}

/* Rank 1 runs as another user, who may not read the memory of root, while root may read all memory. */
static void a_rank_that_may_not_read_its_peer_is_sent_to_through_a_socket(void **state) {
    (void)state;
    if (geteuid() != 0)
        skip();
    uint32_t seed = 1;
    struct gang *g = gang_new(4, PATIENCE_MS, &seed);
    fflush(NULL);
    for (int r = 0; r < 4; r++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(r == 1 && setresuid(65534, 65534, 65534) < 0 ? 91 : gang_child(g, r, sums_equal_the_tree));
        g->pids[r] = pid;
    }
    assert_int_equal(gang_end(g), 0);
}

#ifdef __SANITIZE_ADDRESS__
/* Not zero if the memory of the other rank cannot be read. */
extern int __lsan_do_recoverable_leak_check(void);

static void a_collective_gives_back_what_it_took(void **state) {
    (void)state;
    uint32_t seed = 1;
    struct gang *g = gang_new(2, PATIENCE_MS, &seed);
    fflush(NULL);
    for (int r = 0; r < 2; r++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(gang_child(g, r, sums_equal_the_tree) || __lsan_do_recoverable_leak_check());
        g->pids[r] = pid;
    }
    assert_int_equal(gang_end(g), 0);
}
#endif

static int send_another_length(struct gang *g, int rank, struct collective *c) {
    (void)g;
    struct err e = { "" };
    const size_t n = (size_t)(rank ? 300 : 200) << 10;
    CLEANUP(freep) char *all = calloc(2, n);
    status_t st = collective_all_gather(c, COLLECTIVE_DATA, all + (size_t)rank * n, n, all, &e);
    MUST(st == ST_CANCELLED || st == ST_UNAVAILABLE);
    MUST(st == ST_UNAVAILABLE || strstr(e.msg, "bytes, but"));
    return 0;
}

static void a_peer_that_offers_another_length_ends_both(void **state) {
    (void)state;
    if (!processes_are_readable())
        skip();
    assert_int_equal(gang_end(gang_start(2, PATIENCE_MS, send_another_length, NULL)), 0);
}

static void a_pipelines_process_loads_its_kernels_at_the_start_unless_disabled(void **state) {
    (void)state;
    struct err e;
    unsetenv("CUDA_MODULE_LOADING");
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    assert_int_equal(collective_device_environment(false, &e), ST_OK);
    assert_null(getenv("CUDA_MODULE_LOADING"));
    assert_string_equal(getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "32");
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "16", 1);
    assert_int_equal(collective_device_environment(true, &e), ST_OK);
    assert_string_equal(getenv("CUDA_MODULE_LOADING"), "EAGER");
    assert_string_equal(getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "16");
}

static atomic_int threads_left = INT_MAX; /* then the system refuses this thread and all later ones */

/* Also counts the threads that libstdc++ starts. */
int pthread_create(pthread_t *ret, const pthread_attr_t *attributes, void *(*body)(void *), void *arg) {
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    void *found = dlsym(RTLD_NEXT, "pthread_create");
    memcpy(&real, &found, sizeof real);
    return atomic_fetch_sub(&threads_left, 1) > 0 ? real(ret, attributes, body, arg) : EAGAIN;
}

static int has_opened(struct gang *gang, int rank, struct collective *c) {
    (void)gang, (void)rank, (void)c;
    return 0;
}

/* Gloo's loop, the watcher, the deadlines. */
static void ranks_that_get_no_threads_return_a_status(void **state) {
    (void)state;
    enum { THREADS = 3, REFUSED = 90 /* gang_child's */ };
    for (int n = 0; n <= THREADS; n++) {
        atomic_store(&threads_left, n);
        struct gang *g = gang_start(2, PATIENCE_MS, has_opened, NULL);
        atomic_store(&threads_left, INT_MAX);
        for (int r = 0; r < 2; r++)
            assert_int_equal(gang_await(g, r), n < THREADS ? REFUSED : 0);
        gang_free(g);
    }
}

static void what_cannot_be_opened_says_why(void **state) {
    (void)state;
    struct err e;
    struct collective *c = NULL;
    struct collective_config config = {
        .world_size = 0, .address = "127.0.0.1", .timeout_ms = 1000, .rendezvous = no_rendezvous
    };
    assert_int_equal(collective_open_gloo(&config, &c, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "world size 0 is outside 1 to 1024");
    assert_int_equal(collective_open_threads(0, 1000, &c, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "world size 0 is outside 1 to 1024");
    config.world_size = 2;
    config.rank = 2;
    assert_int_equal(collective_open_gloo(&config, &c, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "rank 2 is outside a world size of 2");
    config.rank = 0;
    assert_int_equal(collective_open_gloo(&config, &c, &e), ST_CANCELLED);
    assert_string_equal(e.msg, "the rendezvous was called off");
    config.address = "no such host";
    assert_int_equal(collective_open_gloo(&config, &c, &e), ST_NOT_FOUND);
    assert_non_null(strstr(e.msg, "the address 'no such host' of this host does not resolve"));
    assert_null(c);
}
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_ordered_sum_is_the_serial_tree_to_the_bit_for_any_cuts_and_groups),
        cmocka_unit_test(piece_and_rank_are_each_others_bits_reversed),
        cmocka_unit_test(a_union_is_whole_on_every_rank_of_a_group_of_any_size),
        cmocka_unit_test(posted_transfers_match_in_the_order_posted_and_finish_in_any),
        cmocka_unit_test(gathers_exchanges_and_flags_reach_every_rank),
        cmocka_unit_test(two_channels_work_at_once_from_two_threads),
        cmocka_unit_test(ranks_of_one_host_read_each_others_memory_unless_disabled),
        cmocka_unit_test(a_rank_that_may_not_read_its_peer_is_sent_to_through_a_socket),
#ifdef __SANITIZE_ADDRESS__
        cmocka_unit_test(a_collective_gives_back_what_it_took),
#endif
        cmocka_unit_test(a_peer_that_offers_another_length_ends_both),
        cmocka_unit_test(a_pipelines_process_loads_its_kernels_at_the_start_unless_disabled),
        cmocka_unit_test(ranks_that_get_no_threads_return_a_status),
        cmocka_unit_test(what_cannot_be_opened_says_why), /* last: Gloo's threads stay, so no fork may follow */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
