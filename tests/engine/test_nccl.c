/* The parts of NCCL's use that need no device: loading the library by its name, the message if that fails, and sending
 * rank 0's id to all ranks. test_nccl_ranks tests communicators over stand-ins, and tests/gpu on a device. */
#include "engine/collective/nccl_library.h"
#include "tests/engine/gang.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { PATIENCE_MS = 20000 };

static status_t rendezvous_on(void *ctx, const void *mine, size_t n, struct bytes *all, struct err *e) {
    return collective_all_gather_blobs(ctx, COLLECTIVE_CONTROL, mine, n, all, e);
}

static int meet(struct gang *g, int rank, struct collective *c) {
    const struct nccl_library *nccl;
    struct device_gang gang = {
        .rank = rank, .world_size = g->world_size, .rendezvous = rendezvous_on, .rendezvous_ctx = c
    };
    struct err e = { "" };
    ncclUniqueId id = { { 0 } };
    static const ncclUniqueId zero;
    if (nccl_library_open(&nccl, &e) != ST_OK || nccl_share_id(nccl, &gang, &id, &e) != ST_OK) {
        fprintf(stderr, "# rank %d: %s\n", rank, e.msg);
        return 1;
    }
    memcpy(g->blobs[rank], &id, sizeof id);
    return memcmp(&id, &zero, sizeof id) == 0;
}

static void rank_0s_id_reaches_every_rank(void **state) {
    (void)state;
    const struct nccl_library *nccl;
    struct err e;
    if (nccl_library_open(&nccl, &e) != ST_OK) {
        print_message("# skipped: %s\n", e.msg);
        skip();
    }
    for (int P = 2; P <= 4; P *= 2) {
        struct gang *g = gang_start_threads(P, PATIENCE_MS, meet, NULL);
        for (int r = 0; r < P; r++)
            assert_int_equal(gang_await(g, r), 0);
        for (int r = 1; r < P; r++)
            assert_memory_equal(g->blobs[r], g->blobs[0], sizeof(ncclUniqueId));
        gang_free(g);
    }
}

static void what_a_job_tunes_is_in_the_environment_that_nccl_reads(void **state) {
    (void)state;
    struct err e;
    const struct nccl_library nccl = { .version = 22403 };
    const struct collective_tuning ring = { .buffer_bytes = 1 << 20, .algorithm = "Ring", .protocol = "" };
    const struct collective_tuning sharp = { .algorithm = "CollnetDirect", .protocol = "LL128" };
    unsetenv("NCCL_PROTO");
    assert_int_equal(nccl_tune(&nccl, &ring, &e), ST_OK);
    assert_string_equal(getenv("NCCL_BUFFSIZE"), "1048576");
    assert_string_equal(getenv("NCCL_ALGO"), "allreduce:Ring");
    assert_null(getenv("NCCL_PROTO"));
    assert_null(getenv("NCCL_COLLNET_ENABLE"));
    assert_int_equal(nccl_tune(&nccl, &sharp, &e), ST_OK);
    assert_string_equal(getenv("NCCL_ALGO"), "allreduce:CollnetDirect");
    assert_string_equal(getenv("NCCL_PROTO"), "allreduce:LL128;reduce:LL128");
    assert_string_equal(getenv("NCCL_COLLNET_ENABLE"), "1");
}

/* It would choose the algorithm for gathers too, which have only one, and fail in the first of them. */
static void an_nccl_without_settings_per_call_refuses_an_algorithm(void **state) {
    (void)state;
    struct err e;
    const struct nccl_library nccl = { .version = 22304 };
    const struct collective_tuning none = { .buffer_bytes = 1 << 16 }, tree = { .algorithm = "Tree" };
    assert_int_equal(nccl_tune(&nccl, &none, &e), ST_OK);
    assert_int_equal(nccl_tune(&nccl, &tree, &e), ST_FAILED_PRECONDITION);
    assert_string_equal(
        e.msg, "parallel.nccl: an algorithm or a protocol for sums needs NCCL 2.24 or later, and this host has "
               "2.23");
}

/* Returns the library's error message in a child process whose loader searches `directory`. */
static void opening_says(const char *directory, char *ret, size_t n) {
    int out[2];
    assert_int_equal(pipe(out), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(out[1], STDOUT_FILENO);
        close(out[0]);
        close(out[1]);
        setenv("LD_LIBRARY_PATH", directory, 1);
        execl("/proc/self/exe", "test_nccl", "open", (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    ssize_t got = read(out[0], ret, n - 1);
    ret[got > 0 ? got : 0] = '\0';
    close(out[0]);
    waitpid(pid, NULL, 0);
}

static void a_library_that_is_missing_or_too_old_is_one_sentence(void **state) {
    (void)state;
    char said[512];
    opening_says(NCCL_OLD_DIRECTORY, said, sizeof said);
    assert_string_equal(said, "FAILED_PRECONDITION: NCCL 2.14 is older than 2.18, the oldest supported version\n");
    opening_says(NCCL_BARE_DIRECTORY, said, sizeof said);
    assert_string_equal(said, "FAILED_PRECONDITION: libnccl.so.2 has no ncclGetVersion\n");
    opening_says("/nowhere", said, sizeof said);
    if (strcmp(said, "OK\n") == 0) /* the NCCL of this system */
        skip();
    assert_string_equal(said,
                        "FAILED_PRECONDITION: cannot load NCCL, which ranks on CUDA need to communicate: libnccl.so.2: "
                        "cannot open shared object file: No such file or directory\n");
}

static int open_and_say(void) {
    const struct nccl_library *nccl;
    struct err e = { "" };
    status_t st = nccl_library_open(&nccl, &e);
    printf(st == ST_OK ? "OK\n" : "%s: %s\n", status_name(st), e.msg);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "open") == 0)
        return open_and_say();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_0s_id_reaches_every_rank),
        cmocka_unit_test(what_a_job_tunes_is_in_the_environment_that_nccl_reads),
        cmocka_unit_test(an_nccl_without_settings_per_call_refuses_an_algorithm),
        cmocka_unit_test(a_library_that_is_missing_or_too_old_is_one_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
