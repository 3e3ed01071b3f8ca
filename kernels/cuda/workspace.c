/* Workspace sizes of the ops on CUDA, computed from shape, precision and `fast` alone.
 *
 * Sums over rows need space for one partial sum per piece and column (piece.h). cuDNN's engines have workspaces of
 * their own choice, so the formulas here give limits: an engine is used only if it fits (cudnn_graph.h), else the
 * kernels of this folder run. For attention the limit follows from measurements of cuDNN 9. For convolutions the
 * limit is the memory that columns need anyway, or more if the channels are padded.
 *
 * No device and no library takes part, so that a plan made on a host without a GPU has the same arena as on any GPU.
 * The last part defines tables that contain these functions and nothing else, for kernels_shape_only. */
#include "kernels/cuda/workspace.h"

#include "kernels/cuda/embedding_sort.h"
#include "kernels/cuda/piece.h"

enum { BF16_BYTES = 2, ALIGNMENT = 256 };

static size_t aligned(int64_t n, size_t each) { return ((size_t)n * each + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }
static size_t larger(size_t a, size_t b) { return a > b ? a : b; }
static size_t element_bytes(enum kernels_precision p) { return p == KERNELS_FP32 ? sizeof(float) : BF16_BYTES; }
static int64_t multiple(int64_t n, int64_t of) { return (n + of - 1) / of * of; }

/* --- sums over rows; the maximum over all precisions: narrow elements have wider blocks, hence more pieces ---*/

size_t cuda_linear_backward_bias_workspace(const struct kernels *k, const struct linear_dims *d) {
    (void)k;
    return sizeof(float) * (size_t)(piece_count(d->rows, piece_across(d->out, BF16_BYTES)) * d->out);
}

size_t cuda_linear_backward_weight_workspace(const struct kernels *k, const struct linear_dims *d) {
    (void)k, (void)d;
    return 0;
}

size_t cuda_norm_workspace(const struct kernels *k, int64_t rows, int64_t width) {
    (void)k;
    return sizeof(float) * (size_t)(piece_count(rows, 1) * 2 * width);
}

/* Two sums of each piece, in double, and three floats for each column. */
size_t cuda_batchnorm_workspace(const struct kernels *k, const struct batchnorm_dims *d) {
    (void)k;
    const int64_t pieces = piece_count(d->rows, piece_across(d->width, BF16_BYTES));
    return (size_t)d->width * ((size_t)pieces * 2 * sizeof(double) + 3 * sizeof(float));
}

/* Three totals in double and two factors in float; in double a sum of squares for each chunk and a sum for each row;
 * in float the column sums of each piece, and a factor for each column. A vector needs less. */
size_t cuda_adafactor_workspace(const struct kernels *k, int64_t rows, int64_t columns) {
    (void)k;
    const int64_t chunks = (rows * columns + KERNELS_CHUNK - 1) / KERNELS_CHUNK,
                  pieces = piece_count(rows, piece_across(columns, sizeof(float)));
    return sizeof(double) * (size_t)(4 + chunks + rows) + sizeof(float) * (size_t)((pieces + 1) * columns);
}

/* Sorted tokens, and two rows of sums for each part of them. */
size_t cuda_embedding_backward_workspace(const struct kernels *k, int64_t batch, int64_t time, int64_t width) {
    (void)k;
    const int64_t n = batch * time;
    return embedding_sort_bytes(n) + sizeof(float) * (size_t)(2 * embedding_sort_parts(n) * width);
}

/* A complex image for each sample, then one float for each sample. */
size_t cuda_fourier_workspace(const struct kernels *k, const struct fourier_dims *d) {
    (void)k;
    return sizeof(float) * (size_t)(d->batch * (2 * d->height * d->width + 1));
}

/* --- attention ---*/

/* The maximum workspace of cuDNN 9's engines for sm_80 and sm_90, as tests/kernels/cuda/test_engines.c measures it.
 * In a fixed order the sum of dQ takes 2 bytes for each score, with both sides in tiles of 128. With atomic
 * additions, sm_80 takes a second copy of the sums. If query heads share a key head, there is also dK and dV of each
 * query head. */
enum { TILE = 128, HEAD_MULTIPLE = 8, MAX_HEAD = 256 };
/* Beyond this size, the workspace of the fixed order costs more than the kernel of this folder. */
static const size_t engine_max_bytes = (size_t)4 << 30;

size_t cuda_attention_totals_bytes(const struct attention_dims *d) {
    return aligned(d->batch * d->heads * d->time, sizeof(float));
}

size_t cuda_attention_sums_bytes(const struct attention_dims *d, bool fast) {
    return fast ? aligned(d->batch * d->heads * d->time * d->head, sizeof(float)) : 0;
}

size_t cuda_attention_engine_bytes(const struct attention_dims *d, enum kernels_precision precision, bool fast) {
    const int64_t time = multiple(d->time, TILE), rows = d->batch * d->heads * time;
    const size_t query = (size_t)(rows * d->head) * sizeof(float),
                 shared = d->heads > d->kv_heads ? 2 * (size_t)(rows * d->head) * BF16_BYTES : 0,
                 bytes = (fast ? query : (size_t)(rows * time) * BF16_BYTES) + shared +
                         CUDA_ATTENTION_FORWARD_ENGINE_BYTES;
    if (precision == KERNELS_FP32 || d->masked || d->head % HEAD_MULTIPLE || d->head > MAX_HEAD ||
        (!fast && bytes > engine_max_bytes))
        return 0;
    return bytes;
}

size_t cuda_attention_workspace(const struct kernels *k, const struct attention_dims *d) {
    const size_t totals = cuda_attention_totals_bytes(d),
                 engine = cuda_attention_engine_bytes(d, k->precision, k->fast);
    return engine ? totals + cuda_attention_sums_bytes(d, k->fast) + engine : totals;
}

/* --- convolutions ---*/

/* Columns are computed at once for as many samples as fit in so many bytes, but for at least one. */
static const size_t columns_max_bytes = (size_t)256 << 20;
/* The workspace of an engine for dx if dx itself takes all of the columns' memory. */
static const size_t dx_engine_min_bytes = (size_t)16 << 20;
/* For dw of images, which have few channels, cuDNN's engines copy the input with the channels padded to this count.
 * The additional bytes are for partial sums (at most 7 MB for 64 windows of 7 x 7). */
enum { CHANNELS_FILLED = 8 };
static const size_t filled_more = (size_t)16 << 20;

bool cuda_convolution_is_product(const struct convolution_dims *d) {
    return d->kernel == 1 && d->stride == 1 && d->padding == 0;
}

int64_t columns_width(const struct convolution_dims *d) { return d->kernel * d->kernel * d->in; }

int64_t columns_pixels(const struct convolution_dims *d) {
    return convolution_side(d, d->height) * convolution_side(d, d->width);
}

static int64_t column_numbers(const struct convolution_dims *d) { return columns_pixels(d) * columns_width(d); }

int64_t columns_samples(const struct convolution_dims *d) {
    const int64_t n = (int64_t)(columns_max_bytes / ((size_t)column_numbers(d) * sizeof(float)));
    return n < 1 ? 1 : n < d->batch ? n : d->batch;
}

size_t cuda_convolution_weights_bytes(const struct convolution_dims *d) {
    return aligned(d->out * columns_width(d), sizeof(float));
}

size_t cuda_convolution_dx_bytes(const struct convolution_dims *d, enum kernels_precision precision) {
    return aligned(d->batch * d->height * d->width * d->in, element_bytes(precision));
}

static size_t columns_bytes(const struct convolution_dims *d) {
    return aligned(columns_samples(d) * column_numbers(d), sizeof(float));
}

size_t cuda_convolution_engine_bytes(const struct convolution_dims *d) {
    const int64_t pixels = d->batch * d->height * d->width;
    return d->in < CHANNELS_FILLED
               ? larger(columns_bytes(d), aligned(pixels * CHANNELS_FILLED, BF16_BYTES) + filled_more)
               : columns_bytes(d);
}

size_t cuda_convolution_dx_engine_bytes(const struct convolution_dims *d, enum kernels_precision precision) {
    const size_t columns = columns_bytes(d), dx = cuda_convolution_dx_bytes(d, precision);
    return columns > dx + dx_engine_min_bytes ? columns - dx : dx_engine_min_bytes;
}

size_t cuda_convolution_workspace(const struct kernels *k, const struct convolution_dims *d) {
    if (cuda_convolution_is_product(d))
        return 0;
    if (k->precision == KERNELS_FP32)
        return cuda_convolution_weights_bytes(d) + columns_bytes(d);
    return cuda_convolution_weights_bytes(d) +
           larger(cuda_convolution_engine_bytes(d),
                  cuda_convolution_dx_bytes(d, k->precision) + cuda_convolution_dx_engine_bytes(d, k->precision));
}

/* --- shape-only tables ---*/

#define SHAPE_ONLY(p, f)                                                                                               \
    [p] = { .device = "cuda",                                                                                          \
            .threads = 1,                                                                                              \
            .precision = p,                                                                                            \
            .fast = f,                                                                                                 \
            .fp32 = &tables[f][KERNELS_FP32],                                                                          \
            .linear_backward_bias_workspace = cuda_linear_backward_bias_workspace,                                     \
            .linear_backward_weight_workspace = cuda_linear_backward_weight_workspace,                                 \
            .embedding_backward_workspace = cuda_embedding_backward_workspace,                                         \
            .layernorm_backward_workspace = cuda_norm_workspace,                                                       \
            .rmsnorm_backward_workspace = cuda_norm_workspace,                                                         \
            .attention_workspace = cuda_attention_workspace,                                                           \
            .convolution_workspace = cuda_convolution_workspace,                                                       \
            .batchnorm_workspace = cuda_batchnorm_workspace,                                                           \
            .fourier_workspace = cuda_fourier_workspace,                                                               \
            .adafactor_workspace = cuda_adafactor_workspace }
#define IN_EACH_PRECISION(f)                                                                                           \
    { SHAPE_ONLY(KERNELS_FP32, f), SHAPE_ONLY(KERNELS_BF16, f), SHAPE_ONLY(KERNELS_FP16, f) }

static const struct kernels tables[2][3] = { IN_EACH_PRECISION(false), IN_EACH_PRECISION(true) };

const struct kernels *cuda_shape_only(enum kernels_precision precision, bool fast) {
    return precision < KERNELS_FP32 || precision > KERNELS_FP16 ? NULL : &tables[fast][precision];
}
