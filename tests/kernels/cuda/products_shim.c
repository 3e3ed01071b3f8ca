/* Products on a host without cuBLASLt: by rows, as kernels/cuda/lib/gemm.h specifies them, with sums in fp32. */
#include "kernels/cpu/element.h"
#include "kernels/cuda/lib/product.h"

#include <math.h>
#include <stdlib.h>

static int64_t at(const struct gemm *p, bool of_a, int64_t row, int64_t column) {
    const bool transposed = p->flags & (of_a ? GEMM_A_TRANSPOSED : GEMM_B_TRANSPOSED);
    const int64_t stride = of_a ? p->lda : p->ldb;
    return transposed ? column * stride + row : row * stride + column;
}

static float number(const struct kernels *k, const element_t *from, int64_t i) {
    if (k->precision == KERNELS_FP32)
        return ((const float *)from)[i];
    const uint16_t x = ((const uint16_t *)from)[i];
    return k->precision == KERNELS_BF16 ? float_of_bf16(x) : float_of_fp16(x);
}

static void put(const struct kernels *k, element_t *to, int64_t i, float x) {
    if (k->precision == KERNELS_FP32)
        ((float *)to)[i] = x;
    else
        ((uint16_t *)to)[i] = k->precision == KERNELS_BF16 ? bf16_of_float(x) : fp16_of_float(x);
}

static float gelu(float x) { return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x))); }

static void store(const struct kernels *k, const struct gemm *p, void *c, element_t *pre, int64_t i, float x) {
    if (p->flags & GEMM_C_FP32) {
        float *to = (float *)c + i;
        *to = p->flags & GEMM_ACCUMULATE ? *to + x : x;
        return;
    }
    if (p->flags & GEMM_GELU) {
        put(k, pre, i, x);
        x = gelu(x);
    }
    put(k, c, i, p->flags & GEMM_ACCUMULATE ? number(k, c, i) + x : x);
}

status_t cuda_products_run(const struct kernels *k, struct gemm p, void *c, element_t *pre, const element_t *a,
                           const element_t *b, const element_t *bias, struct err *e) {
    if (p.flags & GEMM_GELU && (p.ldc % 8 != 0 || ((uintptr_t)pre & 15) != 0))
        return err_set(e, ST_INTERNAL, "what goes into GELU is kept in rows of eights on a 16-byte boundary");
    float *wide = malloc((size_t)(p.k * p.n) * sizeof *wide), *row = malloc((size_t)p.k * sizeof *row);
    if (!wide || !row)
        abort();
    for (int64_t i = 0; i < p.k; i++)
        for (int64_t j = 0; j < p.n; j++)
            wide[i * p.n + j] = number(k, b, at(&p, false, i, j));
    for (int64_t i = 0; i < p.m; i++) {
        for (int64_t l = 0; l < p.k; l++)
            row[l] = number(k, a, at(&p, true, i, l));
        for (int64_t j = 0; j < p.n; j++) {
            float sum = bias ? number(k, bias, j) : 0;
            for (int64_t l = 0; l < p.k; l++)
                sum += row[l] * wide[l * p.n + j];
            store(k, &p, c, pre, i * p.ldc + j, sum);
        }
    }
    free(wide);
    free(row);
    return ST_OK;
}

size_t cuda_products_version(void) { return 0; }
