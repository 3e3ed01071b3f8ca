/* Each point is a hash of 64 bits in a sorted array. The first one of equal hashes counts how many were taken. */
#include "cli/import/known.h"

#include "base/alloc.h"
#include "cli/export.h"

#include <stdlib.h>
#include <string.h>

struct import_known {
    size_t n, capacity;
    uint64_t *hashes;
    uint32_t *taken; /* of the hashes that are equal to this one, which is the first of them */
};

/* The finalizer of SplitMix64. */
static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* All NaN are one value. */
static uint64_t hash_of(const char *name, int64_t step, double value) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325), bits = UINT64_C(0x7ff8000000000000);
    for (const unsigned char *at = (const unsigned char *)name; *at; at++)
        hash = (hash ^ *at) * UINT64_C(0x100000001b3);
    if (value == value)
        memcpy(&bits, &value, sizeof bits);
    hash = mix(hash + UINT64_C(0x9e3779b97f4a7c15));
    hash = mix((hash ^ (uint64_t)step) + UINT64_C(0x9e3779b97f4a7c15));
    return mix((hash ^ bits) + UINT64_C(0x9e3779b97f4a7c15));
}

static status_t reserve(struct import_known *k, size_t n, struct err *e) {
    if (n > IMPORT_KNOWN_POINTS)
        return err_set(e, ST_RESOURCE_EXHAUSTED,
                       "the job of this run has more than %d points: to import the run with its new points, delete the "
                       "job first",
                       IMPORT_KNOWN_POINTS);
    if (n <= k->capacity)
        return ST_OK;
    const size_t capacity = n < 8192 ? 16384 : n * 2;
    uint64_t *hashes = realloc(k->hashes, capacity * sizeof *hashes);
    if (!hashes)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "there is no memory for the %zu points of the run's job", n);
    k->hashes = hashes;
    k->capacity = capacity;
    return ST_OK;
}

static status_t take(void *ctx, const Trainyard__V1__MetricPoints *run, struct err *e) {
    struct import_known *k = ctx;
    if (run->n_step != run->n_value)
        return err_set(e, ST_DATA_LOSS, "the controller sent points without steps");
    TRY(reserve(k, k->n + run->n_value, e));
    for (size_t i = 0; i < run->n_value; i++)
        k->hashes[k->n++] = hash_of(run->name, run->step[i], run->value[i]);
    return ST_OK;
}

static int by_hash(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

status_t import_known_read(struct cli *c, const char *job, struct import_known **ret, struct err *e) {
    CLEANUP(import_known_freep) struct import_known *k = alloc_zeroed(1, sizeof *k);
    TRY(points_read(c, job, take, k, e));
    if (k->n > 0 && !(k->taken = calloc(k->n, sizeof *k->taken)))
        return err_set(e, ST_RESOURCE_EXHAUSTED, "there is no memory for the %zu points of the run's job", k->n);
    if (k->n > 1)
        qsort(k->hashes, k->n, sizeof *k->hashes, by_hash);
    *ret = take_ptr(&k);
    return ST_OK;
}

struct import_known *import_known_free(struct import_known *k) {
    if (k) {
        free(k->hashes);
        free(k->taken);
    }
    free(k);
    return NULL;
}

bool import_known_take(struct import_known *k, const char *name, int64_t step, double value) {
    if (!k)
        return false;
    const uint64_t hash = hash_of(name, step, value);
    size_t low = 0, high = k->n; /* the first hash that is not below this one is in low..high */
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (k->hashes[middle] < hash)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == k->n)
        return false;
    const size_t at = low + k->taken[low];
    if (at >= k->n || k->hashes[at] != hash)
        return false;
    k->taken[low]++;
    return true;
}
