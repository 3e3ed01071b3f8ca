/* The CPU side of the table: its state, and the parts that its folder is made of.
 *
 *   product.c         matrix products by oneDNN, cached by shape; linear.c: the linear_* functions over them
 *   plain/            every other op in portable C: the readable reference
 *   vector/           the same ops with vectors, compiled once for AVX2 and once for AVX-512
 *
 * plain_table, avx2_table and avx512_table put their functions into the table. */
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H

#include "kernels/kernels.h"

struct products;

struct cpu {
    struct kernels table; /* first: the functions of the table cast back */
    enum kernels_isa isa; /* never BEST */
    struct products *products;
};

static inline const struct cpu *cpu_of(const struct kernels *k) { return (const struct cpu *)k; }

MUST_CHECK status_t cpu_open(const struct kernels_config *config, struct kernels **ret, struct err *e);
struct kernels *cpu_close(struct kernels *k);
void cpu_numerics_id(const struct kernels *k, char *buf, size_t n);

void plain_table(struct kernels *t);
void avx2_table(struct kernels *t);
void avx512_table(struct kernels *t);

#endif
