#include "engine/data/fourier.h"

#define RADIX2_NUMBER double
#include "base/alloc.h"
#include "kernels/radix2.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

struct fourier {
    int n;
    struct radix2_factor *factor; /* (n / 2) */
};

struct fourier *fourier_new(int n) {
    assert(n >= 1 && n <= FOURIER_SIDE && (n & (n - 1)) == 0);
    struct fourier *f = alloc_zeroed(1, sizeof *f);
    f->factor = alloc_zeroed((size_t)n, sizeof *f->factor);
    f->n = n;
    for (int k = 0; k < n / 2; k++)
        f->factor[k] = radix2_factor(k, n / 2, -1);
    return f;
}

struct fourier *fourier_free(struct fourier *f) {
    if (f) {
        free(f->factor);
        free(f);
    }
    return NULL;
}

void fourier_transform(const struct fourier *f, struct complex_number *data) {
    const int n = f->n;
    /* All rows, then all columns. The stride of radix2_line counts doubles, of which a complex number has two. */
    for (int y = 0; y < n; y++)
        radix2_line(&data[y * n].re, &data[y * n].im, n, 2, -1, f->factor);
    for (int x = 0; x < n; x++)
        radix2_line(&data[x].re, &data[x].im, n, 2 * n, -1, f->factor);
    for (int i = 0; i < n * n; i++) {
        data[i].re /= n;
        data[i].im /= n;
    }
}
