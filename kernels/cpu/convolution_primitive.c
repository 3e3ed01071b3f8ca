/* One oneDNN convolution: the forward pass, or the gradient of x.
 *
 * Building plans the primitive with one thread, and lets oneDNN choose the layout of W. A reorder from the caller's
 * layout of W to that layout is built with the threads of the team. Each lane has its own stream, memory handles and
 * scratchpad, so that lanes can run at the same time on different threads.
 *
 * The gradient of x with stride 1 is computed as a forward convolution of dy. For this the taps of W are reversed
 * (turn), and the input and output channels are exchanged by the strides of the plain layout (weights_init).
 *
 * Running sets the data pointers of x and y in one lane and executes the primitive. W and the bias are set for all
 * lanes before the parallel region, by convolution_point. */
#include "kernels/cpu/convolution_primitive.h"

#include "base/alloc.h"

#include "kernels/cpu/onednn.h"

#include <stdlib.h>

enum { X, W, Y, BIAS, SCRATCH, ARGUMENTS };

struct lane {
    dnnl_stream_t stream;
    dnnl_memory_t memory[ARGUMENTS];
    void *scratch;
};

/* TURNED: the gradient of x if the stride is 1. It is a convolution of dy with the taps of W reversed and the channels
 * exchanged. The forward pass is oneDNN's fastest pass. */
enum kind { FORWARD, BACKWARD_INPUT, TURNED };

struct convolution_primitive {
    struct convolution_shape shape;
    enum kind kind;
    dnnl_engine_t engine;
    dnnl_primitive_desc_t forward, desc; /* forward: the hint that backward descriptions need */
    dnnl_primitive_t primitive;
    /* Reorders W from the caller's layout (plain) to the layout of the primitive (packed). */
    dnnl_primitive_t pack;
    dnnl_memory_t plain, packed;
    size_t packed_bytes;
    int threads, n_lanes;
    struct lane lanes[];
};

/* --- building ---*/

struct layouts {
    struct onednn_layout x, w, y, bias;
};

static void layouts_done(struct layouts *l) {
    onednn_layout_done(&l->x);
    onednn_layout_done(&l->w);
    onednn_layout_done(&l->y);
    onednn_layout_done(&l->bias);
}

static dnnl_data_type_t element_of(const struct convolution_primitive *p) {
    return p->shape.bf16 ? dnnl_bf16 : dnnl_f32;
}

static status_t layouts_init(const struct convolution_dims *d, dnnl_data_type_t element, struct layouts *ret,
                             struct err *e) {
    dnnl_dims_t x = { d->batch, d->in, d->height, d->width }, w = { d->out, d->in, d->kernel, d->kernel };
    dnnl_dims_t y = { d->batch, d->out, convolution_side(d, d->height), convolution_side(d, d->width) };
    dnnl_dims_t bias = { d->out };
    TRY(onednn_layout_tagged(&ret->x, 4, x, element, dnnl_nhwc, e));
    TRY(onednn_layout_tagged(&ret->y, 4, y, element, dnnl_nhwc, e));
    TRY(onednn_layout_tagged(&ret->bias, 1, bias, element, dnnl_x, e));
    return onednn_layout_tagged(&ret->w, 4, w, element, dnnl_format_tag_any, e);
}

static struct convolution_dims turned(const struct convolution_dims *d) {
    return (struct convolution_dims){ .batch = d->batch,
                                      .height = convolution_side(d, d->height),
                                      .width = convolution_side(d, d->width),
                                      .in = d->out,
                                      .out = d->in,
                                      .kernel = d->kernel,
                                      .stride = 1,
                                      .padding = d->kernel - 1 - d->padding };
}

static enum kind kind_of(const struct convolution_shape *s) {
    if (s->pass == CONVOLUTION_FORWARD)
        return FORWARD;
    return s->dims.stride == 1 && s->dims.padding < s->dims.kernel ? TURNED : BACKWARD_INPUT;
}

static status_t plan(struct convolution_primitive *p, struct err *e) {
    const struct convolution_dims d = p->kind == TURNED ? turned(&p->shape.dims) : p->shape.dims;
    const dnnl_dims_t stride = { d.stride, d.stride }, pad = { d.padding, d.padding };
    CLEANUP(layouts_done) struct layouts l = { 0 };
    TRY(layouts_init(&d, element_of(p), &l, e));
    const struct onednn_convolution c = {
        .x = l.x.desc, .w = l.w.desc, .bias = p->shape.bias ? l.bias.desc : NULL, .y = l.y.desc, stride, pad
    };
    TRY(onednn_convolution_plan(p->engine, &c, &p->forward, e));
    if (p->kind == BACKWARD_INPUT)
        return onednn_convolution_backward_plan(p->engine, &c, p->forward, &p->desc, e);
    p->desc = p->forward;
    p->forward = NULL;
    return ST_OK;
}

static onednn_desc_t weights_of(const struct convolution_primitive *p) {
    return dnnl_primitive_desc_query_md(p->desc, dnnl_query_weights_md, 0);
}

static status_t weights_init(struct convolution_primitive *p, struct err *e) {
    const struct convolution_dims *d = &p->shape.dims;
    onednn_desc_t packed = weights_of(p);
    const int64_t taps = d->kernel * d->kernel, out = d->in * taps; /* elements from one output channel to the next */
    const bool turn = p->kind == TURNED;
    dnnl_dims_t dims = { turn ? d->in : d->out, turn ? d->out : d->in, d->kernel, d->kernel };
    dnnl_dims_t strides = { turn ? taps : out, turn ? out : taps, d->kernel, 1 };
    CLEANUP(onednn_layout_done) struct onednn_layout plain = { 0 };
    dnnl_primitive_desc_t desc;
    p->packed_bytes = dnnl_memory_desc_get_size(packed);
    TRY(onednn_layout_strided(&plain, 4, dims, element_of(p), strides, e));
    TRY(onednn_check(dnnl_memory_create(&p->plain, plain.desc, p->engine, NULL), "create a memory", e));
    TRY(onednn_check(dnnl_memory_create(&p->packed, packed, p->engine, NULL), "create a memory", e));
    TRY(onednn_check(dnnl_reorder_primitive_desc_create(&desc, plain.desc, p->engine, packed, p->engine, NULL),
                     "plan a reorder", e));
    status_t st = onednn_check(dnnl_primitive_create(&p->pack, desc), "build a reorder", e);
    dnnl_primitive_desc_destroy(desc);
    return st;
}

static status_t lane_init(struct lane *l, const struct convolution_primitive *p, struct err *e) {
    static const dnnl_query_t query[][2] = {
        [FORWARD] = { dnnl_query_src_md, dnnl_query_dst_md },
        [BACKWARD_INPUT] = { dnnl_query_diff_src_md, dnnl_query_diff_dst_md },
        [TURNED] = { dnnl_query_dst_md, dnnl_query_src_md },
    };
    const onednn_desc_t desc[ARGUMENTS] = {
        [X] = dnnl_primitive_desc_query_md(p->desc, query[p->kind][0], 0),
        [W] = weights_of(p),
        [Y] = dnnl_primitive_desc_query_md(p->desc, query[p->kind][1], 0),
        [BIAS] = p->shape.bias ? dnnl_primitive_desc_query_md(p->desc, dnnl_query_weights_md, 1) : NULL,
        [SCRATCH] = dnnl_primitive_desc_query_md(p->desc, dnnl_query_scratchpad_md, 0),
    };
    TRY(onednn_check(dnnl_stream_create(&l->stream, p->engine, dnnl_stream_default_flags), "create a stream", e));
    size_t bytes = dnnl_memory_desc_get_size(desc[SCRATCH]);
    if (bytes > 0 && posix_memalign(&l->scratch, 64, bytes))
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for %zu bytes of a convolution's scratchpad", bytes);
    for (int i = 0; i < ARGUMENTS; i++)
        if (desc[i])
            TRY(onednn_check(dnnl_memory_create(&l->memory[i], desc[i], p->engine, i == SCRATCH ? l->scratch : NULL),
                             "create a memory", e));
    return ST_OK;
}

static status_t build(struct convolution_primitive *p, struct err *e) {
    TRY(onednn_check(dnnl_engine_create(&p->engine, dnnl_cpu, 0), "create an engine", e));
    TRY(plan(p, e));
    TRY(onednn_check(dnnl_primitive_create(&p->primitive, p->desc), "build a convolution", e));
    for (int i = 0; i < p->n_lanes; i++)
        TRY(lane_init(&p->lanes[i], p, e));
    (void)onednn_threads(p->threads); /* reorders use all threads; the caller restores the number */
    return weights_init(p, e);
}

status_t convolution_primitive_new(const struct convolution_shape *s, int lanes, int threads,
                                   struct convolution_primitive **ret, struct err *e) {
    CLEANUP(convolution_primitive_freep)
    struct convolution_primitive *p = alloc_zeroed(1, sizeof *p + (size_t)lanes * sizeof p->lanes[0]);
    p->shape = *s;
    p->kind = kind_of(s);
    p->threads = threads;
    p->n_lanes = lanes;
    int before = onednn_threads(1);
    status_t st = build(p, e);
    (void)onednn_threads(before);
    TRY(st);
    *ret = take_ptr(&p);
    return ST_OK;
}

struct convolution_primitive *convolution_primitive_free(struct convolution_primitive *p) {
    if (!p)
        return NULL;
    for (int i = 0; i < p->n_lanes; i++) {
        for (int j = 0; j < ARGUMENTS; j++)
            dnnl_memory_destroy(p->lanes[i].memory[j]);
        dnnl_stream_destroy(p->lanes[i].stream);
        free(p->lanes[i].scratch);
    }
    dnnl_memory_destroy(p->plain);
    dnnl_memory_destroy(p->packed);
    dnnl_primitive_destroy(p->pack);
    dnnl_primitive_destroy(p->primitive);
    dnnl_primitive_desc_destroy(p->desc);
    dnnl_primitive_desc_destroy(p->forward);
    dnnl_engine_destroy(p->engine);
    free(p);
    return NULL;
}

/* --- running ---*/

/* oneDNN's handles are not const, but a primitive only reads its inputs. */
static dnnl_status_t point(dnnl_memory_t memory, const void *data) {
    union {
        const void *in;
        void *out;
    } pointer = { .in = data };
    return dnnl_memory_set_data_handle(memory, pointer.out);
}

size_t convolution_packed_bytes(const struct convolution_primitive *p) { return p->packed_bytes; }

/* Reverses the taps of each pair of channels. */
#define TURN(type)                                                                                                     \
    _Pragma("omp parallel for num_threads(p->threads) schedule(static)") for (int64_t i = 0; i < kernels;              \
                                                                              i++) for (int64_t tap = 0; tap < taps;   \
                                                                                        tap++)(                        \
        (type *)to)[i * taps + tap] = ((const type *)w)[(i + 1) * taps - 1 - tap]

static void turn(const struct convolution_primitive *p, void *to, const void *w) {
    const struct convolution_dims *d = &p->shape.dims;
    const int64_t taps = d->kernel * d->kernel, kernels = d->in * d->out;
    if (p->shape.bf16)
        TURN(uint16_t);
    else
        TURN(float);
}

status_t convolution_pack(const struct convolution_primitive *p, void *packed, const void *w, void *scratch,
                          struct err *e) {
    const dnnl_exec_arg_t arguments[] = { { DNNL_ARG_FROM, p->plain }, { DNNL_ARG_TO, p->packed } };
    if (p->kind == TURNED)
        turn(p, scratch, w);
    TRY(onednn_check(point(p->plain, p->kind == TURNED ? scratch : w), "point at weights", e));
    TRY(onednn_check(point(p->packed, packed), "point at weights", e));
    int before = onednn_threads(p->threads);
    dnnl_status_t st = dnnl_primitive_execute(p->pack, p->lanes[0].stream, 2, arguments);
    (void)onednn_threads(before);
    return onednn_check(st, "reorder weights", e);
}

status_t convolution_point(const struct convolution_primitive *p, void *packed, const void *bias, struct err *e) {
    for (int i = 0; i < p->n_lanes; i++) {
        TRY(onednn_check(point(p->lanes[i].memory[W], packed), "point at weights", e));
        if (p->shape.bias)
            TRY(onednn_check(point(p->lanes[i].memory[BIAS], bias), "point at a bias", e));
    }
    return ST_OK;
}

bool convolution_run(const struct convolution_primitive *p, int lane, const void *x, const void *y) {
    static const int id[][ARGUMENTS] = {
        [FORWARD] = { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS, DNNL_ARG_SCRATCHPAD },
        [BACKWARD_INPUT] = { DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST, 0, DNNL_ARG_SCRATCHPAD },
        [TURNED] = { DNNL_ARG_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_SRC, 0, DNNL_ARG_SCRATCHPAD },
    };
    const struct lane *l = &p->lanes[lane];
    if (point(l->memory[X], x) != dnnl_success || point(l->memory[Y], y) != dnnl_success)
        return false;
    dnnl_exec_arg_t arguments[ARGUMENTS];
    int n = 0;
    for (int i = 0; i < ARGUMENTS; i++)
        if (l->memory[i])
            arguments[n++] = (dnnl_exec_arg_t){ id[p->kind][i], l->memory[i] };
    return dnnl_primitive_execute(p->primitive, l->stream, n, arguments) == dnnl_success;
}
