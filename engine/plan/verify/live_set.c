#include "engine/plan/verify/live_set.h"

#include "base/array.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void live_set_done(struct live_set *s) {
    free(s->at);
    *s = (struct live_set){ 0 };
}

/* The number of the first range that ends behind `at`. */
static int range_after(const struct live_set *s, size_t at) {
    int low = 0, high = s->n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (s->at[middle].end > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

struct live_range *live_set_find(const struct live_set *s, size_t begin, size_t end) {
    int i = range_after(s, begin);
    return i < s->n && s->at[i].begin < end ? &s->at[i] : NULL;
}

struct live_range *live_set_around(const struct live_set *s, size_t begin, size_t end) {
    struct live_range *r = live_set_find(s, begin, end);
    return r && r->begin <= begin && r->end >= end ? r : NULL;
}

void live_set_remove(struct live_set *s, size_t begin, size_t end) {
    int from = range_after(s, begin), to = from;
    while (to < s->n && s->at[to].begin < end)
        to++;
    if (to == from)
        return;
    memmove(&s->at[from], &s->at[to], (size_t)(s->n - to) * sizeof *s->at);
    s->n -= to - from;
}

status_t live_set_insert(struct live_set *s, size_t begin, size_t end, int owner, struct err *e) {
    int i = range_after(s, begin);
    assert(i == s->n || s->at[i].begin >= end);
    TRY(array_grow(&s->at, s->n, e));
    memmove(&s->at[i + 1], &s->at[i], (size_t)(s->n - i) * sizeof *s->at);
    s->n++;
    s->at[i] = (struct live_range){ .begin = begin, .end = end, .serial = ++s->serial, .owner = owner };
    return ST_OK;
}
