/* Compares the kernels of kernels/cuda with the CPU's plain kernels. Every case runs on three tables of one precision,
 * and all its outputs are compared.
 *
 *     static void gelu(struct pair *p) {
 *         const int64_t n = pair_between(p, 1, 5000);
 *         struct twin *x = pair_elements(p, n, 3), *y = pair_empty(p, n);
 *         ON_ALL(p, k->gelu_forward(k, y->at[s], x->at[s], n, e));
 *         pair_close(p, "y", y, 1);
 *     }
 *
 * Side CPU is the reference. ONE and MANY are CUDA's kernels on the shim, with grids for a device of one multiprocessor
 * and of many, and with different orders of threads and blocks. When the case ends, the bits of ONE and MANY must be
 * equal in every array. Arrays begin at any address that their numbers' alignment allows. The bytes before and after
 * each array are checked for writes. Output arrays are filled with NaNs. Shapes come from a seed that is printed;
 * TRAINYARD_SEED repeats a run. */
#ifndef TESTS_KERNELS_CUDA_PAIR_H
#define TESTS_KERNELS_CUDA_PAIR_H

#include "tests/kernels/tensor.h"

enum { CPU, ONE, MANY, SIDES };

struct twin {
    void *at[SIDES];
    int64_t n;
    size_t each; /* bytes of a number */
    bool elements;
};

struct pair {
    const struct kernels *k[SIDES];
    enum kernels_precision precision;
    int round; /* 0, 1, ... over all precisions: for cases that must occur in each run */
    uint64_t seed;
    /* Private. */
    struct twin *twins[32];
    char *buffers[32][SIDES];
    int count;
    void *tables;
};

/* Runs the call on each side: k is its table, s its number. */
#define ON_ALL(p, call)                                                                                                \
    for (int s = 0; s < SIDES; s++) {                                                                                  \
        const struct kernels *k = (p)->k[s];                                                                           \
        OK(call);                                                                                                      \
        OK(k->finish(k, e));                                                                                           \
    }

/* A test with this name: runs the case several times in each precision, with different shapes. */
#define CASE(name, body)                                                                                               \
    static void name(void **state) {                                                                                   \
        (void)state;                                                                                                   \
        pair_run(body);                                                                                                \
    }
void pair_run(void (*body)(struct pair *p));

/* pair_between: a random number from least to most. pair_either: true or false. */
int64_t pair_between(struct pair *p, int64_t least, int64_t most);
bool pair_either(struct pair *p);
double pair_fraction(struct pair *p); /* [0, 1) */

/* The same random numbers on each side: elements or floats within -scale .. scale, or n tokens of 0 .. end - 1. */
struct twin *pair_elements(struct pair *p, int64_t n, float scale);
struct twin *pair_floats(struct pair *p, int64_t n, float scale);
struct twin *pair_tokens(struct pair *p, int64_t n, int64_t end);
/* One 8-byte number in device memory. */
struct twin *pair_word(struct pair *p, int64_t word);
/* Arrays for outputs. */
struct twin *pair_empty(struct pair *p, int64_t n);
struct twin *pair_empty_floats(struct pair *p, int64_t n);
struct twin *pair_empty_doubles(struct pair *p, int64_t n);
/* A gradient of n numbers: random if the kernel accumulates into it. */
struct twin *pair_gradient(struct pair *p, int64_t n, bool accumulate);
/* Returns t or a new array, at random: for ops that may run in place. */
struct twin *pair_in_place(struct pair *p, struct twin *t);
/* A workspace for side s, with the size that its table asks for. The bytes behind it are checked for writes. */
void *pair_workspace(struct pair *p, int s, size_t bytes);

/* Checks CUDA's numbers against the CPU's. The tolerance for elements is `factor` steps of the precision, for numbers
 * of the size of the array's; for floats it is `factor` times the rounding error of fp32 sums. */
void pair_close(struct pair *p, const char *what, const struct twin *t, double factor);
/* The same for averages of numbers of the size of `of`: a small average still has the rounding error of its terms. */
void pair_close_average(struct pair *p, const char *what, const struct twin *t, const struct twin *of, double factor);
/* The same for floats that were computed as elements: the results of a library, converted to fp32. */
void pair_close_elements(struct pair *p, const char *what, const struct twin *t, double factor);
/* Compares bit by bit. */
void pair_same(struct pair *p, const char *what, const struct twin *t);

/* The platform of the cases. pair_shim.c implements it by the shim, for a host without a device. The host and the
 * tables use the same memory, zeroed or not, on a 256-byte boundary. Without memory the test aborts. */
void *pair_memory(size_t bytes);
void pair_memory_free(void *p);
/* Opens p->k[ONE] and p->k[MANY] in p->precision. */
void pair_tables_open(struct pair *p);
void pair_tables_close(struct pair *p);
/* Sets the order in which threads and blocks run from now on, if the platform can choose it. */
void pair_order(uint64_t seed);

#endif
