/* Test tensors: aligned, filled with seeded numbers, compared with a tolerance that names the worst element. */
#ifndef TESTS_KERNELS_TENSOR_H
#define TESTS_KERNELS_TENSOR_H

#include "kernels/kernels.h"

/* n floats on a 64-byte boundary; aborts without memory. The caller frees them with free(). */
float *tensor_new(int64_t n);
/* Uniform in [-scale, scale), the same for the same seed on every machine. */
float *tensor_random(int64_t n, uint64_t seed, float scale);
float *tensor_copy(const float *a, int64_t n);
int32_t *tokens_random(int64_t n, uint64_t seed, int32_t vocabulary);

/* Fails the test if |got - want| > tolerance * (|want| + floor) for any element. */
void tensor_assert_close(const char *what, const float *got, const float *want, int64_t n, double tolerance,
                         double floor);
void tensor_assert_near(const char *what, const float *got, const double *want, int64_t n, double tolerance,
                        double floor);
/* Fails the test unless all bits are equal. */
void tensor_assert_same_bits(const char *what, const float *a, const float *b, int64_t n);

/* A table for the device "cpu", or NULL if this processor lacks the instruction set. */
struct kernels *kernels_or_null(enum kernels_isa isa, int threads);
struct kernels *kernels_of_precision(enum kernels_isa isa, int threads, enum kernels_precision precision);
/* A table with one thread now and at most 4 (kernels_set_threads). */
struct kernels *kernels_of_team(enum kernels_isa isa, enum kernels_precision precision);
const char *precision_name(enum kernels_precision precision);

/* elements_of returns the same values, rounded to the elements of a table. elements_new returns space for n elements.
 * floats_of returns elements as fp32. The caller frees each with free(). */
element_t *elements_of(const struct kernels *k, const float *a, int64_t n);
element_t *elements_new(const struct kernels *k, int64_t n);
float *floats_of(const struct kernels *k, const element_t *a, int64_t n);
/* tensor_random as elements, and tensor_random rounded to elements but stored as fp32. */
element_t *elements_random(const struct kernels *k, int64_t n, uint64_t seed, float scale);
float *rounded_random(enum kernels_precision precision, int64_t n, uint64_t seed, float scale);

/* For each instruction set of this processor, lowest first: `for (int i = 0; i < isa_count(); i++) isa_at(i)`. */
int isa_count(void);
enum kernels_isa isa_at(int i);

/* The test fails unless the call returns ST_OK. */
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        struct err err_ = { { 0 } }, *e = &err_;                                                                       \
        if ((call) != ST_OK)                                                                                           \
            fail_msg("%s: %s", #call, err_.msg);                                                                       \
    } while (0)

#endif
