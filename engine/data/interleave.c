/* The j-th number of source s (j from 1, u = units[s], D = all units) keeps the source within one of its share at every
 * place if it comes behind place (j - 1) D / u, when fewer numbers would be allowed, and not behind place j D / u, when
 * more would be due:
 *
 *     place n, from 1:    (j - 1) D / u  <  n  <=  ceil(j D / u)
 *
 * These are jobs of one unit of time with releases and deadlines. A sequence that meets all deadlines exists for all
 * weights (Tijdeman, "The chairman assignment problem", 1980), and taking the released job with the earliest deadline
 * finds one, as it always does for unit jobs. Of equal deadlines the lower source is first. After D places each source
 * has exactly u numbers, so the sequence repeats.
 *
 * The table has a byte for each place, and for every BLOCK places how many numbers of each source came before. */
#include "engine/data/interleave.h"

#include "base/alloc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 512, SOURCES_MAX = 256 };

struct interleave {
    int n;
    int64_t all;
    int64_t *units;  /* [n] */
    uint8_t *source; /* [all] */
    int32_t *before; /* [block][n] */
};

static int64_t blocks(const struct interleave *x) { return (x->all + BLOCK - 1) / BLOCK; }

size_t interleave_bytes(const struct interleave *x) {
    return sizeof *x + (size_t)x->all * sizeof *x->source + (size_t)x->n * sizeof *x->units +
           (size_t)(blocks(x) * x->n) * sizeof *x->before;
}

struct interleave *interleave_free(struct interleave *x) {
    if (!x)
        return NULL;
    free(x->units);
    free(x->source);
    free(x->before);
    free(x);
    return NULL;
}

/* The next number of each source: the first place where it may come, and the last one. */
struct next {
    int64_t done, release, deadline;
};

static void set_next(struct next *next, int64_t units, int64_t all) {
    next->release = next->done * all / units + 1;
    next->deadline = ((next->done + 1) * all + units - 1) / units;
}

static void place_all(struct interleave *x, struct next *next) {
    for (int s = 0; s < x->n; s++)
        if (x->units[s] > 0)
            set_next(&next[s], x->units[s], x->all);
    for (int64_t place = 1; place <= x->all; place++) {
        int best = -1;
        for (int s = 0; (place - 1) % BLOCK == 0 && s < x->n; s++)
            x->before[(place - 1) / BLOCK * x->n + s] = (int32_t)next[s].done;
        for (int s = 0; s < x->n; s++)
            if (x->units[s] > 0 && next[s].release <= place && (best < 0 || next[s].deadline < next[best].deadline))
                best = s;
        assert(best >= 0 && next[best].deadline >= place);
        x->source[place - 1] = (uint8_t)best;
        next[best].done++;
        set_next(&next[best], x->units[best], x->all);
    }
}

status_t interleave_new(const int64_t *units, int n, struct interleave **ret, struct err *e) {
    assert(n >= 1 && n <= SOURCES_MAX);
    CLEANUP(interleave_freep) struct interleave *x = alloc_zeroed(1, sizeof *x);
    CLEANUP(freep) struct next *next = alloc_zeroed((size_t)n, sizeof *next);
    x->n = n;
    for (int s = 0; s < n; s++)
        x->all += units[s];
    assert(x->all > 0);
    x->units = alloc_zeroed((size_t)n, sizeof *x->units);
    memcpy(x->units, units, (size_t)n * sizeof *units);
    x->source = malloc((size_t)x->all);
    x->before = malloc((size_t)(blocks(x) * n) * sizeof *x->before);
    if (!x->source || !x->before)
        return err_errno(e, "allocate a table of %lld samples of a mixture", (long long)x->all);
    place_all(x, next);
    *ret = take_ptr(&x);
    return ST_OK;
}

int64_t interleave_count(const struct interleave *x, int64_t i, int s) {
    const int64_t place = i % x->all, block = place / BLOCK;
    int64_t count = i / x->all * x->units[s] + x->before[block * x->n + s];
    for (int64_t p = block * BLOCK; p < place; p++)
        count += x->source[p] == s;
    return count;
}

int interleave_at(const struct interleave *x, int64_t i, int64_t *ret_position) {
    const int s = x->source[i % x->all];
    *ret_position = interleave_count(x, i, s);
    return s;
}
