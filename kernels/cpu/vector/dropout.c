#include "kernels/cpu/vector/dropout.h"

#include "kernels/cpu/vector/elements.h"
#include "kernels/cpu/vector/integer.h"

enum { RUN = 4 * LANES };

/* The factors of RUN elements from `first` on; `first` is a multiple of 4. */
static void mask_run(const struct mask *m, int64_t sample, int64_t first, vf ret[4]) {
    vi number[4];
    vi_philox((uint32_t)(first / 4), (uint32_t)sample, m->op, m->step, m->seed, number);
    for (int i = 0; i < 4; i++)
        ret[i] = vi_select_ge(number[i], vi_set(m->threshold), vf_set(m->kept));
}

const float *VECTOR(mask_row)(const struct mask *m, int64_t sample, int64_t first, int64_t n, float *buf) {
    const int64_t skipped = first % 4;
    for (int64_t i = 0; i < skipped + n; i += RUN) {
        vf factor[4];
        mask_run(m, sample, first - skipped + i, factor);
        for (int j = 0; j < 4; j++)
            vf_store(buf + i + j * LANES, factor[j]);
    }
    return buf + skipped;
}

static void dropout_run(element *y, const element *x, int64_t n, const vf factor[4]) {
    for (int64_t j = 0; j < 4 && j * LANES < n; j++) {
        const int64_t at = j * LANES, lanes = lanes_at(at, n);
        ve_store_first(y + at, vf_mul(ve_load_first(x + at, lanes), factor[j]), lanes);
    }
}

status_t VECTOR(dropout)(const struct kernels *k, element_t *y, const element_t *x, int64_t samples, int64_t n,
                         const struct dropout *dropout, struct err *e) {
    (void)e;
    const struct mask mask = mask_of(dropout);
#pragma omp parallel for num_threads(k->threads) schedule(static) collapse(2)
    for (int64_t s = 0; s < samples; s++)
        for (int64_t i = 0; i < n; i += RUN) {
            vf factor[4];
            mask_run(&mask, dropout->first_sample + s, i, factor);
            dropout_run(AT(y, s * n + i), AT(x, s * n + i), n - i, factor);
        }
    return ST_OK;
}
