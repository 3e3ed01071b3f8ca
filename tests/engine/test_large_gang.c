/* A gang of real processes that is larger than what the message of a rendezvous could carry before its addresses were
 * packed (177 ranks): all ranks connect with each other over Gloo, gather and meet. */
#include "base/clock.h"
#include "base/limits.h"
#include "engine/collective/collective.h"
#include "tests/sanitized.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* A sanitized process takes several times as much memory. */
enum { RANKS = SANITIZED ? 24 : 192, TIMEOUT_MS = 120000 };

struct crowd {
    pthread_barrier_t all;
    char address[RANKS][LIMIT_RENDEZVOUS_BYTES];
    size_t bytes[RANKS];
    bool done[RANKS];
};

struct seat {
    struct crowd *crowd;
    int rank;
};

static status_t rendezvous(void *ctx, const void *mine, size_t n, struct bytes *all, struct err *e) {
    const struct seat *s = ctx;
    struct crowd *c = s->crowd;
    memcpy(c->address[s->rank], mine, n);
    c->bytes[s->rank] = n;
    pthread_barrier_wait(&c->all);
    for (int r = 0; r < RANKS; r++)
        TRY(bytes_append(&all[r], c->address[r], c->bytes[r], e));
    return ST_OK;
}

static status_t run_rank(struct crowd *crowd, int rank, struct err *e) {
    struct seat seat = { crowd, rank };
    char address[32]; /* one host has too few ports for the sockets of all ranks */
    snprintf(address, sizeof address, "127.0.1.%d", 1 + rank);
    const struct collective_config config = { .rank = rank,
                                              .world_size = RANKS,
                                              .address = address,
                                              .timeout_ms = TIMEOUT_MS,
                                              .rendezvous = rendezvous,
                                              .rendezvous_ctx = &seat,
                                              .sockets_only = true };
    CLEANUP(collective_closep) struct collective *c = NULL;
    int64_t square = (int64_t)rank * rank, squares[RANKS];
    TRY(collective_open_gloo(&config, &c, e));
    TRY(collective_all_gather(c, COLLECTIVE_CONTROL, &square, sizeof square, squares, e));
    for (int r = 0; r < RANKS; r++)
        if (squares[r] != (int64_t)r * r)
            return err_set(e, ST_INTERNAL, "rank %d sent %lld", r, (long long)squares[r]);
    TRY(collective_barrier(c, COLLECTIVE_CONTROL, e));
    crowd->done[rank] = true;
    return ST_OK;
}

static struct crowd *crowd_new(void) {
    struct crowd *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t shared;
    assert_ptr_not_equal(c, MAP_FAILED);
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&c->all, &shared, RANKS);
    return c;
}

/* The soft limit of open files is below what a rank needs, as in many shells. */
static void more_ranks_connect_than_a_message_could_once_carry(void **state) {
    (void)state;
    struct crowd *c = crowd_new();
    struct rlimit limit;
    const int64_t start = clock_mono_ms();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = RANKS;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int rank = 0; rank < RANKS; rank++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL); /* if a check fails, the others wait in vain */
            struct err e = { "" };
            const status_t st = run_rank(c, rank, &e);
            if (st != ST_OK)
                fprintf(stderr, "# rank %d: %s\n", rank, e.msg);
            _exit(st != ST_OK);
        }
    for (int i = 0; i < RANKS; i++) {
        int status;
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    size_t largest = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        assert_true(c->done[rank]);
        largest = c->bytes[rank] > largest ? c->bytes[rank] : largest;
    }
    print_message("%d ranks: %.1f s, %zu bytes for a rank's addresses\n", RANKS,
                  (double)(clock_mono_ms() - start) * 1e-3, largest);
    assert_true(largest > 0 && largest <= 256 + 2 * RANKS);
    munmap(c, sizeof *c);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(more_ranks_connect_than_a_message_could_once_carry) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
