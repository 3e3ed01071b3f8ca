/* oneDNN behind one interface for the versions 2 and 3.
 *
 * oneDNN's C interface changed between these versions. In version 2 a memory descriptor is a value, and an operation is
 * described in a struct before a primitive is planned. In version 3 a memory descriptor is a handle that must be
 * destroyed, and one call plans a primitive. The functions that differ (make_strided, make_tagged, append_sum, plan_*)
 * exist once for each version; everything below them is common.
 *
 * All plans use a scratchpad of the caller, so that a run allocates nothing. A product accumulates with oneDNN's
 * post-op "sum". A oneDNN status becomes RESOURCE_EXHAUSTED or INTERNAL, with a sentence that names the step that
 * failed. */
#include "kernels/cpu/onednn.h"

#include <omp.h>
#include <string.h>

status_t onednn_check(dnnl_status_t st, const char *what, struct err *e) {
    if (st == dnnl_success)
        return ST_OK;
    return err_set(e, st == dnnl_out_of_memory ? ST_RESOURCE_EXHAUSTED : ST_INTERNAL, "oneDNN could not %s (%s)", what,
                   st == dnnl_out_of_memory   ? "out of memory"
                   : st == dnnl_unimplemented ? "it has no such primitive"
                                              : "internal error");
}

int onednn_threads(int threads) {
    int before = omp_get_max_threads();
    if (before != threads)
        omp_set_num_threads(threads);
    return before;
}

const char *onednn_isa_name(void) {
    switch (dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_sse41: return "sse41";
    case dnnl_cpu_isa_avx: return "avx";
    case dnnl_cpu_isa_avx2: return "avx2";
    case dnnl_cpu_isa_avx2_vnni: return "avx2_vnni";
    case dnnl_cpu_isa_avx512_core: return "avx512_core";
    case dnnl_cpu_isa_avx512_core_vnni: return "avx512_core_vnni";
    case dnnl_cpu_isa_avx512_core_bf16: return "avx512_core_bf16";
    case dnnl_cpu_isa_avx512_core_amx: return "avx512_core_amx";
#if DNNL_VERSION_MAJOR >= 3
    case dnnl_cpu_isa_avx2_vnni_2: return "avx2_vnni_2";
    case dnnl_cpu_isa_avx512_core_fp16: return "avx512_core_fp16";
    case dnnl_cpu_isa_avx512_core_amx_fp16: return "avx512_core_amx_fp16";
#endif
    default: return "other";
    }
}

/* The blocked product is named "brg:avx512_core" in oneDNN 2 and "brg_matmul:avx512_core" in later releases of oneDNN
 * 3. The AMX variant is excluded: it divides k by the number of threads (product.h). */
status_t onednn_product_in_order(dnnl_primitive_desc_t plan, bool *ret, struct err *e) {
    const char *name = "";
    TRY(onednn_check(dnnl_primitive_desc_query(plan, dnnl_query_impl_info_str, 0, &name), "name a product", e));
    const bool blocked = strncmp(name, "brg:", 4) == 0 || strncmp(name, "brg_matmul:", 11) == 0;
    *ret = blocked && !strstr(name, "amx");
    return ST_OK;
}

/* --- calls that differ: oneDNN 2 fills in a description of the operation first, oneDNN 3 plans in one call ---*/

#if DNNL_VERSION_MAJOR >= 3

static const dnnl_dims_t NOT_DILATED = { 0 };

static dnnl_status_t make_strided(struct onednn_layout *l, int n, const dnnl_dims_t dims, dnnl_data_type_t type,
                                  const dnnl_dims_t strides) {
    dnnl_status_t st = dnnl_memory_desc_create_with_strides(&l->own, n, dims, type, strides);
    l->desc = st == dnnl_success ? l->own : NULL;
    return st;
}

static dnnl_status_t make_tagged(struct onednn_layout *l, int n, const dnnl_dims_t dims, dnnl_data_type_t type,
                                 dnnl_format_tag_t tag) {
    dnnl_status_t st = dnnl_memory_desc_create_with_tag(&l->own, n, dims, type, tag);
    l->desc = st == dnnl_success ? l->own : NULL;
    return st;
}

void onednn_layout_done(struct onednn_layout *l) {
    if (l->desc)
        dnnl_memory_desc_destroy(l->own);
    l->desc = NULL;
}

static dnnl_status_t append_sum(dnnl_post_ops_t to) {
    return dnnl_post_ops_append_sum(to, 1.0f, 0, dnnl_data_type_undef); /* undef: the type of C */
}

static dnnl_status_t plan_product(dnnl_engine_t engine, const struct onednn_product *p, dnnl_primitive_attr_t with,
                                  dnnl_primitive_desc_t *ret) {
    return dnnl_matmul_primitive_desc_create(ret, engine, p->a, p->b, p->bias, p->c, with);
}

static dnnl_status_t plan_forward(dnnl_engine_t engine, const struct onednn_convolution *c, dnnl_primitive_attr_t with,
                                  dnnl_primitive_desc_t *ret) {
    return dnnl_convolution_forward_primitive_desc_create(ret, engine, dnnl_forward_training, dnnl_convolution_direct,
                                                          c->x, c->w, c->bias, c->y, c->stride, NOT_DILATED, c->pad,
                                                          c->pad, with);
}

static dnnl_status_t plan_backward(dnnl_engine_t engine, const struct onednn_convolution *c, dnnl_primitive_attr_t with,
                                   dnnl_primitive_desc_t forward, dnnl_primitive_desc_t *ret) {
    return dnnl_convolution_backward_data_primitive_desc_create(ret, engine, dnnl_convolution_direct, c->x, c->w, c->y,
                                                                c->stride, NOT_DILATED, c->pad, c->pad, forward, with);
}

#else

static dnnl_status_t make_strided(struct onednn_layout *l, int n, const dnnl_dims_t dims, dnnl_data_type_t type,
                                  const dnnl_dims_t strides) {
    l->desc = &l->own;
    return dnnl_memory_desc_init_by_strides(&l->own, n, dims, type, strides);
}

static dnnl_status_t make_tagged(struct onednn_layout *l, int n, const dnnl_dims_t dims, dnnl_data_type_t type,
                                 dnnl_format_tag_t tag) {
    l->desc = &l->own;
    return dnnl_memory_desc_init_by_tag(&l->own, n, dims, type, tag);
}

void onednn_layout_done(struct onednn_layout *l) { l->desc = NULL; }

static dnnl_status_t append_sum(dnnl_post_ops_t to) { return dnnl_post_ops_append_sum(to, 1.0f); }

static dnnl_status_t plan_product(dnnl_engine_t engine, const struct onednn_product *p, dnnl_primitive_attr_t with,
                                  dnnl_primitive_desc_t *ret) {
    dnnl_matmul_desc_t d;
    dnnl_status_t st = dnnl_matmul_desc_init(&d, p->a, p->b, p->bias, p->c);
    return st == dnnl_success ? dnnl_primitive_desc_create(ret, &d, with, engine, NULL) : st;
}

static dnnl_status_t plan_forward(dnnl_engine_t engine, const struct onednn_convolution *c, dnnl_primitive_attr_t with,
                                  dnnl_primitive_desc_t *ret) {
    dnnl_convolution_desc_t d;
    dnnl_status_t st = dnnl_convolution_forward_desc_init(&d, dnnl_forward_training, dnnl_convolution_direct, c->x,
                                                          c->w, c->bias, c->y, c->stride, c->pad, c->pad);
    return st == dnnl_success ? dnnl_primitive_desc_create(ret, &d, with, engine, NULL) : st;
}

static dnnl_status_t plan_backward(dnnl_engine_t engine, const struct onednn_convolution *c, dnnl_primitive_attr_t with,
                                   dnnl_primitive_desc_t forward, dnnl_primitive_desc_t *ret) {
    dnnl_convolution_desc_t d;
    dnnl_status_t st = dnnl_convolution_backward_data_desc_init(&d, dnnl_convolution_direct, c->x, c->w, c->y,
                                                                c->stride, c->pad, c->pad);
    return st == dnnl_success ? dnnl_primitive_desc_create(ret, &d, with, engine, forward) : st;
}

#endif

/* --- common to both versions ---*/

status_t onednn_layout_strided(struct onednn_layout *ret, int n, const dnnl_dims_t dims, dnnl_data_type_t type,
                               const dnnl_dims_t strides, struct err *e) {
    return onednn_check(make_strided(ret, n, dims, type, strides), "describe a tensor", e);
}

status_t onednn_layout_tagged(struct onednn_layout *ret, int n, const dnnl_dims_t dims, dnnl_data_type_t type,
                              dnnl_format_tag_t tag, struct err *e) {
    return onednn_check(make_tagged(ret, n, dims, type, tag), "describe a tensor", e);
}

static void attributes_destroyp(dnnl_primitive_attr_t *a) {
    if (*a)
        dnnl_primitive_attr_destroy(*a);
}

/* The caller destroys *ret, also after an error. */
static status_t attributes_new(bool accumulate, dnnl_primitive_attr_t *ret, struct err *e) {
    TRY(onednn_check(dnnl_primitive_attr_create(ret), "create attributes", e));
    TRY(onednn_check(dnnl_primitive_attr_set_scratchpad_mode(*ret, dnnl_scratchpad_mode_user), "set the scratchpad",
                     e));
    if (!accumulate)
        return ST_OK;
    dnnl_post_ops_t sum;
    TRY(onednn_check(dnnl_post_ops_create(&sum), "create a sum", e));
    status_t st = onednn_check(append_sum(sum), "append a sum", e);
    if (st == ST_OK)
        st = onednn_check(dnnl_primitive_attr_set_post_ops(*ret, sum), "set a sum", e);
    dnnl_post_ops_destroy(sum);
    return st;
}

status_t onednn_product_plan(dnnl_engine_t engine, const struct onednn_product *p, dnnl_primitive_desc_t *ret,
                             struct err *e) {
    CLEANUP(attributes_destroyp) dnnl_primitive_attr_t attributes = NULL;
    TRY(attributes_new(p->accumulate, &attributes, e));
    return onednn_check(plan_product(engine, p, attributes, ret), "plan a product", e);
}

status_t onednn_convolution_plan(dnnl_engine_t engine, const struct onednn_convolution *c, dnnl_primitive_desc_t *ret,
                                 struct err *e) {
    CLEANUP(attributes_destroyp) dnnl_primitive_attr_t attributes = NULL;
    TRY(attributes_new(false, &attributes, e));
    return onednn_check(plan_forward(engine, c, attributes, ret), "plan a convolution", e);
}

status_t onednn_convolution_backward_plan(dnnl_engine_t engine, const struct onednn_convolution *c,
                                          dnnl_primitive_desc_t forward, dnnl_primitive_desc_t *ret, struct err *e) {
    CLEANUP(attributes_destroyp) dnnl_primitive_attr_t attributes = NULL;
    TRY(attributes_new(false, &attributes, e));
    return onednn_check(plan_backward(engine, c, attributes, forward, ret), "plan a convolution", e);
}
