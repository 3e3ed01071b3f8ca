#include "kernels/cpu/product.h"

#include "kernels/cpu/primitive.h"

#include <oneapi/dnnl/dnnl.h>

#include <assert.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* A product whose k oneDNN would cut by threads is cut in about this many slices of C instead, of whole vectors. */
enum { SLICES = 16, SLICE_MULTIPLE = 16 };

struct entry {
    struct product_shape shape;
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
    free(p);
    return NULL;
}

static bool shape_equal(const struct product_shape *a, const struct product_shape *b) {
    return a->m == b->m && a->n == b->n && a->k == b->k && a->a_transposed == b->a_transposed &&
           a->b_transposed == b->b_transposed && a->bias == b->bias && a->accumulate == b->accumulate;
}

static struct primitive_shape slice_shape(const struct product_shape *s, bool along_rows, int64_t width) {
    return (struct primitive_shape){ .m = along_rows ? width : s->m,
                                     .n = along_rows ? s->n : width,
                                     .k = s->k,
                                     .lda = s->a_transposed ? s->m : s->k,
                                     .ldb = s->b_transposed ? s->k : s->n,
                                     .ldc = s->n,
                                     .a_transposed = s->a_transposed,
                                     .b_transposed = s->b_transposed,
                                     .bias = s->bias,
                                     .accumulate = s->accumulate };
}

static status_t entry_build(struct entry *t, const struct product_shape *s, int threads, struct err *e) {
    *t = (struct entry){ .shape = *s };
    const struct primitive_shape whole = slice_shape(s, true, s->m);
    TRY(primitive_new(&whole, threads, 1, &t->body, e));
    if (primitive_in_order(t->body))
        return ST_OK;
    t->body = primitive_free(t->body);
    t->sliced = true;
    t->along_rows = s->m >= s->n;
    const int64_t all = t->along_rows ? s->m : s->n;
    t->width = (all / SLICES / SLICE_MULTIPLE + 1) * SLICE_MULTIPLE;
    t->width = t->width < all ? t->width : all;
    const struct primitive_shape body = slice_shape(s, t->along_rows, t->width);
    TRY(primitive_new(&body, 1, threads, &t->body, e));
    if (all % t->width) {
        const struct primitive_shape tail = slice_shape(s, t->along_rows, all % t->width);
        TRY(primitive_new(&tail, 1, threads, &t->tail, e));
    }
    return ST_OK;
}

static status_t entry_of(struct products *p, const struct product_shape *s, struct entry **ret, struct err *e) {
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
    const struct product_shape *s = &t->shape;
    const int64_t all = t->along_rows ? s->m : s->n, count = (all + t->width - 1) / t->width;
    bool failed = false;
#pragma omp parallel for num_threads(threads) schedule(dynamic) reduction(|| : failed)
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = i * t->width;
        const struct primitive *one = t->tail && i == count - 1 ? t->tail : t->body;
        const float *ai = t->along_rows ? a + (s->a_transposed ? at : at * s->k) : a;
        const float *bi = t->along_rows ? b : b + (s->b_transposed ? at * s->k : at);
        float *ci = t->along_rows ? c + at * s->n : c + at;
        const float *biasi = t->along_rows || !bias ? bias : bias + at;
        failed = primitive_run(one, omp_get_thread_num(), ci, ai, bi, biasi, NULL) != ST_OK || failed;
    }
    return failed ? err_set(e, ST_INTERNAL, "oneDNN could not run a matrix product") : ST_OK;
}

static status_t run_piece(struct products *p, const struct product_shape *s, float *c, const float *a, const float *b,
                          const float *bias, struct err *e) {
    struct entry *t = NULL;
    TRY(entry_of(p, s, &t, e));
    if (t->sliced)
        return run_slices(t, p->threads, c, a, b, bias, e);
    return primitive_run(t->body, 0, c, a, b, bias, e);
}

status_t products_run(struct products *p, const struct product_shape *s, float *c, const float *a, const float *b,
                      const float *bias, struct err *e) {
    assert(!(s->bias && s->accumulate));
    if (p->isa == KERNELS_ISA_PLAIN) {
        plain_product(p->threads, s, c, a, b, bias);
        return ST_OK;
    }
    if (!s->a_transposed || s->k <= PRODUCT_DEPTH)
        return run_piece(p, s, c, a, b, bias, e);
    assert(!s->bias && !s->b_transposed);
    struct product_shape piece = *s;
    for (int64_t at = 0; at < s->k; at += PRODUCT_DEPTH) {
        piece.k = s->k - at < PRODUCT_DEPTH ? s->k - at : PRODUCT_DEPTH;
        piece.accumulate = s->accumulate || at > 0;
        TRY(run_piece(p, &piece, c, a + at * s->m, b + at * s->n, NULL, e));
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
