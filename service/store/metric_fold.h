/* Downsampling: folds a series' points, or whole chunks of them, into at most max entries. Internal to the store. */
#ifndef SERVICE_STORE_METRIC_FOLD_H
#define SERVICE_STORE_METRIC_FOLD_H

#include <stddef.h>
#include <stdint.h>

/* A run of points: one point, or a chunk. */
struct piece {
    int64_t n, last_step;
    double sum, min, max;
};

/* Pieces go in one by one, in order; `total` of them are expected. Entry i holds pieces i * per .. (i + 1) * per - 1.
 */
struct fold {
    size_t per;  /* pieces of an entry */
    size_t held; /* in the open entry */
    struct piece open;
    size_t n, cap;
    int64_t *step; /* [cap] the caller's memory */
    double *mean, *min, *max;
};

/* How many pieces make an entry, so that total pieces give at most `most` entries. */
size_t fold_per(size_t total, size_t most);
void fold_add(struct fold *f, const struct piece *piece);
void fold_end(struct fold *f); /* closes the last, shorter entry */

#endif
