/* The kernels of kernels/cuda beside the CPU's plain ones, which are the reference: every case runs on three tables of
 * one precision, and all that it makes is compared.
 *
 *     static void gelu(struct pair *p) {
 *         const int64_t n = pair_between(p, 1, 5000);
 *         struct twin *x = pair_elements(p, n, 3), *y = pair_room(p, n);
 *         ON_ALL(p, k->gelu_forward(k, y->at[s], x->at[s], n, e));
 *         pair_close(p, "y", y, 1);
 *     }
 *
 * Side CPU is the reference; ONE and MANY are CUDA's on the shim, with grids for a device of one multiprocessor and of
 * many, and with different orders of threads and blocks: their bits must be equal in every array when the case ends.
 * Arrays begin anywhere that their numbers' alignment allows; bytes before and after them are watched; rooms for
 * outputs are full of NaNs. Shapes come from a seed that is printed: TRAINYARD_SEED repeats a run. */
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
    int round; /* 0, 1, ... of all precisions together: for what must come up in each run */
    uint64_t seed;
    /* Private. */
    struct twin *twins[32];
    char *room[32][SIDES];
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

/* A test of that name: the case several times in each precision, with other shapes. */
#define CASE(name, body)                                                                                               \
    static void name(void **state) {                                                                                   \
        (void)state;                                                                                                   \
        pair_run(body);                                                                                                \
    }
void pair_run(void (*body)(struct pair *p));

/* least .. most, and one of yes and no. */
int64_t pair_between(struct pair *p, int64_t least, int64_t most);
bool pair_either(struct pair *p);
double pair_fraction(struct pair *p); /* [0, 1) */

/* The same random numbers on each side, within -scale .. scale; n tokens of 0 .. end - 1; n of the same value. */
struct twin *pair_elements(struct pair *p, int64_t n, float scale);
struct twin *pair_floats(struct pair *p, int64_t n, float scale);
struct twin *pair_tokens(struct pair *p, int64_t n, int64_t end);
/* One number of 8 bytes, as the device's memory has it. */
struct twin *pair_word(struct pair *p, int64_t word);
/* Outputs. */
struct twin *pair_room(struct pair *p, int64_t n);
struct twin *pair_float_room(struct pair *p, int64_t n);
struct twin *pair_double_room(struct pair *p, int64_t n);
/* A gradient of n numbers: random where it is accumulated to. */
struct twin *pair_gradient(struct pair *p, int64_t n, bool accumulate);
/* t or another room: for what may be done in place. */
struct twin *pair_in_place(struct pair *p, struct twin *t);
/* Each side's own, of as many bytes as its table asks for; those behind it are watched. */
void *pair_workspace(struct pair *p, int s, size_t bytes);

/* CUDA's numbers are the CPU's, to `factor` steps of the precision of numbers of the size of the array's (elements), or
 * `factor` times what fp32 sums may lose (floats). */
void pair_close(struct pair *p, const char *what, const struct twin *t, double factor);
/* The same of floats that were elements once: a library's results, widened. */
void pair_close_elements(struct pair *p, const char *what, const struct twin *t, double factor);
/* Bit by bit. */
void pair_same(struct pair *p, const char *what, const struct twin *t);

/* What the cases run on: pair_shim.c is the shim, where there is no device. Memory is the host's and the tables',
 * zeroed or not, on a 256-byte boundary; or the test aborts. */
void *pair_memory(size_t bytes);
void pair_memory_free(void *p);
/* p->k[ONE] and [MANY] in p->precision. */
void pair_tables_open(struct pair *p);
void pair_tables_close(struct pair *p);
/* The order in which threads and blocks run from now on, where that can be chosen. */
void pair_order(uint64_t seed);

#endif
