/* The parts that the plain and the vector optimizers share. All of them use fp32 in every precision of the table.
 * Only the copy of the parameters is rounded, block by block, while the block is in the cache. */
#ifndef KERNELS_CPU_OPTIMIZER_H
#define KERNELS_CPU_OPTIMIZER_H

#include "kernels/cpu/cpu.h"

#include <math.h>

/* Elements that a thread processes at once. */
enum { OPTIMIZER_BLOCK = 8192 };

static inline int64_t optimizer_block(int64_t first, int64_t n) {
    return n - first < OPTIMIZER_BLOCK ? n - first : OPTIMIZER_BLOCK;
}

/* weight[first ..] (n) = p[first ..] rounded, if there is a weight. */
static inline void weight_round(const struct kernels *k, element_t *weight, const float *p, int64_t first, int64_t n) {
    if (weight)
        cpu_of(k)->convert_row((char *)weight + first * (int64_t)kernels_element_bytes(k), p + first, n);
}

static inline double span_decay(const struct span *s, double weight_decay) { return s->decay ? weight_decay : 0; }

/* How an optimizer reads a gradient: multiplied by scale, then limited to -limit .. limit. */
struct seen {
    float scale, limit;
};

static inline struct seen seen_of(const struct update *u, float clip_value) {
    return (struct seen){ u->gradient_scale, clip_value > 0 ? clip_value : INFINITY };
}

static inline float seen(float g, struct seen s) {
    const float x = g * s.scale;
    return x > s.limit ? s.limit : x < -s.limit ? -s.limit : x;
}

/* The three passes of Adafactor over the rows of a matrix. */
struct adafactor_rows {
    /* columns (n) += g^2 + epsilon; returns the sum of these terms over the row. */
    double (*squares)(float *columns, const float *g, int64_t n, struct seen s, float epsilon);
    /* Returns the sum of (g factor column[])^2. */
    double (*update_squares)(const float *g, const float *column, float factor, int64_t n, struct seen s);
    /* p = keep p - g factor column[]. */
    void (*apply)(float *p, const float *g, const float *column, float factor, float keep, int64_t n, struct seen s);
};

/* Entries of the table that are common to all instruction sets. They call cpu.step_along and cpu.adafactor_rows for the
 * loops. See optimizer.c and adafactor.c. */
KERNEL_OP(optimizer_sgd_step, sgd_step);
status_t optimizer_scale_add(const struct kernels *k, const struct span *spans, int n_spans, double keep, double by,
                             const struct update *update, struct err *e);
KERNEL_OP(adafactor_step, adafactor);
KERNEL_OP(adafactor_workspace, adafactor_workspace);

void plain_optimizer_table(struct cpu *c);
void avx2_optimizer_table(struct cpu *c);
void avx512_optimizer_table(struct cpu *c);

#endif
