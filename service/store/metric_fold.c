#include "service/store/metric_fold.h"

#include <assert.h>
#include <math.h>

size_t fold_per(size_t total, size_t most) { return total <= most ? 1 : (total + most - 1) / most; }

static void close_entry(struct fold *f) {
    assert(f->n < f->cap);
    f->step[f->n] = f->open.last_step;
    f->mean[f->n] = f->open.sum / (double)f->open.n;
    f->min[f->n] = f->open.min;
    f->max[f->n] = f->open.max;
    f->n++;
    f->held = 0;
}

/* fmin and fmax pass over NaN, as the chunks' headers do. */
void fold_add(struct fold *f, const struct piece *piece) {
    if (f->held == 0) {
        f->open = *piece;
    } else {
        f->open.n += piece->n;
        f->open.last_step = piece->last_step;
        f->open.sum += piece->sum;
        f->open.min = fmin(f->open.min, piece->min);
        f->open.max = fmax(f->open.max, piece->max);
    }
    if (++f->held == f->per)
        close_entry(f);
}

void fold_end(struct fold *f) {
    if (f->held)
        close_entry(f);
}
