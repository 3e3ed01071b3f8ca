/* Downsampling of a series: merges runs of points into a bounded number of entries. Pure. Internal to the store.
 *
 * The caller adds the series' runs in order. A run is one point, or a whole chunk of which only the header was read.
 * Entry i holds the runs i * runs_per_entry to (i + 1) * runs_per_entry - 1. */
#ifndef SERVICE_STORE_METRIC_DOWNSAMPLE_H
#define SERVICE_STORE_METRIC_DOWNSAMPLE_H

#include <stddef.h>
#include <stdint.h>

struct point_run {
    int64_t n, last_step, last_time_us;
    double sum, min, max;
};

struct downsample {
    size_t runs_per_entry;
    size_t n_open; /* runs in the open entry */
    struct point_run open;
    size_t n, capacity; /* entries */
    int64_t *step;      /* [capacity] memory of the caller */
    double *mean, *min, *max;
    int64_t *time_us; /* [capacity]; NULL: not wanted */
};

/* How many runs one entry must hold, so that `total` runs give at most max_entries entries. */
size_t downsample_runs_per_entry(size_t total, size_t max_entries);
void downsample_add(struct downsample *d, const struct point_run *run);
void downsample_end(struct downsample *d); /* closes the last entry, which may hold fewer runs */

#endif
