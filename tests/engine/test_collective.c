#include "executor/engine/collective/internal.h"
#include "tests/engine/gang.h"
#include "tests/engine/ordered_sum.h"
#include "tests/sanitized.h"

#include <dlfcn.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <cmocka.h>

/* A gang without news gives up after PATIENCE_MS; who is told knows long before, on a busy machine, too. */
enum { PATIENCE_MS = 20000, TOLD_MS = PATIENCE_MS / 4 };

/* In a child: what is not as it should be ends it, with the line. */
#define MUST(cond)                                                                                                     \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            fprintf(stderr, "# rank %d, line %d: %s (%s)\n", rank, __LINE__, #cond, e.msg);                            \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

/* Every call is tried over both transports, and over Gloo's with and without the memory of a common host. */
typedef struct gang *gang_starter(int world_size, int timeout_ms, gang_main *body, void *arg);
static gang_starter *const STARTERS[] = { gang_start, gang_start_apart, gang_start_threads };

static void assert_all_well(int world_size, gang_main *body, void *arg) {
    for (size_t i = 0; i < sizeof STARTERS / sizeof *STARTERS; i++)
        assert_int_equal(gang_end(STARTERS[i](world_size, PATIENCE_MS, body, arg)), 0);
}

/* One reduce-scatter, and its way back, over a group of which this rank is one. */
static int reduce_over(struct collective *c, int rank, const struct collective_group *group, int64_t n,
                       uint32_t *state) {
    struct err e = { "" };
    int64_t cut[GANG_RANKS + 1];
    int number = (rank - group->first) / group->stride, piece = collective_piece(number, group->count);
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
    MUST(collective_all_gather_pieces(c, COLLECTIVE_DATA, group, x, sizeof *x, cut, &e) == ST_OK);
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
            /* Neighbours, as data ranks are, and ranks a stride apart: every rank is in one group of each kind. */
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
        assert_int_equal(collective_piece(j, 8), want[j]);
        assert_int_equal(collective_piece(j, 1), 0);
    }
}

/* Each rank fills in its own words of a long array; all ask for flags. Groups of any size, also three and five. */
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

/* A pipeline's neighbours: many posted before any is waited for, finished in another order, both channels at once. */
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
    MUST(collective_exchange(c, COLLECTIVE_CHECKPOINT, blob, (size_t)rank * 1000, blobs, &e) == ST_OK);
    for (int r = 0; r < P; r++) {
        MUST(blobs[r].len == (size_t)r * 1000 && (r == 0 || blobs[r].data[r * 1000 - 1] == 'A' + r));
        bytes_done(&blobs[r]);
    }

    /* A row by send and recv: even ranks speak first. */
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

/* The calls in which a peer may be lost. */
enum call { CALL_REDUCE, CALL_SCATTER, CALL_GATHER, CALL_OR, CALL_OR_LONG, CALL_POSTED, CALLS };

static status_t call_once(struct collective *c, enum call call, float *x, int64_t n, struct err *e) {
    const struct collective_group world = collective_world(c);
    const int P = world.count, rank = collective_rank(c);
    int64_t cut[GANG_RANKS + 1];
    for (int j = 0; j <= P; j++)
        cut[j] = n * j / P;
    if (call == CALL_REDUCE)
        return collective_reduce_ordered(c, COLLECTIVE_DATA, &world, x, cut, e);
    if (call == CALL_SCATTER)
        return collective_reduce_scatter_ordered(c, COLLECTIVE_DATA, &world, x, cut, e);
    if (call == CALL_GATHER)
        return collective_all_gather_pieces(c, COLLECTIVE_DATA, &world, x, sizeof *x, cut, e);
    if (call == CALL_OR || call == CALL_OR_LONG)
        return collective_or(c, COLLECTIVE_DATA, &world, (uint64_t *)(void *)x, call == CALL_OR ? 9 : n / 2, e);
    int send, recv;
    TRY(collective_post_recv(c, COLLECTIVE_FORWARD, (rank + P - 1) % P, x, (size_t)n, &recv, e));
    TRY(collective_post_send(c, COLLECTIVE_FORWARD, (rank + 1) % P, x + n / 2, (size_t)n, &send, e));
    TRY(collective_finish(c, COLLECTIVE_FORWARD, recv, e));
    return collective_finish(c, COLLECTIVE_FORWARD, send, e);
}

/* Calls until it fails, and notes when and why. */
static int call_until_failure(struct gang *g, int rank, struct collective *c) {
    enum { N = 1 << 20 };
    const enum call call = *(const enum call *)g->arg;
    CLEANUP(freep) float *x = calloc(N, sizeof *x);
    struct err e = { "" };
    status_t st = ST_OK;
    while (st == ST_OK) {
        gang_advance(g, rank);
        st = call_once(c, call, x, N, &e);
    }
    gang_note(g, rank, st, &e);
    return 0;
}

/* Kills one rank of a gang in its calls: every survivor names it, none of them who left because of it. Returns how long
 * the last one took to know. */
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

/* TRAINYARD_KILLS for more of them, TRAINYARD_SEED for those of another run. */
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

/* Rank 1 dies while rank 0 is in no call at all: rank 0's next call fails at once, though it is with rank 2. */
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
            st = collective_recv(c, COLLECTIVE_CONTROL, 2, &byte, 1, &e); /* rank 3 waits for what never comes */
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
    pthread_barrier_wait(&g->met); /* nobody is still in the call that the abort would end */
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

/* Rank 0 has nothing more to do and closes; the others still talk to each other. */
static int leave_early(struct gang *g, int rank, struct collective *c) {
    struct err e = { "" };
    MUST(collective_barrier(c, COLLECTIVE_CONTROL, &e) == ST_OK);
    if (rank == 0) {
        gang_reach(g, 0, 1);
        return 0;
    }
    gang_until(g, 0, 1);
    int64_t begun = clock_mono_ms();
    char bytes[5000] = { 0 }, more = rank != 1; /* rank 3 says when it is enough */
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

static void a_rank_that_closes_in_order_disturbs_nobody(void **state) {
    (void)state;
    assert_all_well(4, leave_early, NULL);
}

/* Rank 0 leaves in order; rank 1 wants more of it, first by a call that waits already, then by a new one. */
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
                    assert_int_equal(g->status[r], r == quitter ? ST_CANCELLED : ST_UNAVAILABLE);
                    assert_string_equal(g->error[r].msg, says);
                }
                gang_free(g);
            }
}

/* Rank 2 gives up while rank 1 is stopped; rank 0 knows at once, and both wait for rank 1 with what they close. */
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

/* Rank 1 stops calling, until the others know. */
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

static int talk_past_each_other(struct gang *g, int rank, struct collective *c) {
    struct err e = { "" };
    char bytes[8] = { 0 };
    gang_note(g, rank,
              rank == 0 ? collective_send(c, COLLECTIVE_DATA, 1, bytes, 8, &e)
                        : collective_recv(c, COLLECTIVE_DATA, 0, bytes, 4, &e),
              &e);
    return 0;
}

static void threads_that_disagree_about_a_size_are_told(void **state) {
    (void)state;
    static const char what[] = "rank 0 sends 8 bytes where rank 1 receives 4";
    struct gang *g = gang_start_threads(2, PATIENCE_MS, talk_past_each_other, NULL);
    for (int r = 0; r < 2; r++)
        assert_int_equal(gang_await(g, r), 0);
    int second = g->status[1] == ST_INTERNAL; /* who came second tells */
    assert_int_equal(g->status[second], ST_INTERNAL);
    assert_string_equal(g->error[second].msg, what);
    assert_int_equal(g->status[!second], ST_UNAVAILABLE);
    assert_non_null(strstr(g->error[!second].msg, what));
    gang_free(g);
}

static status_t no_exchange(void *ctx, const void *mine, size_t n, struct bytes *all, struct err *e) {
    (void)ctx, (void)mine, (void)n, (void)all;
    return err_set(e, ST_CANCELLED, "the rendezvous was called off");
}

/* --- ranks of one host ---*/

/* Whether this machine lets one process of a user read another's memory. */
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
        MUST((c->near && c->near[r]) == (r != rank && !g->sockets_only));
    return 0;
}

static void ranks_of_one_host_read_each_others_memory_unless_told_not_to(void **state) {
    (void)state;
    if (!processes_are_readable())
        skip();
    assert_int_equal(gang_end(gang_start(3, PATIENCE_MS, count_the_near, NULL)), 0);
    assert_int_equal(gang_end(gang_start_apart(3, PATIENCE_MS, count_the_near, NULL)), 0);
}

/* Rank 1 is another user, who may not read the memory of root, while root may read anyone's. */
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
/* Not zero: there is something that nobody can free any more. */
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
    MUST(st == ST_UNAVAILABLE || strstr(e.msg, "bytes where"));
    return 0;
}

static void a_peer_that_offers_another_length_ends_both(void **state) {
    (void)state;
    if (!processes_are_readable())
        skip();
    assert_int_equal(gang_end(gang_start(2, PATIENCE_MS, send_another_length, NULL)), 0);
}

static void a_pipelines_process_loads_its_kernels_at_the_start_unless_told_otherwise(void **state) {
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

static atomic_int threads_left = INT_MAX; /* until the system refuses one, and each behind it */

/* Also what libstdc++ calls. */
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
        .world_size = 0, .address = "127.0.0.1", .timeout_ms = 1000, .exchange = no_exchange
    };
    assert_int_equal(collective_open_gloo(&config, &c, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "world size 0 is outside 1 to 1024");
    assert_int_equal(collective_open_virtual(0, 1000, &c, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "world size 0 is outside 1 to 1024");
    config.world_size = 2;
    config.rank = 2;
    assert_int_equal(collective_open_gloo(&config, &c, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "rank 2 is outside a world size of 2");
    config.rank = 0;
    assert_int_equal(collective_open_gloo(&config, &c, &e), ST_CANCELLED);
    assert_string_equal(e.msg, "the rendezvous was called off");
    config.address = "no such host";
    assert_int_equal(collective_open_gloo(&config, &c, &e), ST_INVALID_ARGUMENT);
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
        cmocka_unit_test(a_killed_rank_is_known_to_all_others_long_before_the_deadline),
        cmocka_unit_test(a_killed_rank_is_known_in_every_call),
        cmocka_unit_test(whenever_a_rank_is_killed_every_survivor_names_it),
        cmocka_unit_test(a_stopped_rank_is_known_by_the_deadline),
        cmocka_unit_test(a_death_reaches_ranks_that_wait_for_someone_else),
        cmocka_unit_test(an_abort_ends_this_ranks_calls_and_its_peers),
        cmocka_unit_test(a_rank_that_closes_in_order_disturbs_nobody),
        cmocka_unit_test(a_rank_that_closed_in_order_is_missed_at_once),
        cmocka_unit_test(a_rank_that_gives_up_ends_every_call_of_all_others),
        cmocka_unit_test(no_rank_closes_before_all_that_live_know_whose_end_it_was),
        cmocka_unit_test(a_silent_rank_of_a_process_is_known_by_the_deadline),
        cmocka_unit_test(threads_that_disagree_about_a_size_are_told),
        cmocka_unit_test(ranks_of_one_host_read_each_others_memory_unless_told_not_to),
        cmocka_unit_test(a_rank_that_may_not_read_its_peer_is_sent_to_through_a_socket),
#ifdef __SANITIZE_ADDRESS__
        cmocka_unit_test(a_collective_gives_back_what_it_took),
#endif
        cmocka_unit_test(a_peer_that_offers_another_length_ends_both),
        cmocka_unit_test(a_pipelines_process_loads_its_kernels_at_the_start_unless_told_otherwise),
        cmocka_unit_test(ranks_that_get_no_threads_return_a_status),
        cmocka_unit_test(what_cannot_be_opened_says_why), /* last: it leaves threads of Gloo behind no fork */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
