/* The three tables, the twin arrays and the comparisons of pair.h.
 *
 * A case runs ROUNDS times in each precision, with a new seed each time, so that its shapes differ. Every array has a
 * copy for each side, between AROUND bytes of WATCH on either side. Outputs start as NaNs (POISON), so that an element
 * that a kernel does not write fails the comparison. At the end of a case check_all verifies that no watched byte has
 * changed and that the sides ONE and MANY, which differ in grid and order of threads, have equal bits in every array.
 * The comparisons with the CPU have a tolerance relative to the value and to the largest value of the array, because a
 * kernel may add in another order than the plain loop. */
#include "tests/kernels/cuda/pair.h"

#include "kernels/philox.h"
#include "tests/sanitized.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* AROUND: watched bytes on either side of an array, a multiple of any alignment. */
enum { ROUNDS = SANITIZED ? 2 : 5, AROUND = 512, WATCH = 0xa5, POISON = 0xff };

/* --- random numbers ------------------------------------------------------------------------------------------------*/
static uint32_t draw(struct pair *p) {
    uint32_t counter[4] = { (uint32_t)p->seed, (uint32_t)(p->seed >> 32), 0, 0 }, four[4];
    p->seed++;
    philox4x32_10(counter, 0, four);
    return four[0];
}

int64_t pair_between(struct pair *p, int64_t least, int64_t most) {
    return least + (int64_t)(draw(p) % (uint64_t)(most - least + 1));
}

bool pair_either(struct pair *p) { return draw(p) % 2; }

double pair_fraction(struct pair *p) { return draw(p) / 4294967296.0; }

/* --- arrays --------------------------------------------------------------------------------------------------------*/
static size_t bytes_of(const struct twin *t) { return (size_t)t->n * t->each; }

static struct twin *twin_new(struct pair *p, int64_t n, size_t each, bool elements) {
    struct twin *t = calloc(1, sizeof *t);
    assert_true(t && p->count < (int)(sizeof p->twins / sizeof *p->twins));
    *t = (struct twin){ .n = n, .each = each, .elements = elements };
    const size_t shift = pair_either(p) ? 0 : (size_t)pair_between(p, 0, 7) * each;
    for (int s = 0; s < SIDES; s++) {
        const size_t bytes = 2 * AROUND + bytes_of(t) + shift;
        char *buffer = pair_memory(bytes);
        memset(buffer, WATCH, bytes);
        t->at[s] = buffer + AROUND + shift;
        memset(t->at[s], POISON, bytes_of(t));
        p->buffers[p->count][s] = buffer;
    }
    p->twins[p->count++] = t;
    return t;
}

static struct twin *twin_of(struct pair *p, int64_t n, size_t each, bool elements, const void *values) {
    struct twin *t = twin_new(p, n, each, elements);
    for (int s = 0; s < SIDES; s++)
        memcpy(t->at[s], values, bytes_of(t));
    return t;
}

struct twin *pair_elements(struct pair *p, int64_t n, float scale) {
    CLEANUP(freep) element_t *x = elements_random(p->k[CPU], n, draw(p), scale);
    return twin_of(p, n, kernels_element_bytes(p->k[CPU]), true, x);
}

struct twin *pair_floats(struct pair *p, int64_t n, float scale) {
    CLEANUP(freep) float *x = tensor_random(n, draw(p), scale);
    return twin_of(p, n, sizeof *x, false, x);
}

struct twin *pair_tokens(struct pair *p, int64_t n, int64_t end) {
    CLEANUP(freep) int32_t *x = tokens_random(n, draw(p), (int32_t)end);
    return twin_of(p, n, sizeof *x, false, x);
}

struct twin *pair_empty(struct pair *p, int64_t n) {
    return twin_new(p, n, kernels_element_bytes(p->k[CPU]), true);
}
struct twin *pair_empty_floats(struct pair *p, int64_t n) {
    return twin_new(p, n, sizeof(float), false);
}
struct twin *pair_empty_doubles(struct pair *p, int64_t n) {
    return twin_new(p, n, sizeof(double), false);
}

struct twin *pair_word(struct pair *p, int64_t word) {
    struct twin *t = pair_empty_doubles(p, 1);
    for (int s = 0; s < SIDES; s++)
        *(int64_t *)t->at[s] = word;
    return t;
}

struct twin *pair_gradient(struct pair *p, int64_t n, bool accumulate) {
    return accumulate ? pair_floats(p, n, 1) : pair_empty_floats(p, n);
}

struct twin *pair_in_place(struct pair *p, struct twin *t) {
    return pair_either(p) ? t : pair_empty(p, t->n);
}

static bool watched(const char *from, const char *to) {
    while (from < to && (unsigned char)*from == WATCH)
        from++;
    return from == to;
}

/* The last workspace of each side. It is freed by the next one, because a device table uses it until its work has run.
 */
static struct workspace {
    char *buffer;
    size_t bytes;
} workspaces[SIDES];

static void check_workspace(const struct pair *p, int s) {
    const struct workspace *w = &workspaces[s];
    if (w->buffer && !watched(w->buffer + w->bytes, w->buffer + w->bytes + AROUND))
        fail_msg("%s, side %d: a workspace of %zu bytes was written past its end", precision_name(p->precision), s,
                 w->bytes);
}

void *pair_workspace(struct pair *p, int s, size_t bytes) {
    struct workspace *w = &workspaces[s];
    check_workspace(p, s);
    pair_memory_free(w->buffer);
    *w = (struct workspace){ pair_memory(bytes + AROUND), bytes };
    memset(w->buffer, POISON, bytes);
    memset(w->buffer + bytes, WATCH, AROUND);
    return w->buffer;
}

/* --- comparisons ---------------------------------------------------------------------------------------------------*/
/* The step of bf16 and fp16 numbers near 1. For fp32, ten standard deviations of the rounding error of a sum of some
 * thousand floats: seeds are random, so that a closer limit would fail once in some hundred runs. */
static const double STEP[] = { [KERNELS_FP32] = 1e-5, [KERNELS_BF16] = 0x1p-7, [KERNELS_FP16] = 0x1p-10 };
static double step_of(const struct pair *p, const struct twin *t) {
    return t->each == sizeof(double) ? 1e-12 : STEP[t->elements ? p->precision : KERNELS_FP32];
}

static double number_at(const struct pair *p, const struct twin *t, int s, int64_t i) {
    if (t->each == sizeof(double))
        return ((const double *)t->at[s])[i];
    float x = 0;
    if (t->elements)
        OK(p->k[CPU]->convert_to_fp32(p->k[CPU], &x, (const char *)t->at[s] + (size_t)i * t->each, 1, e));
    else
        x = ((const float *)t->at[s])[i];
    return x;
}

/* The numbers of an array that are wrong. */
struct wrong {
    int64_t n, first, worst;
    double by; /* the largest difference; infinite if a number is NaN */
};

static void wrong_add(struct wrong *w, int64_t i, double got, double want) {
    const double by = isnan(got) ? (double)INFINITY : fabs(got - want);
    if (w->n == 0)
        w->first = w->worst = i;
    if (by > w->by) {
        w->worst = i;
        w->by = by;
    }
    w->n++;
}

static void wrong_tell(const struct pair *p, const char *what, const struct twin *t, const struct wrong *w) {
    if (w->n > 0)
        fail_msg("%s, round %d: %lld of %s[%lld] are wrong: [%lld] is %.9g, not %.9g; the worst, [%lld], is %.9g, not "
                 "%.9g",
                 precision_name(p->precision), p->round, (long long)w->n, what, (long long)t->n, (long long)w->first,
                 number_at(p, t, ONE, w->first), number_at(p, t, CPU, w->first), (long long)w->worst,
                 number_at(p, t, ONE, w->worst), number_at(p, t, CPU, w->worst));
}

static double largest_of(struct pair *p, const struct twin *t) {
    double largest = 0;
    for (int64_t i = 0; i < t->n; i++)
        largest = fmax(largest, fabs(number_at(p, t, CPU, i)));
    return largest;
}

/* Numbers that are small relative to `size` may have lost more digits. */
static void close_to(struct pair *p, const char *what, const struct twin *t, double most, double size) {
    struct wrong wrong = { 0 };
    for (int64_t i = 0; i < t->n; i++) {
        const double want = number_at(p, t, CPU, i), got = number_at(p, t, ONE, i);
        if (!(fabs(got - want) <= most * (fabs(want) + 0.05 * size + 1e-30)))
            wrong_add(&wrong, i, got, want);
    }
    wrong_tell(p, what, t, &wrong);
}

void pair_close(struct pair *p, const char *what, const struct twin *t, double factor) {
    close_to(p, what, t, factor * step_of(p, t), largest_of(p, t));
}

void pair_close_average(struct pair *p, const char *what, const struct twin *t, const struct twin *of, double factor) {
    close_to(p, what, t, factor * step_of(p, t), largest_of(p, of));
}

void pair_close_elements(struct pair *p, const char *what, const struct twin *t, double factor) {
    close_to(p, what, t, factor * STEP[p->precision], largest_of(p, t));
}

void pair_same(struct pair *p, const char *what, const struct twin *t) {
    struct wrong wrong = { 0 };
    for (int64_t i = 0; i < t->n; i++) {
        const size_t at = (size_t)i * t->each;
        if (memcmp((char *)t->at[CPU] + at, (char *)t->at[ONE] + at, t->each) != 0)
            wrong_add(&wrong, i, number_at(p, t, ONE, i), number_at(p, t, CPU, i));
    }
    wrong_tell(p, what, t, &wrong);
}

/* At the end of a case: no byte around an array was written, and no bit depends on the grid or the order of threads. */
static void check_all(struct pair *p) {
    for (int s = 0; s < SIDES; s++)
        check_workspace(p, s);
    for (int i = 0; i < p->count; i++) {
        const struct twin *t = p->twins[i];
        for (int s = 0; s < SIDES; s++) {
            const char *begin = t->at[s], *end = begin + bytes_of(t);
            if (!watched(p->buffers[i][s], begin) || !watched(end, end + AROUND))
                fail_msg("%s, side %d: array %d of the case was written past its ends", precision_name(p->precision), s,
                         i);
        }
        for (int64_t j = 0; j < t->n; j++)
            if (memcmp((char *)t->at[ONE] + (size_t)j * t->each, (char *)t->at[MANY] + (size_t)j * t->each, t->each) !=
                0)
                fail_msg("%s, round %d: array %d of the case depends on the grid or on the order of threads: [%lld of "
                         "%lld] is %.9g and %.9g",
                         precision_name(p->precision), p->round, i, (long long)j, (long long)t->n,
                         number_at(p, t, ONE, j), number_at(p, t, MANY, j));
    }
}

static void free_all(struct pair *p) {
    for (int i = 0; i < p->count; i++) {
        for (int s = 0; s < SIDES; s++)
            pair_memory_free(p->buffers[i][s]);
        free(p->twins[i]);
    }
    p->count = 0;
}

/* --- cases ---------------------------------------------------------------------------------------------------------*/
static void run_precision(void (*body)(struct pair *p), enum kernels_precision precision, uint64_t seed) {
    CLEANUP(kernels_closep) struct kernels *cpu = kernels_of_precision(KERNELS_ISA_PLAIN, 1, precision);
    struct pair p = { .k = { [CPU] = cpu }, .precision = precision, .seed = seed };
    pair_tables_open(&p);
    for (p.round = (int)precision * ROUNDS; p.round < ((int)precision + 1) * ROUNDS; p.round++) {
        pair_order(p.seed);
        body(&p);
        check_all(&p);
        free_all(&p);
    }
    pair_tables_close(&p);
}

void pair_run(void (*body)(struct pair *p)) {
    const char *given = getenv("TRAINYARD_SEED");
    const uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    print_message("# TRAINYARD_SEED=%llu\n", (unsigned long long)seed);
    for (int precision = KERNELS_FP32; precision <= KERNELS_FP16; precision++)
        run_precision(body, (enum kernels_precision)precision, seed << 20);
}
