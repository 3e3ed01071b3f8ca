#include "service/store/metric_downsample.h"

#include <assert.h>
#include <math.h>

size_t downsample_runs_per_entry(size_t total, size_t max_entries) {
    return total <= max_entries ? 1 : (total + max_entries - 1) / max_entries;
}

static void close_entry(struct downsample *d) {
    assert(d->n < d->capacity);
    d->step[d->n] = d->open.last_step;
    if (d->time_us)
        d->time_us[d->n] = d->open.last_time_us;
    d->mean[d->n] = d->open.sum / (double)d->open.n;
    d->min[d->n] = d->open.min;
    d->max[d->n] = d->open.max;
    d->n++;
    d->n_open = 0;
}

/* fmin and fmax ignore NaN, as the chunks' headers do. */
void downsample_add(struct downsample *d, const struct point_run *run) {
    if (d->n_open == 0) {
        d->open = *run;
    } else {
        d->open.n += run->n;
        d->open.last_step = run->last_step;
        d->open.last_time_us = run->last_time_us;
        d->open.sum += run->sum;
        d->open.min = fmin(d->open.min, run->min);
        d->open.max = fmax(d->open.max, run->max);
    }
    if (++d->n_open == d->runs_per_entry)
        close_entry(d);
}

void downsample_end(struct downsample *d) {
    if (d->n_open)
        close_entry(d);
}
