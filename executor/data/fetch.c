/* 1. The URIs become objects (find.h). 2. Objects of commits are looked up in the cache; the store is asked about those
 * that are not there, and about all other objects that no listing described. 3. All are looked up by what they are now.
 * Copies whose last check is too old, or whose files have changed, are read. 4. Space is reserved for what is missing,
 * and it is copied. */
#include "executor/data/fetch.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "executor/data/find.h"
#include "executor/data/parallel.h"
#include "executor/data/space.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum { SPACE_MS = 10 * 60 * 1000, SPACE_PAUSE_MS = 200 };

void fetch_done_stores(struct fetch *f) {
    stores_done(&f->stores);
    peers_done(&f->peers);
}

void fetch_done(struct fetch *f) {
    data_objects_done(&f->objects);
    fetch_done_stores(f);
    f->cache = data_cache_close(f->cache);
}

/* ---- the cache ---- */

/* A part of the objects. */
struct selection {
    struct fetch *fetch;
    struct data_object **objects;
    int n;
    const char **keys;
    int64_t *bytes;
    struct cache_entry *entries;
};

static void selection_init(struct selection *s, struct fetch *f) {
    const size_t n = (size_t)f->objects.n;
    *s = (struct selection){ .fetch = f };
    s->objects = alloc_zeroed(n, sizeof(struct data_object *));
    s->keys = alloc_zeroed(n, sizeof *s->keys);
    s->bytes = alloc_zeroed(n, sizeof *s->bytes);
    s->entries = alloc_zeroed(n, sizeof *s->entries);
}

static void selection_done(struct selection *s) {
    free(s->objects);
    free(s->keys);
    free(s->bytes);
    free(s->entries);
}

static status_t check(void *ctx, int i, struct http *h, struct err *e) {
    const struct selection *s = ctx;
    (void)h;
    if (s->entries[i].state != CACHE_UNCHECKED)
        return ST_OK;
    return data_cache_check(s->fetch->cache, &s->entries[i], e);
}

/* Looks those up that are known or fixed, and not yet there. */
static status_t find_cached(struct fetch *f, struct selection *s, struct err *e) {
    s->n = 0;
    for (int i = 0; i < f->objects.n; i++) {
        struct data_object *o = &f->objects.items[i];
        if (*o->sha256 || (!o->is_known && !o->is_fixed))
            continue;
        data_object_set_key(o);
        s->objects[s->n] = o;
        s->keys[s->n] = o->key;
        s->bytes[s->n++] = o->is_known ? o->bytes : -1;
    }
    TRY(data_cache_find(f->cache, s->n, s->keys, s->bytes, s->entries, e));
    TRY(parallel_each(s->n, check, s, e));
    for (int i = 0; i < s->n; i++) {
        struct data_object *o = s->objects[i];
        if (s->entries[i].state != CACHE_GOOD)
            continue;
        o->bytes = s->entries[i].bytes;
        o->is_known = o->is_cached = true;
        memcpy(o->sha256, s->entries[i].sha256, SHA256_HEX);
    }
    return ST_OK;
}

/* ---- the stores ---- */

static status_t ask(void *ctx, int i, struct http *h, struct err *e) {
    struct fetch *f = ctx;
    struct data_object *o = &f->objects.items[i];
    return o->is_known ? ST_OK : data_object_ask(o, h, e);
}

static void add_up(struct fetch *f) {
    int64_t bytes = 0;
    for (int i = 0; i < f->objects.n; i++)
        bytes += f->objects.items[i].bytes;
    atomic_store(&f->bytes, bytes);
    atomic_store(&f->n_objects, f->objects.n);
}

/* ---- space ---- */

static int by_key(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* The missing objects, and their bytes; two names of one object count once. */
static int64_t missing_find(struct fetch *f, struct selection *s) {
    int64_t bytes = 0;
    s->n = 0;
    for (int i = 0; i < f->objects.n; i++) {
        struct data_object *o = &f->objects.items[i];
        if (*o->sha256)
            continue;
        bytes += o->bytes;
        s->objects[s->n] = o;
        s->keys[s->n++] = o->key;
    }
    if (s->n > 0)
        qsort(s->keys, (size_t)s->n, sizeof *s->keys, by_key);
    return bytes;
}

static status_t no_space(const struct fetch *f, int64_t bytes, const struct space *space, struct err *e) {
    const long long max_mib = (long long)(f->cache->max_bytes >> 20);
    if (atomic_load(&f->bytes) > f->cache->max_bytes)
        return err_set(e, ST_RESOURCE_EXHAUSTED,
                       "the job's data have %lld MiB, more than the host's cache of data (--data-cache-mib %lld)",
                       (long long)(atomic_load(&f->bytes) >> 20), max_mib);
    if (space->disk_bytes < bytes)
        return err_set(e, ST_RESOURCE_EXHAUSTED,
                       "the disk of the host's cache of data '%.150s' has no space for %lld MiB: %lld MiB can be used",
                       f->cache->path, (long long)(bytes >> 20), (long long)(space->disk_bytes >> 20));
    /* Of what is in use, some is of this order. */
    const int64_t own = atomic_load(&f->bytes) - bytes, others = space->in_use > own ? space->in_use - own : 0;
    return err_set(
        e, ST_RESOURCE_EXHAUSTED,
        "the host's cache of data (--data-cache-mib %lld) has no space for %lld MiB more: other attempts use "
        "%lld MiB and still fetch %lld MiB",
        max_mib, (long long)(bytes >> 20), (long long)(others >> 20), (long long)(space->promised >> 20));
}

/* Waits for processes that fetch, since they may fetch the same, and end. */
static status_t reserve(struct fetch *f, struct selection *s, struct err *e) {
    deadline_ms_t end = deadline_in(SPACE_MS);
    int64_t before = -1;
    for (;;) {
        struct space space;
        TRY(find_cached(f, s, e));
        const int64_t bytes = missing_find(f, s);
        TRY(space_reserve(f->cache, bytes, s->n, s->keys, &space, e));
        atomic_store(&f->waits, !space.reserved);
        atomic_store(&f->to_copy_bytes, bytes);
        if (space.reserved)
            return ST_OK;
        if (space.promised != before)
            end = deadline_in(SPACE_MS);
        before = space.promised;
        if (space.promised == 0 || atomic_load(&f->bytes) > f->cache->max_bytes || clock_mono_ms() > end)
            return no_space(f, bytes, &space, e);
        poll(NULL, 0, SPACE_PAUSE_MS);
    }
}

/* ---- all ---- */

static status_t copy(struct fetch *f, struct selection *s, struct err *e) {
    TRY(find_cached(f, s, e));
    TRY(parallel_each(f->objects.n, ask, f, e));
    add_up(f);
    TRY(reserve(f, s, e));
    atomic_store(&f->progress.objects, f->objects.n - s->n);
    if (s->n > 0) {
        peers_find(&f->peers, s->objects, s->n);
        TRY(copy_objects(f->cache, &f->peers, s->objects, s->n, &f->progress, &f->end, e));
    }
    return data_cache_set_reserved(f->cache, 0, e);
}

status_t fetch_run(struct fetch *f, struct err *e) {
    const Trainyard__V1__DataFetch *order = f->order;
    TRY(stores_open(order, &f->end, &f->stores, e));
    TRY(find_objects(&f->stores, (int)order->n_uris, order->uris, &f->objects, e));
    if (order->check) {
        TRY(parallel_each(f->objects.n, ask, f, e));
        add_up(f);
        return ST_OK;
    }
    TRY(data_cache_open(order->cache, order->cache_bytes, &f->cache, e));
    peers_init(&f->peers, order, &f->end);
    struct selection s;
    selection_init(&s, f);
    status_t st = copy(f, &s, e);
    selection_done(&s);
    return st;
}
