#include "kernels/cpu/product.h"

#include "kernels/cpu/primitive.h"

#include <oneapi/dnnl/dnnl.h>

#include <assert.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* A product whose k oneDNN would cut by threads is cut in about this many slices of C instead, of whole vectors. */
enum { SLICES = 16, SLICE_MULTIPLE = 16 };

/* Packing costs as much as a few rows of C: fewer when B must be transposed anyway by who reads it unpacked. */
enum { PACK_ROWS_LEAST = 192, PACK_ROWS_LEAST_TRANSPOSED = 1024 };

struct entry {
    struct primitive_shape shape;
    uint64_t used;                 /* the clock of the last use; 0 = free */
    bool sliced;                   /* body and tail compute slices of C, one thread each; else body computes it whole */
    bool along_rows;               /* slices of C's rows, else of its columns */
    int64_t width;                 /* of a slice; the last one may be narrower: tail */
    struct primitive *body, *tail; /* tail NULL: all slices are alike, or not sliced */
};

struct products {
    enum kernels_isa isa;
    int threads;
    uint64_t clock;
    void *packed; /* one for all, since one product runs at a time */
    size_t packed_bytes;
    struct entry entries[KERNELS_PRODUCTS_MOST];
};

status_t products_new(enum kernels_isa isa, int threads, struct products **ret, struct err *e) {
    struct products *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the cache of matrix products");
    /* oneDNN's own choice is per process and is fixed by its first use: a table opened later with another ISA keeps the
     * first one's products, and kernels_numerics_id says so. */
    if (isa == KERNELS_ISA_AVX2)
        (void)dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
    p->isa = isa;
    p->threads = threads;
    *ret = p;
    return ST_OK;
}

static void entry_clear(struct entry *t) {
    t->body = primitive_free(t->body);
    t->tail = primitive_free(t->tail);
    *t = (struct entry){ 0 };
}

struct products *products_free(struct products *p) {
    if (!p)
        return NULL;
    for (int i = 0; i < KERNELS_PRODUCTS_MOST; i++)
        entry_clear(&p->entries[i]);
    free(p->packed);
    free(p);
    return NULL;
}

static bool shape_equal(const struct primitive_shape *a, const struct primitive_shape *b) {
    return a->m == b->m && a->n == b->n && a->k == b->k && a->lda == b->lda && a->ldb == b->ldb && a->ldc == b->ldc &&
           a->a_transposed == b->a_transposed && a->b_transposed == b->b_transposed && a->bias == b->bias &&
           a->accumulate == b->accumulate && a->packed == b->packed;
}

static status_t slices_build(struct entry *t, int threads, struct err *e) {
    struct primitive_shape slice = t->shape;
    slice.packed = false;
    t->sliced = true;
    t->along_rows = slice.m >= slice.n;
    int64_t *cut = t->along_rows ? &slice.m : &slice.n;
    const int64_t all = *cut;
    t->width = (all / SLICES / SLICE_MULTIPLE + 1) * SLICE_MULTIPLE;
    t->width = t->width < all ? t->width : all;
    *cut = t->width;
    TRY(primitive_new(&slice, 1, threads, &t->body, e));
    *cut = all % t->width;
    return *cut ? primitive_new(&slice, 1, threads, &t->tail, e) : ST_OK;
}

static status_t entry_build(struct entry *t, const struct primitive_shape *s, int threads, struct err *e) {
    *t = (struct entry){ .shape = *s };
    TRY(primitive_new(s, threads, 1, &t->body, e));
    if (primitive_in_order(t->body))
        return ST_OK;
    t->body = primitive_free(t->body);
    return slices_build(t, threads, e);
}

static status_t packed_grow(struct products *p, size_t bytes, struct err *e) {
    if (bytes <= p->packed_bytes)
        return ST_OK;
    void *packed = NULL;
    if (posix_memalign(&packed, 64, bytes))
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for %zu bytes of a packed matrix", bytes);
    free(p->packed);
    p->packed = packed;
    p->packed_bytes = bytes;
    return ST_OK;
}

static status_t entry_of(struct products *p, const struct primitive_shape *s, struct entry **ret, struct err *e) {
    struct entry *oldest = &p->entries[0];
    p->clock++;
    for (int i = 0; i < KERNELS_PRODUCTS_MOST; i++) {
        struct entry *t = &p->entries[i];
        if (t->used && shape_equal(&t->shape, s)) {
            t->used = p->clock;
            *ret = t;
            return ST_OK;
        }
        if (t->used < oldest->used)
            oldest = t;
    }
    entry_clear(oldest);
    status_t st = entry_build(oldest, s, p->threads, e);
    if (st == ST_OK)
        st = packed_grow(p, primitive_packed_bytes(oldest->body), e);
    if (st != ST_OK) {
        entry_clear(oldest);
        return err_prefix(e, st, "matrix product %lld x %lld x %lld: ", (long long)s->m, (long long)s->n,
                          (long long)s->k);
    }
    oldest->used = p->clock;
    *ret = oldest;
    return ST_OK;
}

static status_t run_slices(const struct entry *t, int threads, float *c, const float *a, const float *b,
                           const float *bias, struct err *e) {
    const struct primitive_shape *s = &t->shape;
    const int64_t all = t->along_rows ? s->m : s->n, count = (all + t->width - 1) / t->width;
    bool failed = false;
#pragma omp parallel for num_threads(threads) schedule(dynamic) reduction(|| : failed)
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = i * t->width;
        const struct primitive *one = t->tail && i == count - 1 ? t->tail : t->body;
        const float *ai = t->along_rows ? a + (s->a_transposed ? at : at * s->lda) : a;
        const float *bi = t->along_rows ? b : b + (s->b_transposed ? at * s->ldb : at);
        float *ci = t->along_rows ? c + at * s->ldc : c + at;
        const float *biasi = t->along_rows || !bias ? bias : bias + at;
        failed = primitive_run(one, omp_get_thread_num(), ci, ai, bi, biasi, NULL, NULL) != ST_OK || failed;
    }
    return failed ? err_set(e, ST_INTERNAL, "oneDNN could not run a matrix product") : ST_OK;
}

static status_t run_piece(struct products *p, const struct primitive_shape *s, float *c, const float *a, const float *b,
                          const float *bias, struct err *e) {
    struct entry *t = NULL;
    TRY(entry_of(p, s, &t, e));
    if (t->sliced)
        return run_slices(t, p->threads, c, a, b, bias, e);
    return primitive_run(t->body, 0, c, a, b, bias, p->packed, e);
}

status_t products_run(struct products *p, const struct product_shape *s, float *c, const float *a, const float *b,
                      const float *bias, struct err *e) {
    assert(!(s->bias && s->accumulate));
    if (p->isa == KERNELS_ISA_PLAIN) {
        plain_product(p->threads, s, c, a, b, bias);
        return ST_OK;
    }
    const int64_t depth = s->a_transposed ? PRODUCT_DEPTH_TRANSPOSED : PRODUCT_DEPTH;
    struct primitive_shape piece = { .m = s->m,
                                     .n = s->n,
                                     .lda = s->a_transposed ? s->m : s->k,
                                     .ldb = s->b_transposed ? s->k : s->n,
                                     .ldc = s->n,
                                     .a_transposed = s->a_transposed,
                                     .b_transposed = s->b_transposed };
    piece.packed = s->m >= (s->b_transposed ? PACK_ROWS_LEAST_TRANSPOSED : PACK_ROWS_LEAST);
    for (int64_t at = 0; at < s->k; at += depth) {
        piece.k = s->k - at < depth ? s->k - at : depth;
        piece.bias = s->bias && at == 0;
        piece.accumulate = s->accumulate || at > 0;
        const float *ai = s->a_transposed ? a + at * piece.lda : a + at;
        const float *bi = s->b_transposed ? b + at : b + at * piece.ldb;
        TRY(run_piece(p, &piece, c, ai, bi, bias, e));
    }
    return ST_OK;
}

const char *products_isa_name(void) {
    switch (dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_sse41: return "sse41";
    case dnnl_cpu_isa_avx: return "avx";
    case dnnl_cpu_isa_avx2: return "avx2";
    case dnnl_cpu_isa_avx2_vnni: return "avx2_vnni";
    case dnnl_cpu_isa_avx512_core: return "avx512_core";
    case dnnl_cpu_isa_avx512_core_vnni: return "avx512_core_vnni";
    case dnnl_cpu_isa_avx512_core_bf16: return "avx512_core_bf16";
    case dnnl_cpu_isa_avx512_core_amx: return "avx512_core_amx";
    default: return "other";
    }
}
