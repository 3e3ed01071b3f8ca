/* The step loop allocates nothing. The test counts every allocation of the process, from any thread and library, during
 * steps and evaluations. oneDNN allocates its argument lists (some hundred bytes) in each call, and without AVX-512 the
 * buffers in which its products pack their operands. So the test proves that nothing else allocates a buffer (a page or
 * more), and that not one byte remains allocated. */
#include "tests/engine/trainee.h"

#include <dlfcn.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include <cmocka.h>

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNTS 1
#else
#define COUNTS 0
#endif

enum { FROM = 4, TO = 10, BUFFER_BYTES = 4096 };

static atomic_bool counting;
static atomic_int buffers;

#if COUNTS
/* glibc's own functions, under names that remain if a program replaces the public ones. */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

/* True for a caller in oneDNN on a processor where its products allocate. */
static bool is_product(const void *caller) {
    Dl_info from;
    return !__builtin_cpu_supports("avx512f") && dladdr(caller, &from) && from.dli_fname &&
           strstr(from.dli_fname, "libdnnl");
}

static void count(size_t n, const void *caller) {
    if (n >= BUFFER_BYTES && atomic_load(&counting) && !is_product(caller))
        atomic_fetch_add(&buffers, 1);
}

void *malloc(size_t n) {
    count(n, __builtin_return_address(0));
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size) {
    count(n * size, __builtin_return_address(0));
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n) {
    count(n, __builtin_return_address(0));
    return __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n) {
    count(n, __builtin_return_address(0));
    return __libc_memalign(align, n);
}

int posix_memalign(void **ret, size_t align, size_t n) {
    count(n, __builtin_return_address(0));
    *ret = __libc_memalign(align, n);
    return *ret ? 0 : 12;
}
#endif

struct counted {
    struct trainee *trainee;
    int buffers, control;
    size_t in_use[2]; /* bytes of the heap at FROM and at TO */
};

static size_t heap_in_use(void) {
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void count_steps(void *ctx, int64_t step, bool per_rank, const struct engine_metric *m, int n) {
    (void)m, (void)n;
    struct counted *c = ctx;
    if (!per_rank || (step != FROM && step != TO))
        return;
    c->in_use[step == TO] = heap_in_use();
    atomic_store(&counting, step == FROM);
}

static int counted_main(struct gang *gang, int rank, struct collective *collective) {
    (void)rank;
    struct counted *c = gang->arg;
    struct engine_hooks hooks = { .ctx = c, .metrics = count_steps };
    struct err e;
    enum engine_outcome outcome;
    CLEANUP(engine_closep) struct engine *engine = NULL;
    struct engine_config config = c->trainee->config;
    config.layout.data = 1;
    config.threads = 2;
    if (engine_open(&config, collective, &hooks, &engine, &e) != ST_OK || engine_run(engine, &outcome, &e) != ST_OK) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    c->buffers = atomic_load(&buffers);
    atomic_store(&counting, true);
    CLEANUP(freep) void *probe = calloc(1, (size_t)BUFFER_BYTES + (size_t)c->buffers); /* proves that counting works */
    c->control = probe ? atomic_load(&buffers) - c->buffers : 0;
    return 0;
}

static void the_step_loop_allocates_nothing(void **state) {
    (void)state;
    if (!COUNTS)
        skip(); /* a sanitizer has its own allocator */
    struct trainee *t = trainee_new();
    struct counted *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(c != MAP_FAILED);
    c->trainee = t;
    t->config.train.steps = 12;
    struct gang *g = gang_start(1, 1000, counted_main, c);
    int code = gang_await(g, 0);
    gang_free(g);
    assert_int_equal(code, 0);
    assert_int_equal(c->control, 1);
    assert_int_equal(c->buffers, 0);
    assert_int_equal(c->in_use[1], c->in_use[0]);
    munmap(c, sizeof *c);
    trainee_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_step_loop_allocates_nothing) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
