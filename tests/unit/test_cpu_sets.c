/* Which CPUs a process may use, and which of them each rank of a host gets. */
#include "base/cleanup.h"
#include "base/file.h"
#include "executor/agent/core/cpu_sets.h"
#include "executor/agent/pinning.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

/* Nodes of equally many cores. With SMT the second CPU of core k is number (all cores) + k, as Linux numbers them. */
static int machine(int nodes, int cores, bool smt, struct cpu ret[CPUS_MAX]) {
    const int all = nodes * cores;
    for (int i = 0; i < all * (smt ? 2 : 1); i++)
        ret[i] = (struct cpu){ .number = i, .core = i % all, .node = i % all / cores };
    return all * (smt ? 2 : 1);
}

static int node_count(const struct cpu *cpus, int n, const struct cpu_mask *m) {
    uint64_t nodes = 0;
    for (int i = 0; i < n; i++)
        if (cpu_mask_has(m, cpus[i].number))
            nodes |= (uint64_t)1 << cpus[i].node;
    return __builtin_popcountll(nodes);
}

static int core_count(const struct cpu *cpus, int n, const struct cpu_mask *m) {
    int cores = 0;
    for (int i = 0; i < n; i++)
        cores += cpus[i].core == cpus[i].number && cpu_mask_has(m, cpus[i].number);
    return cores;
}

static bool overlap(const struct cpu_mask *a, const struct cpu_mask *b) {
    for (int i = 0; i < CPUS_MAX / 64; i++)
        if (a->bits[i] & b->bits[i])
            return true;
    return false;
}

/* Whole cores: both CPUs of a core, or none. */
static void assert_whole(const struct cpu *cpus, int n, const struct cpu_mask *m) {
    for (int i = 0; i < n; i++)
        assert_int_equal(cpu_mask_has(m, cpus[i].number), cpu_mask_has(m, cpus[i].core));
}

static void a_rank_alone_gets_all_cpus(void **state) {
    (void)state;
    struct cpu cpus[CPUS_MAX];
    const int n = machine(2, 32, true, cpus);
    struct cpu_set_wish rank = { .threads = 64 };
    cpu_sets_fill(cpus, n, &rank, 1);
    assert_int_equal(cpu_mask_count(&rank.ret), 128);
}

static void ranks_have_cores_of_their_own_on_one_node(void **state) {
    (void)state;
    static const int SHARES[][8] = {
        { 32, 32 }, { 16, 16, 16, 16 }, { 24, 24, 8, 8 }, { 8, 24, 24, 8 }, { 1, 31, 32 }
    };
    struct cpu cpus[CPUS_MAX];
    const int n = machine(2, 32, true, cpus);
    for (size_t s = 0; s < sizeof SHARES / sizeof *SHARES; s++) {
        struct cpu_set_wish ranks[8] = { { 0 } };
        size_t count = 0;
        for (; count < 8 && SHARES[s][count] > 0; count++)
            ranks[count].threads = SHARES[s][count];
        cpu_sets_fill(cpus, n, ranks, count);
        for (size_t r = 0; r < count; r++) {
            assert_int_equal(node_count(cpus, n, &ranks[r].ret), 1);
            assert_int_equal(core_count(cpus, n, &ranks[r].ret), ranks[r].threads);
            assert_int_equal(cpu_mask_count(&ranks[r].ret), 2 * ranks[r].threads);
            assert_whole(cpus, n, &ranks[r].ret);
            for (size_t other = 0; other < r; other++)
                assert_false(overlap(&ranks[r].ret, &ranks[other].ret));
        }
    }
}

/* 21 cores each: two fit on a node of their own, and the third has what is left of both. */
static void a_rank_that_fits_no_node_spans_them(void **state) {
    (void)state;
    struct cpu cpus[CPUS_MAX];
    const int n = machine(2, 32, true, cpus);
    struct cpu_set_wish ranks[] = { { .threads = 21 }, { .threads = 21 }, { .threads = 21 } };
    cpu_sets_fill(cpus, n, ranks, 3);
    assert_int_equal(node_count(cpus, n, &ranks[2].ret), 2);
    for (int r = 0; r < 3; r++)
        assert_whole(cpus, n, &ranks[r].ret);
    int without = 0; /* the core that is nobody's is open to the ranks of its node */
    for (int i = 0; i < n; i++)
        without += !cpu_mask_has(&ranks[0].ret, i) && !cpu_mask_has(&ranks[1].ret, i) &&
                   !cpu_mask_has(&ranks[2].ret, i);
    assert_int_equal(without, 0);
}

static void more_threads_than_cores_are_not_bound(void **state) {
    (void)state;
    struct cpu cpus[CPUS_MAX];
    const int n = machine(1, 3, false, cpus);
    struct cpu_set_wish ranks[] = { { .threads = 2 }, { .threads = 2 } };
    cpu_sets_fill(cpus, n, ranks, 2);
    assert_int_equal(cpu_mask_count(&ranks[1].ret), 3);
    cpu_sets_fill(cpus, 0, ranks, 2);
    assert_int_equal(cpu_mask_count(&ranks[0].ret), 0);
}

/* For any numbers of nodes, cores, siblings and ranks that the cores suffice for, each rank has at least its cores, and
 * shares none that another rank has counted. */
static void any_shares_have_distinct_cores(void **state) {
    (void)state;
    for (int nodes = 1; nodes <= 3; nodes++)
        for (int cores = 1; cores <= 5; cores++)
            for (int count = 1; count <= nodes * cores; count++) {
                struct cpu cpus[CPUS_MAX];
                const int n = machine(nodes, cores, cores % 2, cpus), each = nodes * cores / count;
                struct cpu_set_wish ranks[16] = { { 0 } };
                struct cpu_mask all = { { 0 } };
                for (int r = 0; r < count; r++)
                    ranks[r].threads = each;
                cpu_sets_fill(cpus, n, ranks, (size_t)count);
                for (int r = 0; r < count; r++) {
                    assert_true(core_count(cpus, n, &ranks[r].ret) >= each);
                    for (int i = 0; i < CPUS_MAX / 64; i++)
                        all.bits[i] |= ranks[r].ret.bits[i];
                }
                assert_true(core_count(cpus, n, &all) >= each * count);
            }
}

/* ---- what the system says ---- */

static void write_text(const char *folder, const char *path, const char *text) {
    char all[512];
    snprintf(all, sizeof all, "%s/%s", folder, path);
    for (char *at = all + strlen(folder) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(all, 0700);
        *at = '/';
    }
    assert_int_equal(file_write_atomic(all, text, strlen(text), 0600, NULL), ST_OK);
}

static struct cpu_mask mask_of(const int *numbers, int n) {
    struct cpu_mask m = { { 0 } };
    for (int i = 0; i < n; i++)
        cpu_mask_add(&m, numbers[i]);
    return m;
}

static void a_core_counts_once_and_only_where_it_is_allowed(void **state) {
    (void)state;
    char folder[] = "/tmp/cpu-topology-XXXXXX";
    assert_non_null(mkdtemp(folder));
    static const char *const SIBLINGS[] = { "0,4\n", "1,5\n", "2,6\n", "3,7\n", "0,4\n", "1,5\n", "2,6\n", "3,7\n" };
    for (int i = 0; i < 8; i++) {
        char path[80];
        snprintf(path, sizeof path, "cpu/cpu%d/topology/thread_siblings_list", i);
        write_text(folder, path, SIBLINGS[i]);
    }
    write_text(folder, "node/node0/cpulist", "0-1,4-5\n");
    write_text(folder, "node/node2/cpulist", "2-3,6-7\n"); /* nodes may be missing in between */
    struct cpu cpus[CPUS_MAX];
    const struct cpu_mask all = mask_of((const int[]){ 0, 1, 2, 3, 4, 5, 6, 7 }, 8);
    assert_int_equal(cpu_topology_of(folder, &all, cpus), 8);
    assert_int_equal(cpu_topology_cores(cpus, 8), 4);
    assert_int_equal(cpus[6].core, 2);
    assert_int_equal(cpus[6].node, 2);
    assert_int_equal(cpus[1].node, 0);

    const struct cpu_mask holes = mask_of((const int[]){ 1, 4, 5, 6 }, 4); /* cores 0 and 2 by their second CPU alone */
    assert_int_equal(cpu_topology_of(folder, &holes, cpus), 4);
    assert_int_equal(cpu_topology_cores(cpus, 4), 3);
    struct cpu_set_wish ranks[] = { { .threads = 1 }, { .threads = 1 }, { .threads = 1 } };
    cpu_sets_fill(cpus, 4, ranks, 3);
    for (int r = 0; r < 3; r++)
        for (int i = 0; i < CPUS_MAX; i++)
            assert_true(!cpu_mask_has(&ranks[r].ret, i) || cpu_mask_has(&holes, i));

    assert_int_equal(cpu_topology_of("/nowhere", &holes, cpus), 4); /* nothing is known: each is a core */
    assert_int_equal(cpu_topology_cores(cpus, 4), 4);
    assert_int_equal(dir_remove(folder, NULL), ST_OK);
}

static void the_system_tells_at_least_one_core(void **state) {
    (void)state;
    struct cpu cpus[CPUS_MAX];
    cpu_set_t set;
    const int n = cpu_topology_read(CPU_TOPOLOGY_ROOT, cpus);
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    assert_int_equal(n, CPU_COUNT(&set));
    assert_in_range(cpu_topology_cores(cpus, n), 1, n);
}

/* ---- binding ---- */

struct thread {
    pthread_t id;
    pthread_barrier_t *started, *end;
    pid_t number;
};

static void *thread_main(void *arg) {
    struct thread *t = arg;
    t->number = (pid_t)syscall(SYS_gettid);
    pthread_barrier_wait(t->started);
    pthread_barrier_wait(t->end);
    return NULL;
}

static void all_threads_of_a_process_are_bound(void **state) {
    (void)state;
    cpu_set_t before, now;
    struct cpu cpus[CPUS_MAX];
    assert_true(cpu_topology_read(CPU_TOPOLOGY_ROOT, cpus) > 0);
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    struct thread threads[3];
    pthread_barrier_t started, end;
    pthread_barrier_init(&started, NULL, 4);
    pthread_barrier_init(&end, NULL, 4);
    for (int i = 0; i < 3; i++) {
        threads[i] = (struct thread){ .started = &started, .end = &end };
        assert_int_equal(pthread_create(&threads[i].id, NULL, thread_main, &threads[i]), 0);
    }
    pthread_barrier_wait(&started);
    const struct cpu_mask one = mask_of(&cpus[0].number, 1), none = { { 0 } };
    assert_int_equal(process_pin(getpid(), &one, NULL), ST_OK);
    assert_int_equal(process_pin(getpid(), &none, NULL), ST_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sched_getaffinity(threads[i].number, sizeof now, &now), 0);
        assert_int_equal(CPU_COUNT(&now), 1);
        assert_true(CPU_ISSET(cpus[0].number, &now));
    }
    pthread_barrier_wait(&end);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i].id, NULL);
    pthread_barrier_destroy(&started);
    pthread_barrier_destroy(&end);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(process_pin(0x7ffffff0, &one, NULL), ST_OK); /* it has ended */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_alone_gets_all_cpus),
        cmocka_unit_test(ranks_have_cores_of_their_own_on_one_node),
        cmocka_unit_test(a_rank_that_fits_no_node_spans_them),
        cmocka_unit_test(more_threads_than_cores_are_not_bound),
        cmocka_unit_test(any_shares_have_distinct_cores),
        cmocka_unit_test(a_core_counts_once_and_only_where_it_is_allowed),
        cmocka_unit_test(the_system_tells_at_least_one_core),
        cmocka_unit_test(all_threads_of_a_process_are_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
