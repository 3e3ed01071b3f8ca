#include "base/array.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static status_t refused(size_t n, size_t size, struct err *e) {
    return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory: %zu elements of %zu bytes were refused", n, size);
}

status_t array_new_of(void *pp, int n, size_t size, struct err *e) {
    const size_t count = n > 0 ? (size_t)n : 1;
    void *p = calloc(count, size);
    if (!p)
        return refused(count, size, e);
    memcpy(pp, &p, sizeof p);
    return ST_OK;
}

status_t array_grow_of(void *pp, int n, size_t size, struct err *e) {
    if (n & (n - 1))
        return ST_OK;
    const size_t capacity = n ? (size_t)n * 2 : 1;
    void *p;
    memcpy(&p, pp, sizeof p);
    p = reallocarray(p, capacity, size);
    if (!p)
        return refused(capacity, size, e);
    memcpy(pp, &p, sizeof p);
    return ST_OK;
}

int array_by_int64(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}
