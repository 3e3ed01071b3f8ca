#include "kernels/cpu/vector/elementwise.h"

#include "kernels/cpu/vector/math.h"
#include "kernels/cpu/vector/vector.h"

#include <math.h>

/* Elements that a thread takes at once; a smaller array is not worth waking the team for. */
enum { BLOCK = 8192 };

static int64_t block_end(int64_t begin, int64_t n) { return begin + BLOCK < n ? begin + BLOCK : n; }

static void gelu_block(float *y, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t lanes = lanes_at(i, n);
        vf_store_first(y + i, vf_gelu(vf_load_first(x + i, lanes)), lanes);
    }
}

status_t VECTOR(gelu_forward)(const struct kernels *k, float *y, const float *x, int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > BLOCK)
    for (int64_t i = 0; i < n; i += BLOCK)
        gelu_block(y + i, x + i, block_end(i, n) - i);
    return ST_OK;
}

static void gelu_backward_block(float *dx, const float *dy, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t lanes = lanes_at(i, n);
        const vf slope = vf_gelu_slope(vf_load_first(x + i, lanes));
        vf_store_first(dx + i, vf_mul(vf_load_first(dy + i, lanes), slope), lanes);
    }
}

status_t VECTOR(gelu_backward)(const struct kernels *k, float *dx, const float *dy, const float *x, int64_t n,
                               struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > BLOCK)
    for (int64_t i = 0; i < n; i += BLOCK)
        gelu_backward_block(dx + i, dy + i, x + i, block_end(i, n) - i);
    return ST_OK;
}

static void add_block(float *y, const float *a, const float *b, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t lanes = lanes_at(i, n);
        vf_store_first(y + i, vf_add(vf_load_first(a + i, lanes), vf_load_first(b + i, lanes)), lanes);
    }
}

status_t VECTOR(add)(const struct kernels *k, float *y, const float *a, const float *b, int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > BLOCK)
    for (int64_t i = 0; i < n; i += BLOCK)
        add_block(y + i, a + i, b + i, block_end(i, n) - i);
    return ST_OK;
}

status_t VECTOR(accumulate)(const struct kernels *k, float *a, const float *b, int64_t n, struct err *e) {
    return VECTOR(add)(k, a, a, b, n, e);
}

/* What AdamW needs of its settings, once for all elements. */
struct coefficients {
    vf scale, beta1, rest1, beta2, rest2, correction, epsilon, step, keep;
};

static void adamw_block(float *p, float *m, float *v, const float *g, int64_t n, const struct coefficients *o) {
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t lanes = lanes_at(i, n);
        const vf gi = vf_mul(vf_load_first(g + i, lanes), o->scale);
        const vf mi = vf_fma(o->beta1, vf_load_first(m + i, lanes), vf_mul(o->rest1, gi));
        const vf vi = vf_fma(o->beta2, vf_load_first(v + i, lanes), vf_mul(o->rest2, vf_mul(gi, gi)));
        const vf by = vf_fma(vf_sqrt(vi), o->correction, o->epsilon);
        vf_store_first(m + i, mi, lanes);
        vf_store_first(v + i, vi, lanes);
        vf_store_first(p + i, vf_fnma(o->step, vf_div(mi, by), vf_mul(o->keep, vf_load_first(p + i, lanes))), lanes);
    }
}

status_t VECTOR(adamw)(const struct kernels *k, float *p, float *m, float *v, const float *g, int64_t n,
                       const struct adamw *o, struct err *e) {
    (void)e;
    const struct coefficients c = {
        .scale = vf_set(o->gradient_scale),
        .beta1 = vf_set((float)o->beta1),
        .rest1 = vf_set((float)(1.0 - o->beta1)),
        .beta2 = vf_set((float)o->beta2),
        .rest2 = vf_set((float)(1.0 - o->beta2)),
        .correction = vf_set((float)(1.0 / sqrt(1.0 - pow(o->beta2, (double)o->updates)))),
        .epsilon = vf_set((float)o->epsilon),
        .step = vf_set((float)(o->learning_rate / (1.0 - pow(o->beta1, (double)o->updates)))),
        .keep = vf_set((float)(1.0 - o->learning_rate * o->weight_decay)),
    };
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > BLOCK)
    for (int64_t i = 0; i < n; i += BLOCK)
        adamw_block(p + i, m + i, v + i, g + i, block_end(i, n) - i, &c);
    return ST_OK;
}

/* One chunk alone is one stream of reads, which leaves a core waiting for memory: SIDE chunks are added side by side.
 */
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

status_t VECTOR(sum_squares)(const struct kernels *k, double *sums, const float *a, int64_t n, struct err *e) {
    (void)e;
    const int64_t side = n / (SIDE * KERNELS_CHUNK) * SIDE;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > BLOCK)
    for (int64_t c = 0; c < side; c += SIDE)
        whole_chunks_sum_squares(sums + c, a + c * KERNELS_CHUNK);
    for (int64_t c = side; c * KERNELS_CHUNK < n; c++) {
        const int64_t begin = c * KERNELS_CHUNK, left = n - begin;
        sums[c] = chunk_sum_squares(a + begin, left < KERNELS_CHUNK ? left : KERNELS_CHUNK);
    }
    return ST_OK;
}

/* From this size on (8 MiB) a fill goes past the caches: nobody finds it there, and memory need not be read first. */
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

status_t VECTOR(fill)(const struct kernels *k, float *a, float value, int64_t n, struct err *e) {
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

status_t VECTOR(all_finite)(const struct kernels *k, bool *ret, const float *a, int64_t n, struct err *e) {
    (void)e;
    bool finite = true;
#pragma omp parallel for num_threads(k->threads) schedule(static) reduction(&& : finite) if (n > BLOCK)
    for (int64_t i = 0; i < n; i += BLOCK)
        finite = block_finite(a + i, block_end(i, n) - i) && finite;
    *ret = finite;
    return ST_OK;
}
