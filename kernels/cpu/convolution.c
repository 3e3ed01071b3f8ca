/* Convolutions and their gradients, cached by shape and pass.
 *
 * 1 x 1 convolutions are products (convolution_1x1.c). Others pack the weights into oneDNN's layout once per call; then
 * each thread computes whole samples with a one-thread primitive, so that bits do not depend on the number of threads.
 * If oneDNN does not support the precision, a sample is converted to fp32 in the thread's scratch memory. Gradients of
 * weights are computed by the vector code (convolution_weight.h). */
#include "kernels/cpu/convolution.h"

#include "base/alloc.h"

#include "kernels/cpu/convolution_1x1.h"
#include "kernels/cpu/convolution_primitive.h"
#include "kernels/cpu/convolution_weight.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/onednn.h"

#include <omp.h>
#include <stdlib.h>

/* ResNet-50 has 23 different convolutions, and oneDNN computes two passes of each. */
enum { MAX_PRIMITIVES = 160 };

struct entry {
    struct convolution_shape shape;
    uint64_t used; /* the clock of the last use; 0 = free */
    struct convolution_primitive *primitive;
};

struct convolutions {
    bool bf16, direct;
    int threads;
    uint64_t clock;
    struct entry entries[MAX_PRIMITIVES];
};

status_t convolutions_new(enum kernels_precision precision, bool direct, int threads, struct convolutions **ret,
                          struct err *e) {
    (void)e;
    struct convolutions *c = alloc_zeroed(1, sizeof *c);
    c->direct = direct;
    c->bf16 = direct && precision == KERNELS_BF16;
    c->threads = threads;
    *ret = c;
    return ST_OK;
}

static void entries_clear(struct convolutions *c) {
    for (int i = 0; i < MAX_PRIMITIVES; i++) {
        convolution_primitive_free(c->entries[i].primitive);
        c->entries[i] = (struct entry){ 0 };
    }
}

void convolutions_set_threads(struct convolutions *c, int threads) {
    entries_clear(c);
    c->threads = threads;
}

struct convolutions *convolutions_free(struct convolutions *c) {
    if (!c)
        return NULL;
    entries_clear(c);
    free(c);
    return NULL;
}

static bool shape_equal(const struct convolution_shape *a, const struct convolution_shape *b) {
    const struct convolution_dims *p = &a->dims, *q = &b->dims;
    return a->pass == b->pass && a->bias == b->bias && a->bf16 == b->bf16 && p->batch == q->batch &&
           p->height == q->height && p->width == q->width && p->in == q->in && p->out == q->out &&
           p->kernel == q->kernel && p->stride == q->stride && p->padding == q->padding;
}

static status_t primitive_of(struct convolutions *c, const struct convolution_dims *d, enum convolution_pass pass,
                             bool bias, struct convolution_primitive **ret, struct err *e) {
    const struct convolution_shape shape = { .dims = *d, .pass = pass, .bias = bias, .bf16 = c->bf16 };
    struct entry *oldest = &c->entries[0];
    c->clock++;
    for (int i = 0; i < MAX_PRIMITIVES; i++) {
        struct entry *t = &c->entries[i];
        if (t->used && shape_equal(&t->shape, &shape)) {
            t->used = c->clock;
            *ret = t->primitive;
            return ST_OK;
        }
        if (t->used < oldest->used)
            oldest = t;
    }
    oldest->primitive = convolution_primitive_free(oldest->primitive);
    *oldest = (struct entry){ .shape = shape };
    status_t st = convolution_primitive_new(&shape, c->threads, c->threads, &oldest->primitive, e);
    if (st != ST_OK)
        return err_prefix(e, st, "convolution %lld x %lld of %lld to %lld channels: ", (long long)d->kernel,
                          (long long)d->kernel, (long long)d->in, (long long)d->out);
    oldest->used = c->clock;
    *ret = oldest->primitive;
    return ST_OK;
}

/* --- workspace: packed weights, scratch for packing them, fp32 weights, then scratch memory for each thread ---*/

static int64_t up_to_multiple(int64_t n, int64_t of) { return (n + of - 1) / of * of; }

/* The largest size of W in any layout that oneDNN chooses. oneDNN pads channels to blocks of at most 64. It also adds
 * one block to a row of blocks if the distance between rows would be a power of two. */
static size_t packed_max_bytes(const struct convolution_dims *d) {
    const int64_t n = up_to_multiple(d->in, 64) * up_to_multiple(d->out, 64) * d->kernel * d->kernel;
    return (size_t)(n + n / 8) * sizeof(float);
}

static int64_t weights(const struct convolution_dims *d) { return d->in * d->out * d->kernel * d->kernel; }
static int64_t in_elements(const struct convolution_dims *d) { return d->height * d->width * d->in; }
static int64_t out_elements(const struct convolution_dims *d) {
    return convolution_side(d, d->height) * convolution_side(d, d->width) * d->out;
}

static size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

struct workspace_layout {
    char *packed;    /* W */
    char *scratch;   /* another W */
    float *weights;  /* W, followed by the bias, in fp32; only if not direct */
    char *lanes;     /* x and y of one thread in fp32, or its dx */
    size_t y_at;     /* offset of y in a lane, bytes */
    size_t per_lane; /* bytes */
};

/* threads: the size of the largest team. The number of lanes is at most the number of samples, because each thread
 * computes whole samples. */
static struct workspace_layout workspace_layout_of(const struct convolutions *c, int threads,
                                                   const struct convolution_dims *d, void *workspace, size_t *bytes) {
    const int64_t lanes = threads < d->batch ? threads : d->batch;
    const size_t packed = aligned(packed_max_bytes(d)), scratch = aligned((size_t)weights(d) * sizeof(float));
    const size_t wide = c->direct ? 0 : aligned((size_t)(weights(d) + d->out) * sizeof(float));
    struct workspace_layout r = { .packed = workspace };
    r.y_at = aligned((size_t)in_elements(d) * sizeof(float));
    r.per_lane = r.y_at + (c->direct ? 0 : aligned((size_t)out_elements(d) * sizeof(float)));
    *bytes = packed + scratch + wide + r.per_lane * (size_t)lanes;
    if (workspace) {
        r.scratch = r.packed + packed;
        r.weights = (float *)(void *)(r.scratch + scratch);
        r.lanes = r.scratch + scratch + wide;
    }
    return r;
}

size_t convolution_workspace(const struct kernels *k, const struct convolution_dims *d) {
    const size_t gradient = weight_workspace(d, k->max_threads);
    size_t bytes;
    if (cpu_of(k)->isa == KERNELS_ISA_PLAIN)
        return 0;
    if (convolution_is_1x1(d))
        return convolution_1x1_workspace(k, d);
    (void)workspace_layout_of(cpu_of(k)->convolutions, k->max_threads, d, NULL, &bytes);
    return bytes > gradient ? bytes : gradient;
}

/* --- the passes ---*/

static const void *at_in(const struct kernels *k, const element_t *a, int64_t n) {
    return (const char *)a + (size_t)n * kernels_element_bytes(k);
}
static void *at_out(const struct kernels *k, element_t *a, int64_t n) {
    return (char *)a + (size_t)n * kernels_element_bytes(k);
}

static status_t pack(const struct kernels *k, struct convolution_primitive *p, const struct workspace_layout *r,
                     const struct convolution_dims *d, const element_t *w, struct err *e) {
    const void *from = w;
    if (convolution_packed_bytes(p) > packed_max_bytes(d))
        return err_set(e, ST_INTERNAL, "oneDNN needs %zu bytes for the weights", convolution_packed_bytes(p));
    if (!cpu_of(k)->convolutions->direct) {
        TRY(k->convert_to_fp32(k, r->weights, w, weights(d), e));
        from = r->weights;
    }
    return convolution_pack(p, r->packed, from, r->scratch, e);
}

static status_t failed(bool is, struct err *e) {
    return is ? err_set(e, ST_INTERNAL, "oneDNN could not run a convolution") : ST_OK;
}

status_t convolution_forward(const struct kernels *k, element_t *y, const element_t *x, const element_t *w,
                             const element_t *bias, const struct convolution_dims *d, void *workspace, struct err *e) {
    if (convolution_is_1x1(d))
        return convolution_1x1_forward(k, y, x, w, bias, d, workspace, e);
    const struct cpu *cpu = cpu_of(k);
    struct convolutions *c = cpu->convolutions;
    size_t bytes;
    const struct workspace_layout r = workspace_layout_of(c, k->max_threads, d, workspace, &bytes);
    struct convolution_dims one = *d;
    struct convolution_primitive *p;
    bool bad = false;
    one.batch = 1;
    TRY(primitive_of(c, &one, CONVOLUTION_FORWARD, bias != NULL, &p, e));
    TRY(pack(k, p, &r, d, w, e));
    if (bias && !c->direct)
        cpu->convert_row_to_fp32(r.weights + weights(d), bias, d->out);
    TRY(convolution_point(p, r.packed, bias && !c->direct ? r.weights + weights(d) : bias, e));
    const int64_t in = in_elements(d), out = out_elements(d);
    int before = onednn_threads(1);
#pragma omp parallel for num_threads(c->threads) schedule(static, 1) reduction(|| : bad)
    for (int64_t s = 0; s < d->batch; s++) {
        const int lane = omp_get_thread_num();
        if (c->direct) {
            bad = !convolution_run(p, lane, at_in(k, x, s * in), at_out(k, y, s * out)) || bad;
            continue;
        }
        float *wide_x = (float *)(void *)(r.lanes + (size_t)lane * r.per_lane),
              *wide_y = wide_x + r.y_at / sizeof(float);
        cpu->convert_row_to_fp32(wide_x, at_in(k, x, s * in), in);
        bad = !convolution_run(p, lane, wide_x, wide_y) || bad;
        cpu->convert_row(at_out(k, y, s * out), wide_y, out);
    }
    (void)onednn_threads(before);
    return failed(bad, e);
}

void convolution_add_row(const struct kernels *k, element_t *to, const void *from, int64_t n, bool fp32) {
    enum { BLOCK = 512 };
    const struct cpu *cpu = cpu_of(k);
    float sum[BLOCK], term[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t count = n - at < BLOCK ? n - at : BLOCK;
        const float *add = (const float *)from + at;
        if (!fp32) {
            cpu->convert_row_to_fp32(term, at_in(k, from, at), count);
            add = term;
        }
        cpu->convert_row_to_fp32(sum, at_in(k, to, at), count);
        for (int64_t i = 0; i < count; i++)
            sum[i] += add[i];
        cpu->convert_row(at_out(k, to, at), sum, count);
    }
}

status_t convolution_backward_input(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *w,
                                    const struct convolution_dims *d, bool accumulate, void *workspace, struct err *e) {
    if (convolution_is_1x1(d))
        return convolution_1x1_backward_input(k, dx, dy, w, d, accumulate, workspace, e);
    const struct cpu *cpu = cpu_of(k);
    struct convolutions *c = cpu->convolutions;
    size_t bytes;
    const struct workspace_layout r = workspace_layout_of(c, k->max_threads, d, workspace, &bytes);
    struct convolution_dims one = *d;
    struct convolution_primitive *p;
    bool bad = false;
    one.batch = 1;
    TRY(primitive_of(c, &one, CONVOLUTION_BACKWARD_INPUT, false, &p, e));
    TRY(pack(k, p, &r, d, w, e));
    TRY(convolution_point(p, r.packed, NULL, e));
    const int64_t in = in_elements(d), out = out_elements(d);
    int before = onednn_threads(1);
#pragma omp parallel for num_threads(c->threads) schedule(static, 1) reduction(|| : bad)
    for (int64_t s = 0; s < d->batch; s++) {
        const int lane = omp_get_thread_num();
        void *scratch = r.lanes + (size_t)lane * r.per_lane, *to = at_out(k, dx, s * in);
        float *wide_y = (float *)scratch + r.y_at / sizeof(float);
        const void *from = at_in(k, dy, s * out);
        if (!c->direct) {
            cpu->convert_row_to_fp32(wide_y, from, out);
            from = wide_y;
        }
        bad = !convolution_run(p, lane, c->direct && !accumulate ? to : scratch, from) || bad;
        if (accumulate)
            convolution_add_row(k, to, scratch, in, !c->direct);
        else if (!c->direct)
            cpu->convert_row(to, scratch, in);
    }
    (void)onednn_threads(before);
    return failed(bad, e);
}
