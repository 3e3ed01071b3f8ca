/* One oneDNN matmul primitive of a fixed shape: its descriptors, and one lane of memory handles per thread that runs
 * it.
 *
 * Building asks oneDNN for the implementation and records whether it adds along k in order. If oneDNN prefers B in a
 * blocked layout, a reorder packs B before the product. Running only sets the data pointers of a lane and executes.
 *
 * oneDNN 3.7 with AVX-512 reads an A of one row, and writes a C of one column, as if their elements were adjacent, even
 * if their strides say otherwise. Such a vector is therefore copied to or from a buffer of its lane. */
#include "kernels/cpu/primitive.h"

#include "base/alloc.h"

#include "kernels/cpu/onednn.h"

#include <stdlib.h>
#include <string.h>

enum { A, B, C, BIAS, SCRATCH, ARGUMENTS };
static const int ARGUMENT_ID[ARGUMENTS] = { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS,
                                            DNNL_ARG_SCRATCHPAD };

struct lane {
    dnnl_stream_t stream;
    dnnl_exec_arg_t argument[ARGUMENTS];
    int count;
    int at[ARGUMENTS]; /* the position of each argument in `argument`; -1 = not used */
    void *scratch;
    void *a, *c; /* copies with adjacent elements; NULL = none */
};

struct primitive {
    dnnl_engine_t engine;
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive;
    struct primitive_shape shape;
    bool copies_a, copies_c; /* a row of A, or a column of C, whose elements are not adjacent */
    int threads, n_lanes;
    bool in_order;
    /* Packing: a reorder from B as the caller stores it to the layout that the product reads. NULL: no reorder, the
     * product reads B as the caller stores it. */
    dnnl_primitive_t reorder;
    dnnl_memory_t plain_b;
    size_t packed_bytes;
    struct lane lanes[];
};

static dnnl_data_type_t data_type(bool bf16) { return bf16 ? dnnl_bf16 : dnnl_f32; }

static status_t matrix(struct onednn_layout *ret, int64_t rows, int64_t columns, int64_t ld, bool transposed, bool bf16,
                       struct err *e) {
    dnnl_dims_t dims = { rows, columns }, strides = { transposed ? 1 : ld, transposed ? ld : 1 };
    return onednn_layout_strided(ret, 2, dims, data_type(bf16), strides, e);
}

/* For a packed product oneDNN chooses the layout of B (tag "any"), and reorder_new plans the way to that layout. */
static status_t desc_new(struct primitive *p, const struct primitive_shape *s, struct err *e) {
    CLEANUP(onednn_layout_done) struct onednn_layout a = { 0 }, b = { 0 }, c = { 0 }, bias = { 0 };
    TRY(matrix(&a, s->m, s->k, s->lda, s->a_transposed, s->bf16, e));
    if (s->packed) {
        dnnl_dims_t dims = { s->k, s->n };
        TRY(onednn_layout_tagged(&b, 2, dims, data_type(s->bf16), dnnl_format_tag_any, e));
    } else {
        TRY(matrix(&b, s->k, s->n, s->ldb, s->b_transposed, s->bf16, e));
    }
    TRY(matrix(&c, s->m, s->n, s->ldc, false, s->c_bf16, e));
    TRY(matrix(&bias, 1, s->n, s->n, false, s->bf16, e));
    const struct onednn_product product = { a.desc, b.desc, s->bias ? bias.desc : NULL, c.desc, s->accumulate };
    return onednn_product_plan(p->engine, &product, &p->desc, e);
}

static status_t lane_add(struct lane *l, int which, onednn_desc_t desc, dnnl_engine_t engine, void *data,
                         struct err *e) {
    dnnl_memory_t memory;
    TRY(onednn_check(dnnl_memory_create(&memory, desc, engine, data), "create a memory", e));
    l->at[which] = l->count;
    l->argument[l->count++] = (dnnl_exec_arg_t){ ARGUMENT_ID[which], memory };
    return ST_OK;
}

static size_t element_bytes(bool bf16) { return bf16 ? 2 : 4; }

static status_t copy_new(void **ret, int64_t n, bool bf16, struct err *e) {
    const size_t bytes = (size_t)n * element_bytes(bf16);
    if (posix_memalign(ret, 64, bytes))
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for %zu bytes of a vector's copy", bytes);
    return ST_OK;
}

static status_t lane_init(struct lane *l, const struct primitive *p, bool bias, struct err *e) {
    for (int i = 0; i < ARGUMENTS; i++)
        l->at[i] = -1;
    if (p->copies_a)
        TRY(copy_new(&l->a, p->shape.k, p->shape.bf16, e));
    if (p->copies_c)
        TRY(copy_new(&l->c, p->shape.m, p->shape.c_bf16, e));
    TRY(onednn_check(dnnl_stream_create(&l->stream, p->engine, dnnl_stream_default_flags), "create a stream", e));
    static const dnnl_query_t query[] = {
        [A] = dnnl_query_src_md, [B] = dnnl_query_weights_md, [C] = dnnl_query_dst_md
    };
    for (int i = A; i <= C; i++)
        TRY(lane_add(l, i, dnnl_primitive_desc_query_md(p->desc, query[i], 0), p->engine, NULL, e));
    if (bias)
        TRY(lane_add(l, BIAS, dnnl_primitive_desc_query_md(p->desc, dnnl_query_weights_md, 1), p->engine, NULL, e));
    onednn_desc_t scratch = dnnl_primitive_desc_query_md(p->desc, dnnl_query_scratchpad_md, 0);
    size_t bytes = dnnl_memory_desc_get_size(scratch);
    if (bytes == 0)
        return ST_OK;
    if (posix_memalign(&l->scratch, 64, bytes))
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for %zu bytes of a product's scratchpad", bytes);
    return lane_add(l, SCRATCH, scratch, p->engine, l->scratch, e);
}

/* No reorder is made if the layout that oneDNN chose is the layout that B has already. */
static status_t reorder_new(struct primitive *p, const struct primitive_shape *s, struct err *e) {
    CLEANUP(onednn_layout_done) struct onednn_layout plain = { 0 };
    dnnl_primitive_desc_t desc;
    onednn_desc_t wanted = dnnl_primitive_desc_query_md(p->desc, dnnl_query_weights_md, 0);
    TRY(matrix(&plain, s->k, s->n, s->ldb, s->b_transposed, s->bf16, e));
    if (dnnl_memory_desc_equal(plain.desc, wanted))
        return ST_OK;
    TRY(onednn_check(dnnl_memory_create(&p->plain_b, plain.desc, p->engine, NULL), "create a memory", e));
    TRY(onednn_check(dnnl_reorder_primitive_desc_create(&desc, plain.desc, p->engine, wanted, p->engine, NULL),
                     "plan a reorder", e));
    status_t st = onednn_check(dnnl_primitive_create(&p->reorder, desc), "build a reorder", e);
    dnnl_primitive_desc_destroy(desc);
    p->packed_bytes = dnnl_memory_desc_get_size(wanted);
    return st;
}

static status_t build(struct primitive *p, const struct primitive_shape *s, struct err *e) {
    TRY(onednn_check(dnnl_engine_create(&p->engine, dnnl_cpu, 0), "create an engine", e));
    TRY(desc_new(p, s, e));
    TRY(onednn_check(dnnl_primitive_create(&p->primitive, p->desc), "build a product", e));
    TRY(onednn_product_in_order(p->desc, &p->in_order, e));
    if (s->packed)
        TRY(reorder_new(p, s, e));
    for (int i = 0; i < p->n_lanes; i++)
        TRY(lane_init(&p->lanes[i], p, s->bias, e));
    return ST_OK;
}

status_t primitive_new(const struct primitive_shape *s, int threads, int lanes, struct primitive **ret, struct err *e) {
    CLEANUP(primitive_freep) struct primitive *p = alloc_zeroed(1, sizeof *p + (size_t)lanes * sizeof p->lanes[0]);
    p->threads = threads;
    p->n_lanes = lanes;
    p->shape = *s;
    p->copies_a = s->m == 1 && s->a_transposed && s->lda > 1;
    p->copies_c = s->n == 1 && s->ldc > 1;
    struct primitive_shape adjacent = *s;
    adjacent.lda = p->copies_a ? 1 : s->lda;
    adjacent.ldc = p->copies_c ? 1 : s->ldc;
    int before = onednn_threads(threads);
    status_t st = build(p, &adjacent, e);
    (void)onednn_threads(before);
    TRY(st);
    *ret = take_ptr(&p);
    return ST_OK;
}

struct primitive *primitive_free(struct primitive *p) {
    if (!p)
        return NULL;
    for (int i = 0; i < p->n_lanes; i++) {
        struct lane *l = &p->lanes[i];
        for (int j = 0; j < l->count; j++)
            dnnl_memory_destroy(l->argument[j].memory);
        dnnl_stream_destroy(l->stream);
        free(l->scratch);
        free(l->a);
        free(l->c);
    }
    dnnl_memory_destroy(p->plain_b);
    dnnl_primitive_destroy(p->reorder);
    dnnl_primitive_destroy(p->primitive);
    dnnl_primitive_desc_destroy(p->desc);
    dnnl_engine_destroy(p->engine);
    free(p);
    return NULL;
}

bool primitive_in_order(const struct primitive *p) { return p->in_order; }

/* oneDNN's handles are not const, but a product only reads its inputs. */
static dnnl_status_t point_memory(dnnl_memory_t memory, const void *data) {
    union {
        const void *in;
        void *out;
    } pointer = { .in = data };
    return dnnl_memory_set_data_handle(memory, pointer.out);
}

static dnnl_status_t point(const struct lane *l, int which, const void *data) {
    return l->at[which] < 0 ? dnnl_success : point_memory(l->argument[l->at[which]].memory, data);
}

static dnnl_status_t pack(const struct primitive *p, const struct lane *l, const void *b) {
    const dnnl_exec_arg_t arguments[] = { { DNNL_ARG_FROM, p->plain_b },
                                          { DNNL_ARG_TO, l->argument[l->at[B]].memory } };
    dnnl_status_t st = point_memory(p->plain_b, b);
    return st == dnnl_success ? dnnl_primitive_execute(p->reorder, l->stream, 2, arguments) : st;
}

size_t primitive_packed_bytes(const struct primitive *p) { return p->packed_bytes; }

static void copy_elements(void *to, int64_t to_stride, const void *from, int64_t from_stride, int64_t n, bool bf16) {
    const size_t size = element_bytes(bf16);
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)to + (size_t)(i * to_stride) * size, (const char *)from + (size_t)(i * from_stride) * size,
               size);
}

status_t primitive_run(const struct primitive *p, int lane, void *c, const void *a, const void *b, const void *bias,
                       void *packed, struct err *e) {
    const struct lane *l = &p->lanes[lane];
    const struct primitive_shape *s = &p->shape;
    if (p->copies_a)
        copy_elements(l->a, 1, a, s->lda, s->k, s->bf16);
    if (p->copies_c && s->accumulate)
        copy_elements(l->c, 1, c, s->ldc, s->m, s->c_bf16);
    if (point(l, A, p->copies_a ? l->a : a) != dnnl_success || point(l, B, p->reorder ? packed : b) != dnnl_success ||
        point(l, C, p->copies_c ? l->c : c) != dnnl_success || point(l, BIAS, bias) != dnnl_success)
        return err_set(e, ST_INTERNAL, "oneDNN refused a matrix's address");
    /* With one lane this call runs outside a parallel region and uses the whole team, so that oneDNN needs the number
     * of threads. With several lanes each thread of a parallel region runs its own lane. */
    int before = p->n_lanes == 1 ? onednn_threads(p->threads) : 0;
    dnnl_status_t st = p->reorder ? pack(p, l, b) : dnnl_success;
    if (st == dnnl_success)
        st = dnnl_primitive_execute(p->primitive, l->stream, l->count, l->argument);
    if (p->n_lanes == 1)
        (void)onednn_threads(before);
    if (p->copies_c)
        copy_elements(c, s->ldc, l->c, 1, s->m, s->c_bf16);
    return onednn_check(st, "run a product", e);
}
