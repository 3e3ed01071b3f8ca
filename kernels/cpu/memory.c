#include "kernels/cpu/memory.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* SLICE: bytes that one thread copies at once. */
enum { ALIGNMENT = 256, HUGE_PAGE = 2 << 20, SLICE = 1 << 20 };

static status_t memory_new(const struct kernels *k, size_t bytes, void **ret, struct err *e) {
    (void)k;
    const size_t alignment = bytes < HUGE_PAGE ? ALIGNMENT : HUGE_PAGE;
    if (posix_memalign(ret, alignment, bytes > 0 ? bytes : 1) != 0)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for %zu bytes", bytes);
    if (alignment == HUGE_PAGE)
        (void)madvise(*ret, bytes, MADV_HUGEPAGE); /* advice only: without huge pages the memory is slower */
    return ST_OK;
}

static void memory_free(const struct kernels *k, void *p) {
    (void)k;
    free(p);
}

static status_t move(const struct kernels *k, void *to, const void *from, size_t bytes, struct err *e) {
    (void)k, (void)e;
    memcpy(to, from, bytes);
    return ST_OK;
}

static status_t move_rows(const struct kernels *k, void *to, size_t to_stride, const void *from, size_t from_stride,
                          size_t bytes, int64_t rows, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (bytes * (size_t)rows > SLICE)
    for (int64_t r = 0; r < rows; r++)
        memcpy((char *)to + (size_t)r * to_stride, (const char *)from + (size_t)r * from_stride, bytes);
    return ST_OK;
}

/* Copies between memory of the kernels and other host memory. Uses all threads, because one thread cannot use the full
 * memory bandwidth. */
static status_t load(const struct kernels *k, void *to, const void *from, size_t bytes, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (bytes > SLICE)
    for (size_t at = 0; at < bytes; at += SLICE)
        memcpy((char *)to + at, (const char *)from + at, bytes - at < SLICE ? bytes - at : SLICE);
    return ST_OK;
}

static status_t finish(const struct kernels *k, struct err *e) {
    (void)k, (void)e;
    return ST_OK;
}

/* Calls on the CPU finish before they return, so that events have nothing to record or wait for. */
static status_t event_new(const struct kernels *k, void **ret, struct err *e) {
    (void)k, (void)e;
    *ret = NULL;
    return ST_OK;
}

static void event_free(const struct kernels *k, void *event) { (void)k, (void)event; }

static status_t event_pass(const struct kernels *k, void *event, struct err *e) {
    (void)k, (void)event, (void)e;
    return ST_OK;
}

static status_t timer_new(const struct kernels *k, void **ret, struct err *e) {
    (void)k, (void)e;
    *ret = alloc_zeroed(1, sizeof(int64_t));
    return ST_OK;
}

static status_t timer_record(const struct kernels *k, void *timer, struct err *e) {
    (void)k, (void)e;
    *(int64_t *)timer = clock_mono_ns();
    return ST_OK;
}

static status_t timer_between(const struct kernels *k, void *from, void *to, int64_t *ret_ns, struct err *e) {
    (void)k, (void)e;
    *ret_ns = *(const int64_t *)to - *(const int64_t *)from;
    return ST_OK;
}

void memory_table(struct kernels *t) {
    t->memory_new = memory_new;
    t->memory_free = memory_free;
    t->upload = load;
    t->download = load;
    t->move = move;
    t->move_rows = move_rows;
    t->finish = finish;
    t->host_memory_new = memory_new;
    t->host_memory_free = memory_free;
    t->event_new = event_new;
    t->event_free = event_free;
    t->event_record = event_pass;
    t->event_wait = event_pass;
    t->timer_new = timer_new;
    t->timer_free = memory_free;
    t->timer_record = timer_record;
    t->timer_between = timer_between;
}
