#include "executor/engine/data/fourier.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct fourier {
    int n;
    int *reversed;                 /* (n): the bits of each index backwards */
    struct complex_number *factor; /* (n / 2): exp(-2 pi i k / n) */
};

status_t fourier_new(int n, struct fourier **ret, struct err *e) {
    assert(n >= 1 && n <= FOURIER_SIDE && (n & (n - 1)) == 0);
    CLEANUP(fourier_freep) struct fourier *f = calloc(1, sizeof *f);
    if (!f || !(f->reversed = calloc((size_t)n, sizeof *f->reversed)) ||
        !(f->factor = calloc((size_t)n, sizeof *f->factor)))
        return err_errno(e, "allocate a Fourier transform of %d", n);
    f->n = n;
    for (int i = 1; i < n; i++)
        f->reversed[i] = f->reversed[i / 2] / 2 + (i & 1 ? n / 2 : 0);
    for (int k = 0; k < n / 2; k++)
        f->factor[k] = (struct complex_number){ cos(-2 * M_PI * k / n), sin(-2 * M_PI * k / n) };
    *ret = take_ptr(&f);
    return ST_OK;
}

struct fourier *fourier_free(struct fourier *f) {
    if (f) {
        free(f->reversed);
        free(f->factor);
        free(f);
    }
    return NULL;
}

/* n numbers, `stride` apart. */
static void transform_line(const struct fourier *f, struct complex_number *data, int stride) {
    const int n = f->n;
    for (int i = 0; i < n; i++)
        if (i < f->reversed[i]) {
            struct complex_number kept = data[i * stride];
            data[i * stride] = data[f->reversed[i] * stride];
            data[f->reversed[i] * stride] = kept;
        }
    for (int half = 1; half < n; half *= 2)
        for (int begin = 0; begin < n; begin += 2 * half)
            for (int k = 0; k < half; k++) {
                struct complex_number *a = &data[(begin + k) * stride], *b = &data[(begin + k + half) * stride];
                const struct complex_number w = f->factor[k * (n / 2 / half)];
                const struct complex_number t = { b->re * w.re - b->im * w.im, b->re * w.im + b->im * w.re };
                *b = (struct complex_number){ a->re - t.re, a->im - t.im };
                *a = (struct complex_number){ a->re + t.re, a->im + t.im };
            }
}

void fourier_transform(const struct fourier *f, struct complex_number *data) {
    const int n = f->n;
    for (int y = 0; y < n; y++)
        transform_line(f, data + y * n, 1);
    for (int x = 0; x < n; x++)
        transform_line(f, data + x, n);
    for (int i = 0; i < n * n; i++) {
        data[i].re /= n;
        data[i].im /= n;
    }
}
