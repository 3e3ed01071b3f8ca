#include "kernels/cpu/primitive.h"

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
    int at[ARGUMENTS]; /* where an argument stands in `argument`; -1 = not used */
    void *scratch;
};

struct primitive {
    dnnl_engine_t engine;
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive;
    int threads, n_lanes;
    bool in_order;
    /* Packing: B as the caller has it and as the product reads it. NULL: the product reads the caller's. */
    dnnl_primitive_t reorder;
    dnnl_memory_t plain_b;
    size_t packed_bytes;
    struct lane lanes[];
};

static dnnl_data_type_t data_type(bool bf16) { return bf16 ? dnnl_bf16 : dnnl_f32; }

static status_t matrix_desc(dnnl_memory_desc_t *ret, int64_t rows, int64_t columns, int64_t ld, bool transposed,
                            bool bf16, struct err *e) {
    dnnl_dims_t dims = { rows, columns }, strides = { transposed ? 1 : ld, transposed ? ld : 1 };
    return onednn_check(dnnl_memory_desc_init_by_strides(ret, 2, dims, data_type(bf16), strides), "describe a matrix",
                        e);
}

static status_t attributes_new(bool accumulate, dnnl_primitive_attr_t *ret, struct err *e) {
    TRY(onednn_check(dnnl_primitive_attr_create(ret), "create attributes", e));
    TRY(onednn_check(dnnl_primitive_attr_set_scratchpad_mode(*ret, dnnl_scratchpad_mode_user), "set the scratchpad",
                     e));
    if (!accumulate)
        return ST_OK;
    dnnl_post_ops_t sum;
    TRY(onednn_check(dnnl_post_ops_create(&sum), "create a sum", e));
    status_t st = onednn_check(dnnl_post_ops_append_sum(sum, 1.0f), "append a sum", e);
    if (st == ST_OK)
        st = onednn_check(dnnl_primitive_attr_set_post_ops(*ret, sum), "set a sum", e);
    dnnl_post_ops_destroy(sum);
    return st;
}

static void attributes_destroyp(dnnl_primitive_attr_t *a) {
    if (*a)
        dnnl_primitive_attr_destroy(*a);
}

static status_t desc_new(struct primitive *p, const struct primitive_shape *s, struct err *e) {
    dnnl_memory_desc_t a, b, c, bias;
    dnnl_matmul_desc_t product;
    CLEANUP(attributes_destroyp) dnnl_primitive_attr_t attributes = NULL;
    TRY(matrix_desc(&a, s->m, s->k, s->lda, s->a_transposed, s->bf16, e));
    if (s->packed) {
        dnnl_dims_t dims = { s->k, s->n };
        TRY(onednn_check(dnnl_memory_desc_init_by_tag(&b, 2, dims, data_type(s->bf16), dnnl_format_tag_any),
                         "describe a matrix", e));
    } else {
        TRY(matrix_desc(&b, s->k, s->n, s->ldb, s->b_transposed, s->bf16, e));
    }
    TRY(matrix_desc(&c, s->m, s->n, s->ldc, false, s->c_bf16, e));
    TRY(matrix_desc(&bias, 1, s->n, s->n, false, s->bf16, e));
    TRY(attributes_new(s->accumulate, &attributes, e));
    TRY(onednn_check(dnnl_matmul_desc_init(&product, &a, &b, s->bias ? &bias : NULL, &c), "describe a product", e));
    return onednn_check(dnnl_primitive_desc_create(&p->desc, &product, attributes, p->engine, NULL), "plan a product",
                        e);
}

static status_t lane_add(struct lane *l, int which, const dnnl_memory_desc_t *desc, dnnl_engine_t engine, void *data,
                         struct err *e) {
    dnnl_memory_t memory;
    TRY(onednn_check(dnnl_memory_create(&memory, desc, engine, data), "create a memory", e));
    l->at[which] = l->count;
    l->argument[l->count++] = (dnnl_exec_arg_t){ ARGUMENT_ID[which], memory };
    return ST_OK;
}

static status_t lane_init(struct lane *l, const struct primitive *p, bool bias, struct err *e) {
    for (int i = 0; i < ARGUMENTS; i++)
        l->at[i] = -1;
    TRY(onednn_check(dnnl_stream_create(&l->stream, p->engine, dnnl_stream_default_flags), "create a stream", e));
    static const dnnl_query_t query[] = {
        [A] = dnnl_query_src_md, [B] = dnnl_query_weights_md, [C] = dnnl_query_dst_md
    };
    for (int i = A; i <= C; i++)
        TRY(lane_add(l, i, dnnl_primitive_desc_query_md(p->desc, query[i], 0), p->engine, NULL, e));
    if (bias)
        TRY(lane_add(l, BIAS, dnnl_primitive_desc_query_md(p->desc, dnnl_query_weights_md, 1), p->engine, NULL, e));
    const dnnl_memory_desc_t *scratch = dnnl_primitive_desc_query_md(p->desc, dnnl_query_scratchpad_md, 0);
    size_t bytes = dnnl_memory_desc_get_size(scratch);
    if (bytes == 0)
        return ST_OK;
    if (posix_memalign(&l->scratch, 64, bytes))
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for %zu bytes of a product's scratchpad", bytes);
    return lane_add(l, SCRATCH, scratch, p->engine, l->scratch, e);
}

static status_t reorder_new(struct primitive *p, const struct primitive_shape *s, struct err *e) {
    dnnl_memory_desc_t plain;
    dnnl_primitive_desc_t desc;
    const dnnl_memory_desc_t *wanted = dnnl_primitive_desc_query_md(p->desc, dnnl_query_weights_md, 0);
    TRY(matrix_desc(&plain, s->k, s->n, s->ldb, s->b_transposed, s->bf16, e));
    if (dnnl_memory_desc_equal(&plain, wanted))
        return ST_OK;
    TRY(onednn_check(dnnl_memory_create(&p->plain_b, &plain, p->engine, NULL), "create a memory", e));
    TRY(onednn_check(dnnl_reorder_primitive_desc_create(&desc, &plain, p->engine, wanted, p->engine, NULL),
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
    const char *name = "";
    TRY(onednn_check(dnnl_primitive_desc_query(p->desc, dnnl_query_impl_info_str, 0, &name), "name a product", e));
    p->in_order = strncmp(name, "brg:", 4) == 0 && !strstr(name, "amx");
    if (s->packed)
        TRY(reorder_new(p, s, e));
    for (int i = 0; i < p->n_lanes; i++)
        TRY(lane_init(&p->lanes[i], p, s->bias, e));
    return ST_OK;
}

status_t primitive_new(const struct primitive_shape *s, int threads, int lanes, struct primitive **ret, struct err *e) {
    CLEANUP(primitive_freep) struct primitive *p = calloc(1, sizeof *p + (size_t)lanes * sizeof p->lanes[0]);
    if (!p)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a product of %d lanes", lanes);
    p->threads = threads;
    p->n_lanes = lanes;
    int before = onednn_threads(threads);
    status_t st = build(p, s, e);
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

status_t primitive_run(const struct primitive *p, int lane, void *c, const void *a, const void *b, const void *bias,
                       void *packed, struct err *e) {
    const struct lane *l = &p->lanes[lane];
    if (point(l, A, a) != dnnl_success || point(l, B, p->reorder ? packed : b) != dnnl_success ||
        point(l, C, c) != dnnl_success || point(l, BIAS, bias) != dnnl_success)
        return err_set(e, ST_INTERNAL, "oneDNN refused a matrix's address");
    int before = p->n_lanes == 1 ? onednn_threads(p->threads) : 0;
    dnnl_status_t st = p->reorder ? pack(p, l, b) : dnnl_success;
    if (st == dnnl_success)
        st = dnnl_primitive_execute(p->primitive, l->stream, l->count, l->argument);
    if (p->n_lanes == 1)
        (void)onednn_threads(before);
    return onednn_check(st, "run a product", e);
}
