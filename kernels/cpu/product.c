/* Matrix products, cached by shape.
 *
 * oneDNN computes a product on the whole team if its implementation adds along k in order. Otherwise C is divided into
 * fixed slices, and each thread computes whole slices with one-thread primitives, so that bits do not depend on the
 * number of threads. If oneDNN does not support the precision on this processor, tiles are converted to fp32,
 * multiplied, and converted back. The cache keeps KERNELS_MAX_PRODUCTS entries and drops the least recently used. */
#include "kernels/cpu/product.h"

#include "base/alloc.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/primitive.h"

#include <assert.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* If oneDNN would divide k by threads, C is divided into about SLICES slices instead. The width of a slice is a
 * multiple of SLICE_MULTIPLE, so that slices consist of whole vectors. */
enum { SLICES = 16, SLICE_MULTIPLE = 16 };

/* Packing costs as much as a few rows of C, so that B is packed only for a C with at least this many rows. The limit is
 * higher for a transposed B. */
enum { MIN_PACK_ROWS = 192, MIN_PACK_ROWS_TRANSPOSED = 1024 };

/* A tile that is converted to fp32 has up to this many rows and columns of C. */
enum { TILE_EDGE = 2048 };

struct entry {
    struct primitive_shape shape;
    uint64_t used;   /* the clock of the last use; 0 = free */
    bool sliced;     /* body and tail compute slices of C, one thread each; otherwise body computes all of C */
    bool along_rows; /* slices are rows of C, otherwise columns */
    int64_t width;   /* of a slice; the last slice may be narrower (tail) */
    struct primitive *body, *tail; /* tail NULL: all slices have the same width, or there are no slices */
};

struct buffer {
    void *data;
    size_t bytes;
};

struct products {
    enum kernels_isa isa;
    enum kernels_precision precision;
    bool by_onednn; /* oneDNN multiplies this precision fast on this processor */
    int threads;
    uint64_t clock;
    struct buffer packed, wide; /* shared by all products, because one product runs at a time */
    struct entry entries[KERNELS_MAX_PRODUCTS];
};

static bool onednn_has(enum kernels_isa isa, enum kernels_precision precision) {
    /* The value is a set of bits. Every later AVX-512 set contains the bits of AVX512-BF16. */
    const unsigned has = dnnl_get_effective_cpu_isa(), bf16 = dnnl_cpu_isa_avx512_core_bf16;
    return precision == KERNELS_FP32 ||
           (precision == KERNELS_BF16 && isa == KERNELS_ISA_AVX512 && (has & bf16) == bf16);
}

status_t products_new(enum kernels_isa isa, enum kernels_precision precision, int threads, struct products **ret,
                      struct err *e) {
    (void)e;
    struct products *p = alloc_zeroed(1, sizeof *p);
    /* oneDNN chooses its instruction set once per process, at its first use. A table that is opened later with another
     * instruction set keeps that choice, and kernels_numerics_id reports it. */
    if (isa == KERNELS_ISA_AVX2)
        (void)dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
    p->isa = isa;
    p->precision = precision;
    p->by_onednn = onednn_has(isa, precision);
    p->threads = threads;
    *ret = p;
    return ST_OK;
}

static void entry_clear(struct entry *t) {
    t->body = primitive_free(t->body);
    t->tail = primitive_free(t->tail);
    *t = (struct entry){ 0 };
}

static void entries_clear(struct products *p) {
    for (int i = 0; i < KERNELS_MAX_PRODUCTS; i++)
        entry_clear(&p->entries[i]);
}

void products_set_threads(struct products *p, int threads) {
    entries_clear(p);
    p->threads = threads;
}

struct products *products_free(struct products *p) {
    if (!p)
        return NULL;
    entries_clear(p);
    free(p->packed.data);
    free(p->wide.data);
    free(p);
    return NULL;
}

static bool shape_equal(const struct primitive_shape *a, const struct primitive_shape *b) {
    return a->m == b->m && a->n == b->n && a->k == b->k && a->lda == b->lda && a->ldb == b->ldb && a->ldc == b->ldc &&
           a->a_transposed == b->a_transposed && a->b_transposed == b->b_transposed && a->bias == b->bias &&
           a->accumulate == b->accumulate && a->packed == b->packed && a->bf16 == b->bf16 && a->c_bf16 == b->c_bf16;
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

/* First builds the product for the whole team, because only the built primitive shows which implementation oneDNN
 * chose. */
static status_t entry_build(struct entry *t, const struct primitive_shape *s, int threads, struct err *e) {
    *t = (struct entry){ .shape = *s };
    TRY(primitive_new(s, threads, 1, &t->body, e));
    if (primitive_in_order(t->body))
        return ST_OK;
    t->body = primitive_free(t->body);
    return slices_build(t, threads, e);
}

static status_t buffer_grow(struct buffer *b, size_t bytes, struct err *e) {
    if (bytes <= b->bytes)
        return ST_OK;
    void *data = NULL;
    if (posix_memalign(&data, 64, bytes))
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for %zu bytes of a matrix product", bytes);
    free(b->data);
    b->data = data;
    b->bytes = bytes;
    return ST_OK;
}

static status_t entry_of(struct products *p, const struct primitive_shape *s, struct entry **ret, struct err *e) {
    struct entry *oldest = &p->entries[0];
    p->clock++;
    for (int i = 0; i < KERNELS_MAX_PRODUCTS; i++) {
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
        st = buffer_grow(&p->packed, primitive_packed_bytes(oldest->body), e);
    if (st != ST_OK) {
        entry_clear(oldest);
        return err_prefix(e, st, "matrix product %lld x %lld x %lld: ", (long long)s->m, (long long)s->n,
                          (long long)s->k);
    }
    oldest->used = p->clock;
    *ret = oldest;
    return ST_OK;
}

static size_t bytes_of(bool bf16) { return bf16 ? 2 : 4; }

/* The address of element n of a matrix. NULL stays NULL. */
static const void *at_in(const void *a, int64_t n, bool bf16) {
    return a ? (const char *)a + n * (int64_t)bytes_of(bf16) : NULL;
}
static void *at_out(void *a, int64_t n, bool bf16) { return (char *)a + n * (int64_t)bytes_of(bf16); }

/* The primitives run on one thread each and get no error buffer, because threads must not share one. The caller reports
 * the failure. */
static status_t run_slices(const struct entry *t, int threads, void *c, const void *a, const void *b, const void *bias,
                           struct err *e) {
    const struct primitive_shape *s = &t->shape;
    const int64_t all = t->along_rows ? s->m : s->n, count = (all + t->width - 1) / t->width;
    bool failed = false;
#pragma omp parallel for num_threads(threads) schedule(dynamic) reduction(|| : failed)
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = i * t->width, a_at = s->a_transposed ? at : at * s->lda;
        const int64_t b_at = s->b_transposed ? at * s->ldb : at, c_at = t->along_rows ? at * s->ldc : at;
        const struct primitive *one = t->tail && i == count - 1 ? t->tail : t->body;
        const void *ai = at_in(a, t->along_rows ? a_at : 0, s->bf16), *bi = at_in(b, t->along_rows ? 0 : b_at, s->bf16);
        const void *biasi = at_in(bias, t->along_rows ? 0 : at, s->bf16);
        void *ci = at_out(c, c_at, s->c_bf16);
        failed = primitive_run(one, omp_get_thread_num(), ci, ai, bi, biasi, NULL, NULL) != ST_OK || failed;
    }
    return failed ? err_set(e, ST_INTERNAL, "oneDNN could not run a matrix product") : ST_OK;
}

static status_t run_piece(struct products *p, const struct primitive_shape *s, void *c, const void *a, const void *b,
                          const void *bias, struct err *e) {
    struct entry *t = NULL;
    TRY(entry_of(p, s, &t, e));
    if (t->sliced)
        return run_slices(t, p->threads, c, a, b, bias, e);
    return primitive_run(t->body, 0, c, a, b, bias, p->packed.data, e);
}

static bool worth_packing(const struct primitive_shape *s) {
    return s->m >= (s->b_transposed ? MIN_PACK_ROWS_TRANSPOSED : MIN_PACK_ROWS);
}

static int64_t depth_of(int64_t m, bool a_transposed) {
    return a_transposed || (ONEDNN_ROW_IS_TRANSPOSED && m == 1) ? PRODUCT_DEPTH_TRANSPOSED : PRODUCT_DEPTH;
}

/* Computes the product over all of k in pieces, which are added in C in order. The bias belongs to the first piece. */
static status_t run_pieces(struct products *p, const struct primitive_shape *whole, void *c, const void *a,
                           const void *b, const void *bias, struct err *e) {
    struct primitive_shape piece = *whole;
    const int64_t depth = depth_of(whole->m, whole->a_transposed);
    piece.packed = worth_packing(whole);
    for (int64_t at = 0; at < whole->k; at += depth) {
        piece.k = whole->k - at < depth ? whole->k - at : depth;
        piece.bias = whole->bias && at == 0;
        piece.accumulate = whole->accumulate || at > 0;
        const void *ai = at_in(a, whole->a_transposed ? at * whole->lda : at, whole->bf16);
        const void *bi = at_in(b, whole->b_transposed ? at : at * whole->ldb, whole->bf16);
        TRY(run_piece(p, &piece, c, ai, bi, bias, e));
    }
    return ST_OK;
}

static struct primitive_shape whole_of(const struct product_shape *s, bool bf16) {
    return (struct primitive_shape){ .m = s->m,
                                     .n = s->n,
                                     .k = s->k,
                                     .lda = s->lda,
                                     .ldb = s->ldb,
                                     .ldc = s->ldc,
                                     .a_transposed = s->a_transposed,
                                     .b_transposed = s->b_transposed,
                                     .bias = s->bias,
                                     .accumulate = s->accumulate,
                                     .bf16 = bf16,
                                     .c_bf16 = bf16 && !s->c_fp32 };
}

/* A tile (rows, columns) of a stored matrix of elements. Adjacent rows of the matrix are ld elements apart; in the fp32
 * copy they are `columns` apart. */
struct tile {
    int64_t row, column, rows, columns, ld;
};

static void convert_tile_to_fp32(const struct kernels *k, float *to, const void *from, const struct tile *t) {
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < t->rows; i++)
        cpu_of(k)->convert_row_to_fp32(to + i * t->columns, at_in(from, (t->row + i) * t->ld + t->column, true),
                                       t->columns);
}

static void convert_tile(const struct kernels *k, void *to, const float *from, const struct tile *t) {
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < t->rows; i++)
        cpu_of(k)->convert_row(at_out(to, (t->row + i) * t->ld + t->column, true), from + i * t->columns, t->columns);
}

/* bf16 by oneDNN. If a C of bf16 takes more than one piece, the pieces are summed in an fp32 buffer, and C is rounded
 * once. */
static status_t run_bf16(const struct kernels *k, const struct product_shape *s, void *c, const void *a, const void *b,
                         const void *bias, struct err *e) {
    struct products *p = cpu_of(k)->products;
    struct primitive_shape whole = whole_of(s, true);
    if (s->c_fp32 || s->k <= depth_of(s->m, s->a_transposed))
        return run_pieces(p, &whole, c, a, b, bias, e);
    const struct tile t = { 0, 0, s->m, s->n, s->ldc };
    TRY(buffer_grow(&p->wide, (size_t)(s->m * s->n) * sizeof(float), e));
    whole.c_bf16 = false;
    whole.ldc = s->n;
    if (s->accumulate)
        convert_tile_to_fp32(k, p->wide.data, c, &t);
    TRY(run_pieces(p, &whole, p->wide.data, a, b, bias, e));
    convert_tile(k, c, p->wide.data, &t);
    return ST_OK;
}

/* --- precisions that oneDNN does not multiply on this processor: tiles in fp32 ---*/

static int64_t up_to(int64_t n, int64_t limit) { return n < limit ? n : limit; }

/* Computes the tile t of C over all of k. p->wide holds the fp32 tiles of A, B, the bias and C, in this order. */
static status_t run_tile(const struct kernels *k, const struct product_shape *s, void *c, const void *a, const void *b,
                         const void *bias, const struct tile *t, struct err *e) {
    struct products *p = cpu_of(k)->products;
    const int64_t area = TILE_EDGE * PRODUCT_DEPTH_TRANSPOSED;
    float *at = p->wide.data, *bt = at + area, *biast = bt + area, *ct = biast + TILE_EDGE;
    struct primitive_shape piece = { .m = t->rows,
                                     .n = t->columns,
                                     .ldc = s->c_fp32 ? s->ldc : t->columns,
                                     .a_transposed = s->a_transposed,
                                     .b_transposed = s->b_transposed };
    piece.packed = worth_packing(&piece);
    if (s->c_fp32)
        ct = (float *)c + t->row * s->ldc + t->column;
    else if (s->accumulate)
        convert_tile_to_fp32(k, ct, c, t);
    if (s->bias)
        cpu_of(k)->convert_row_to_fp32(biast, at_in(bias, t->column, true), t->columns);
    for (int64_t l = 0; l < s->k; l += PRODUCT_DEPTH_TRANSPOSED) {
        piece.k = up_to(s->k - l, PRODUCT_DEPTH_TRANSPOSED);
        const struct tile ta = s->a_transposed ? (struct tile){ l, t->row, piece.k, t->rows, s->lda }
                                               : (struct tile){ t->row, l, t->rows, piece.k, s->lda };
        const struct tile tb = s->b_transposed ? (struct tile){ t->column, l, t->columns, piece.k, s->ldb }
                                               : (struct tile){ l, t->column, piece.k, t->columns, s->ldb };
        convert_tile_to_fp32(k, at, a, &ta);
        convert_tile_to_fp32(k, bt, b, &tb);
        piece.lda = ta.columns;
        piece.ldb = tb.columns;
        piece.bias = s->bias && l == 0;
        piece.accumulate = s->accumulate || l > 0;
        TRY(run_piece(p, &piece, ct, at, bt, biast, e));
    }
    if (!s->c_fp32)
        convert_tile(k, c, ct, t);
    return ST_OK;
}

static status_t run_in_fp32(const struct kernels *k, const struct product_shape *s, void *c, const void *a,
                            const void *b, const void *bias, struct err *e) {
    const size_t floats = 2 * TILE_EDGE * PRODUCT_DEPTH_TRANSPOSED + TILE_EDGE + TILE_EDGE * TILE_EDGE;
    TRY(buffer_grow(&cpu_of(k)->products->wide, floats * sizeof(float), e));
    for (int64_t row = 0; row < s->m; row += TILE_EDGE)
        for (int64_t column = 0; column < s->n; column += TILE_EDGE) {
            const struct tile t = { row, column, up_to(s->m - row, TILE_EDGE), up_to(s->n - column, TILE_EDGE),
                                    s->ldc };
            TRY(run_tile(k, s, c, a, b, bias, &t, e));
        }
    return ST_OK;
}

status_t products_run(const struct kernels *k, const struct product_shape *s, void *c, const element_t *a,
                      const element_t *b, const element_t *bias, struct err *e) {
    static plain_product_fn *const plain[] = { plain_fp32_product, plain_bf16_product, plain_fp16_product };
    struct products *p = cpu_of(k)->products;
    assert(!(s->bias && s->accumulate));
    if (p->isa == KERNELS_ISA_PLAIN) {
        plain[k->precision](p->threads, s, c, a, b, bias);
        return ST_OK;
    }
    if (k->precision == KERNELS_FP32) {
        const struct primitive_shape whole = whole_of(s, false);
        return run_pieces(p, &whole, c, a, b, bias, e);
    }
    return p->by_onednn ? run_bf16(k, s, c, a, b, bias, e) : run_in_fp32(k, s, c, a, b, bias, e);
}

/* --- memory ---*/

/* Measured with tests/host_memory.py. CODE: of one primitive; oneDNN makes code for whole blocks and for each kind of
 * rest. If A is transposed, each thread copies a block of it, and if B is not packed, a block of B. */
enum { CODE_BYTES = 160 << 10, PACK_EDGE = 64, COPY_DEPTH = 1024, COPIED_ROWS = 128, COPIED_COLUMNS = 64 };

static int64_t up_to_multiple(int64_t n, int64_t of) { return (n + of - 1) / of * of; }

/* A packed B is padded to whole blocks of columns. */
static size_t packed_bytes(const struct primitive_shape *s) {
    return worth_packing(s) ? (size_t)(up_to_multiple(s->n, PACK_EDGE) * s->k) * bytes_of(s->bf16) : 0;
}

static size_t copied_bytes(const struct primitive_shape *s, int threads) {
    const int64_t edge = s->a_transposed ? up_to(s->m, COPIED_ROWS) : s->packed ? 0 : up_to(s->n, COPIED_COLUMNS);
    return (size_t)(threads * edge * up_to(s->k, COPY_DEPTH)) * bytes_of(s->bf16);
}

static struct kernels_memory pieces_memory(const struct primitive_shape *whole, int threads) {
    struct primitive_shape piece = *whole;
    const int64_t depth = depth_of(whole->m, whole->a_transposed);
    piece.k = up_to(whole->k, depth);
    piece.packed = worth_packing(whole);
    return (struct kernels_memory){ .shared = packed_bytes(&piece),
                                    .own = (CODE_BYTES + copied_bytes(&piece, threads)) * (whole->k > depth ? 2 : 1) };
}

/* The fp32 tiles of run_tile, as far as this shape uses them, and their packed B. */
static struct kernels_memory tiles_memory(const struct product_shape *s, int threads) {
    const int64_t rows = up_to(s->m, TILE_EDGE), columns = up_to(s->n, TILE_EDGE),
                  depth = up_to(s->k, PRODUCT_DEPTH_TRANSPOSED);
    const struct primitive_shape tile = {
        .m = rows, .n = columns, .k = depth, .a_transposed = s->a_transposed, .b_transposed = s->b_transposed
    };
    struct kernels_memory r = pieces_memory(&tile, threads);
    r.shared += sizeof(float) * (size_t)(rows * depth + depth * columns + (s->c_fp32 ? 0 : rows * columns));
    return r;
}

struct kernels_memory products_memory(const struct kernels *k, const struct product_shape *s) {
    const struct products *p = cpu_of(k)->products;
    if (p->isa == KERNELS_ISA_PLAIN)
        return (struct kernels_memory){ 0 };
    if (k->precision != KERNELS_FP32 && !p->by_onednn)
        return tiles_memory(s, k->max_threads);
    const bool bf16 = k->precision == KERNELS_BF16;
    const struct primitive_shape whole = whole_of(s, bf16);
    struct kernels_memory r = pieces_memory(&whole, k->max_threads);
    if (bf16 && !s->c_fp32 && s->k > depth_of(s->m, s->a_transposed))
        r.shared += sizeof(float) * (size_t)(s->m * s->n); /* C in fp32 */
    return r;
}

bool products_direct(const struct products *p) { return p->by_onednn; }

bool products_by_onednn(const struct products *p) { return p->by_onednn; }

const char *products_precision_name(const struct products *p) {
    if (p->precision == KERNELS_FP32)
        return "fp32";
    if (p->isa == KERNELS_ISA_PLAIN)
        return p->precision == KERNELS_BF16 ? "bf16" : "fp16";
    return p->by_onednn ? "bf16" : p->precision == KERNELS_BF16 ? "bf16 as fp32" : "fp16 as fp32";
}
