/* The CPU side of the table: its state and its parts.
 *
 *     product.c         matrix products by oneDNN, cached by shape; linear.c: the linear_* functions over them
 *     convolution.c     convolutions by oneDNN, cached by shape, over convolution_primitive.c
 *     plain/            every other op in portable C: the readable reference
 *     vector/           the same ops with vectors, compiled once for AVX2 and once for AVX-512
 *
 * plain/ and vector/ are also compiled once for each precision. */
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H

#include "kernels/kernels.h"

struct adafactor_rows; /* optimizer.h */
struct products;
struct convolutions;
struct rope_table;

struct cpu {
    struct kernels table; /* must be the first member: the functions of the table cast its address to struct cpu */
    struct kernels *fp32; /* owned; NULL if the precision is fp32 */
    enum kernels_isa isa; /* never BEST */
    struct products *products;
    struct convolutions *convolutions;
    struct rope_table *rope;
    /* Convert n numbers of the table's precision to fp32 and back. product.c and convolution.c use these functions. */
    void (*convert_row_to_fp32)(float *to, const element_t *from, int64_t n);
    void (*convert_row)(element_t *to, const float *from, int64_t n);
    /* The loops of optimizers that depend on the instruction set: step_along computes p = keep p + by x and rounds the
     * weight; adafactor_rows are the loops over rows of Adafactor. */
    void (*step_along)(const struct kernels *k, float *p, element_t *weight, const float *x, int64_t n, float keep,
                       float by);
    const struct adafactor_rows *adafactor_rows;
};

static inline const struct cpu *cpu_of(const struct kernels *k) { return (const struct cpu *)k; }

MUST_CHECK status_t cpu_open(const struct kernels_config *config, struct kernels **ret, struct err *e);
struct kernels *cpu_close(struct kernels *k);
void cpu_set_threads(struct kernels *k, int threads);
void cpu_numerics_id(const struct kernels *k, char *buf, size_t n);

/* One function for each precision. A vector table replaces the entries for which it has a faster function. */
typedef void cpu_table_fn(struct cpu *c);
cpu_table_fn plain_fp32_table, plain_bf16_table, plain_fp16_table;
cpu_table_fn avx2_fp32_table, avx2_bf16_table, avx2_fp16_table;
cpu_table_fn avx512_fp32_table, avx512_bf16_table, avx512_fp16_table;
/* Called after avx512_bf16_table if the processor multiplies bf16. */
cpu_table_fn avx512_bf16_pairs_table;

#endif
