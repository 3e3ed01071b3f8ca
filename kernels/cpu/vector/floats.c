/* Ops on fp32 in every precision: gradients of parameters and optimizer states. */
#include "kernels/cpu/vector/floats.h"

#include "kernels/cpu/vector/block.h"
#include "kernels/cpu/vector/vector.h"

static void accumulate_block(float *a, const float *b, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t lanes = lanes_at(i, n);
        vf_store_first(a + i, vf_add(vf_load_first(a + i, lanes), vf_load_first(b + i, lanes)), lanes);
    }
}

status_t VECTOR_ISA(accumulate)(const struct kernels *k, float *a, const float *b, int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > BLOCK)
    for (int64_t i = 0; i < n; i += BLOCK)
        accumulate_block(a + i, b + i, block_end(i, n) - i);
    return ST_OK;
}

/* A single chunk is one stream of reads, and the core would wait for memory. So SIDE chunks are summed at the same
 * time. */
enum { SIDE = 4 };

static void whole_chunks_sum_squares(double *sums, const float *a) {
    vd low[SIDE], high[SIDE];
    for (int j = 0; j < SIDE; j++)
        low[j] = high[j] = vd_zero();
    for (int64_t i = 0; i < KERNELS_CHUNK; i += LANES)
        for (int j = 0; j < SIDE; j++) {
            const vf x = vf_load(a + j * KERNELS_CHUNK + i);
            low[j] = vd_fma(vd_low(x), vd_low(x), low[j]);
            high[j] = vd_fma(vd_high(x), vd_high(x), high[j]);
        }
    for (int j = 0; j < SIDE; j++)
        sums[j] = vd_sum(vd_add(low[j], high[j]));
}

static double chunk_sum_squares(const float *a, int64_t n) {
    vd low = vd_zero(), high = vd_zero();
    for (int64_t i = 0; i < n; i += LANES) {
        const vf x = vf_load_first(a + i, lanes_at(i, n));
        low = vd_fma(vd_low(x), vd_low(x), low);
        high = vd_fma(vd_high(x), vd_high(x), high);
    }
    return vd_sum(vd_add(low, high));
}

static void span_sum_squares(const struct kernels *k, double *sums, const float *a, int64_t n) {
    const int64_t side = n / (SIDE * KERNELS_CHUNK) * SIDE;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > BLOCK)
    for (int64_t c = 0; c < side; c += SIDE)
        whole_chunks_sum_squares(sums + c, a + c * KERNELS_CHUNK);
    for (int64_t c = side; c * KERNELS_CHUNK < n; c++) {
        const int64_t begin = c * KERNELS_CHUNK, left = n - begin;
        sums[c] = chunk_sum_squares(a + begin, left < KERNELS_CHUNK ? left : KERNELS_CHUNK);
    }
}

status_t VECTOR_ISA(sum_squares)(const struct kernels *k, const struct norm_span *spans, int n_spans, struct err *e) {
    (void)e;
    for (int i = 0; i < n_spans; i++)
        span_sum_squares(k, spans[i].sums, spans[i].a, spans[i].n);
    return ST_OK;
}

/* From this size on (8 MiB) a fill bypasses the caches: the data would not stay in them, and memory need not be read
 * first. */
enum { FILL_PAST_CACHES = 2 << 20 };

static void fill_block(float *a, float value, int64_t n, bool past_caches) {
    int64_t i = 0;
    if (past_caches) {
        for (; i < n && (uintptr_t)(a + i) % sizeof(vf); i++)
            a[i] = value;
        for (; i + LANES <= n; i += LANES)
            vf_stream(a + i, vf_set(value));
    }
    for (; i < n; i += LANES)
        vf_store_first(a + i, vf_set(value), lanes_at(i, n));
}

status_t VECTOR_ISA(fill)(const struct kernels *k, float *a, float value, int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > BLOCK)
    for (int64_t i = 0; i < n; i += BLOCK) {
        fill_block(a + i, value, block_end(i, n) - i, n >= FILL_PAST_CACHES);
        vf_stream_end();
    }
    return ST_OK;
}

static bool block_finite(const float *a, int64_t n) {
    bool odd = false;
    for (int64_t i = 0; i < n; i += LANES)
        odd |= vf_any_not_finite(vf_load_first(a + i, lanes_at(i, n)));
    return !odd;
}

status_t VECTOR_ISA(all_finite)(const struct kernels *k, bool *ret, const float *a, int64_t n, struct err *e) {
    (void)e;
    bool finite = true;
#pragma omp parallel for num_threads(k->threads) schedule(static) reduction(&& : finite) if (n > BLOCK)
    for (int64_t i = 0; i < n; i += BLOCK)
        finite = block_finite(a + i, block_end(i, n) - i) && finite;
    *ret = finite;
    return ST_OK;
}
