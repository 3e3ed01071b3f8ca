#include "kernels/cuda/lib/convolution_cudnn.h"

#include "kernels/cuda/lib/cudnn_graph.h"
#include "kernels/cuda/workspace.h"

enum id { X = 1, W, Y };
/* The number of cuDNN's engines that `fast` times. The first few are mostly one engine with other knobs. A plan
 * takes less than a millisecond, and ResNet-50 has 32 keys. */
enum { CANDIDATES = 12 };

/* Channels last, in cuDNN's order of dimensions: sample, channel, row, column. */
static cudnn_descriptor image(struct cudnn_graph *g, int64_t id, cudnnDataType_t type, int64_t n, int64_t channels,
                              int64_t height, int64_t width) {
    const int64_t dim[4] = { n, channels, height, width },
                  stride[4] = { height * width * channels, 1, width * channels, channels };
    return cudnn_tensor(g, id, type, dim, stride);
}

static const struct pass {
    enum cudnn_pass pass;
    cudnnBackendDescriptorType_t operation;
} passes[CONVOLUTION_PASSES] = {
    [CONVOLUTION_FORWARD] = { CUDNN_CONVOLUTION_FORWARD, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR },
    [CONVOLUTION_BACKWARD_INPUT] = { CUDNN_CONVOLUTION_BACKWARD_INPUT,
                                     CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR },
    [CONVOLUTION_BACKWARD_WEIGHT] = { CUDNN_CONVOLUTION_BACKWARD_WEIGHT,
                                      CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR },
};

static status_t build(struct cudnn *c, const struct cudnn_key *key, struct cudnn_plan **ret, struct err *e) {
    const struct convolution_dims d = { .batch = key->dims[0],
                                        .height = key->dims[1],
                                        .width = key->dims[2],
                                        .in = key->dims[3],
                                        .out = key->dims[4],
                                        .kernel = key->dims[5],
                                        .stride = key->dims[6],
                                        .padding = key->dims[7] };
    const struct pass *p = passes;
    while (p->pass != key->pass)
        p++;
    const struct cudnn_choice choice = { .deterministic = !cudnn_is_timed(c),
                                         .candidates = cudnn_is_timed(c) ? CANDIDATES : 1,
                                         .engine = cudnn_cached_engine(c, key),
                                         .max_workspace = (size_t)key->workspace_bytes };
    const cudnnDataType_t type = cudnn_type(key->precision);
    struct cudnn_graph g = cudnn_graph_begin(c);
    cudnn_convolution(
        &g, p->operation, &d, image(&g, X, type, d.batch, d.in, d.height, d.width),
        image(&g, W, type, d.out, d.in, d.kernel, d.kernel),
        image(&g, Y, type, d.batch, d.out, convolution_side(&d, d.height), convolution_side(&d, d.width)));
    return cudnn_graph_plan(&g, &choice, ret, e);
}

static struct cudnn_key key_of(enum convolution_pass pass, enum kernels_precision precision,
                               const struct convolution_dims *d) {
    const size_t bytes = pass == CONVOLUTION_BACKWARD_INPUT ? cuda_convolution_dx_engine_bytes(d, precision)
                                                            : cuda_convolution_engine_bytes(d);
    return (
        struct cudnn_key){ .pass = passes[pass].pass,
                           .precision = precision,
                           .dims = { d->batch, d->height, d->width, d->in, d->out, d->kernel, d->stride, d->padding },
                           .workspace_bytes = (int64_t)bytes };
}

status_t convolution_cudnn_find(struct cudnn *c, enum convolution_pass pass, enum kernels_precision precision,
                                const struct convolution_dims *d, struct err *e) {
    const struct cudnn_key key = key_of(pass, precision, d);
    const struct cudnn_plan *plan;
    return cudnn_plan_find(c, &key, build, &plan, e);
}

status_t convolution_cudnn_run(struct cudnn *c, enum convolution_pass pass, enum kernels_precision precision,
                               const struct convolution_dims *d, void *x, void *w, void *y, void *workspace,
                               struct err *e) {
    const struct cudnn_key key = key_of(pass, precision, d);
    const struct cudnn_plan *plan;
    const int64_t ids[] = { X, W, Y };
    void *const pointers[] = { x, w, y };
    TRY(cudnn_plan_find(c, &key, build, &plan, e));
    TRY(cudnn_plan_decide(c, &key, 3, ids, pointers, workspace, &plan, e));
    return cudnn_plan_run(c, plan, 3, ids, pointers, workspace, e);
}
