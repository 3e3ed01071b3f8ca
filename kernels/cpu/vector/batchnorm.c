#include "kernels/cpu/batchnorm.h"

#include "kernels/cpu/vector/elements.h"
#include "kernels/cpu/vector/images.h"

#include <string.h>

/* Up to WIDE vectors of columns are processed at a time over all rows of a piece, so that the sums stay in
 * registers. */
#ifdef __AVX512F__
enum { WIDE = 4 };
#else
enum { WIDE = 2 };
#endif

#define INLINE static inline __attribute__((always_inline))

/* Sums the next columns: WIDE whole vectors, or one vector of `lanes`. `vectors` is a constant in each inlined copy. */
INLINE void strip_moments(double *sum, double *squares, const element *x, int64_t rows, int64_t width,
                          const int vectors, int64_t lanes) {
    vd s[WIDE][2], q[WIDE][2];
#pragma GCC unroll 4
    for (int j = 0; j < vectors; j++)
        s[j][0] = s[j][1] = q[j][0] = q[j][1] = vd_zero();
    for (int64_t row = 0; row < rows; row++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) {
            const vf a = ve_load_first(x + row * width + j * LANES, lanes);
            const vd low = vd_low(a), high = vd_high(a);
            s[j][0] = vd_add(s[j][0], low);
            s[j][1] = vd_add(s[j][1], high);
            q[j][0] = vd_fma(low, low, q[j][0]);
            q[j][1] = vd_fma(high, high, q[j][1]);
        }
    for (int j = 0; j < vectors; j++) {
        double both[2][LANES];
        vd_store(both[0], s[j][0]), vd_store(both[0] + LANES / 2, s[j][1]);
        vd_store(both[1], q[j][0]), vd_store(both[1] + LANES / 2, q[j][1]);
        memcpy(sum + j * LANES, both[0], (size_t)lanes * sizeof *sum);
        memcpy(squares + j * LANES, both[1], (size_t)lanes * sizeof *squares);
    }
}

static void piece_moments(double *sum, double *squares, const element *x, int64_t rows, int64_t width) {
    int64_t c = 0;
    for (; c + WIDE * LANES <= width; c += WIDE * LANES)
        strip_moments(sum + c, squares + c, x + c, rows, width, WIDE, LANES);
    for (; c < width; c += LANES)
        strip_moments(sum + c, squares + c, x + c, rows, width, 1, lanes_at(c, width));
}

static void apply_row(element *y, const element *x, const element *residual, const float *scale, const float *shift,
                      const struct batchnorm_dims *d) {
    for (int64_t c = 0; c < d->width; c += LANES) {
        const int64_t lanes = lanes_at(c, d->width);
        vf a = vf_fma(ve_load_first(x + c, lanes), vf_load_first(scale + c, lanes), vf_load_first(shift + c, lanes));
        if (residual)
            a = vf_add(a, ve_load_first(residual + c, lanes));
        ve_store_first(y + c, d->relu ? vf_zero_below(a, a, vf_set(0)) : a, lanes);
    }
}

/* Sums the next columns of a piece, as above: g and g (x - mean), with g = dy where y > 0. */
INLINE void strip_sums(float *sum_g, float *sum_gn, const element *dy, const element *x, const element *y,
                       const float *mean, int64_t rows, const struct batchnorm_dims *d, const int vectors,
                       int64_t lanes) {
    vf m[WIDE], s[WIDE], q[WIDE];
#pragma GCC unroll 4
    for (int j = 0; j < vectors; j++) {
        m[j] = vf_load_first(mean + j * LANES, lanes);
        s[j] = q[j] = vf_set(0);
    }
    for (int64_t row = 0; row < rows; row++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) {
            const int64_t at = row * d->width + j * LANES;
            vf g = ve_load_first(dy + at, lanes);
            if (d->relu)
                g = vf_where_above_zero(g, ve_load_first(y + at, lanes));
            s[j] = vf_add(s[j], g);
            q[j] = vf_fma(g, vf_sub(ve_load_first(x + at, lanes), m[j]), q[j]);
        }
#pragma GCC unroll 4
    for (int j = 0; j < vectors; j++) {
        vf_store_first(sum_g + j * LANES, s[j], lanes);
        vf_store_first(sum_gn + j * LANES, q[j], lanes);
    }
}

/* With n = (x - mean) rstd: each column's sums of g and g n. */
static void piece_sums(float *sum_g, float *sum_gn, const element *dy, const element *x, const element *y,
                       const float *mean, const float *variance, int64_t rows, const struct batchnorm_dims *d) {
    int64_t c = 0;
    for (; c + WIDE * LANES <= d->width; c += WIDE * LANES)
        strip_sums(sum_g + c, sum_gn + c, dy + c, x + c, y + c, mean + c, rows, d, WIDE, LANES);
    for (; c < d->width; c += LANES)
        strip_sums(sum_g + c, sum_gn + c, dy + c, x + c, y + c, mean + c, rows, d, 1, lanes_at(c, d->width));
    for (c = 0; c < d->width; c++)
        sum_gn[c] *= batchnorm_rstd(variance[c], d);
}

/* dx = gamma rstd (g - avg(g) - n avg(g n)). */
static void row_gradient(element *dx, element *d_residual, const element *dy, const element *x, const element *y,
                         const struct batchnorm_columns *a, const struct batchnorm_dims *d) {
    for (int64_t c = 0; c < d->width; c += LANES) {
        const int64_t lanes = lanes_at(c, d->width);
        vf g = ve_load_first(dy + c, lanes);
        if (d->relu)
            g = vf_where_above_zero(g, ve_load_first(y + c, lanes));
        if (d_residual)
            ve_store_first(d_residual + c, g, lanes);
        const vf line = vf_fma(ve_load_first(x + c, lanes), vf_load_first(a->x + c, lanes),
                               vf_load_first(a->one + c, lanes));
        ve_store_first(dx + c, vf_fma(g, vf_load_first(a->g + c, lanes), line), lanes);
    }
}

#define BATCHNORM(name) VECTOR(name)
#include "kernels/cpu/batchnorm_passes.h"
