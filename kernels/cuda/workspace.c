#include "kernels/cuda/workspace.h"

#include "kernels/cuda/embedding_sort.h"
#include "kernels/cuda/piece.h"

enum { BF16_BYTES = 2, ALIGNMENT = 256 };

static size_t aligned(int64_t n, size_t each) { return ((size_t)n * each + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }
static size_t larger(size_t a, size_t b) { return a > b ? a : b; }
static size_t element_bytes(enum kernels_precision p) { return p == KERNELS_FP32 ? sizeof(float) : BF16_BYTES; }
static int64_t multiple(int64_t n, int64_t of) { return (n + of - 1) / of * of; }

/* --- sums over rows; for any precision: the blocks of a narrow one are wider, and its pieces more ---*/

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

/* Two sums of each piece, in double, and three floats a column. */
size_t cuda_batchnorm_workspace(const struct kernels *k, const struct batchnorm_dims *d) {
    (void)k;
    const int64_t pieces = piece_count(d->rows, piece_across(d->width, BF16_BYTES));
    return (size_t)d->width * ((size_t)pieces * 2 * sizeof(double) + 3 * sizeof(float));
}

/* Three totals and two factors, a sum of squares for each chunk and a sum for each row in double; the columns' sums of
 * each piece, and their factors. A vector needs less. */
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

/* For each sample a complex image, then one float. */
size_t cuda_fourier_workspace(const struct kernels *k, const struct fourier_dims *d) {
    (void)k;
    return sizeof(float) * (size_t)(d->batch * (2 * d->height * d->width + 1));
}

/* --- attention ---*/

/* What cuDNN 9's engines for sm_80 and sm_90 ask for at most, as tests/kernels/cuda/test_engines.c sees them do. In a
 * fixed order dQ's sum takes a number of 2 bytes for each score, sides in tiles of 128; by atomic additions, on sm_80,
 * a second copy of its sums. Where query heads share a key head, each one's dK and dV. */
enum { TILE = 128, HEAD_MULTIPLE = 8, HEAD_MOST = 256 };
/* Beyond this a fixed order's room is dearer than the own kernel. */
static const size_t engine_most = (size_t)4 << 30;

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
    if (precision == KERNELS_FP32 || d->masked || d->head % HEAD_MULTIPLE || d->head > HEAD_MOST ||
        (!fast && bytes > engine_most))
        return 0;
    return bytes;
}

size_t cuda_attention_workspace(const struct kernels *k, const struct attention_dims *d) {
    const size_t totals = cuda_attention_totals_bytes(d),
                 engine = cuda_attention_engine_bytes(d, k->precision, k->fast);
    return engine ? totals + cuda_attention_sums_bytes(d, k->fast) + engine : totals;
}

/* --- convolutions ---*/

/* Columns are laid out for as many samples at a time as take this many bytes, at least for one. */
static const size_t columns_most = (size_t)256 << 20;
/* What an engine for dx may ask for where dx itself leaves it nothing of the columns' room. */
static const size_t dx_engine_least = (size_t)16 << 20;
/* Few channels, images', are copied by cuDNN's engines for their dw with their number filled up to this; so much more
 * is for the parts of the sum (at most 7 MB for 64 windows of 7 x 7). */
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
    const int64_t n = (int64_t)(columns_most / ((size_t)column_numbers(d) * sizeof(float)));
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
    return columns > dx + dx_engine_least ? columns - dx : dx_engine_least;
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

/* --- described ---*/

#define DESCRIBED(p, f)                                                                                                \
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
    { DESCRIBED(KERNELS_FP32, f), DESCRIBED(KERNELS_BF16, f), DESCRIBED(KERNELS_FP16, f) }

static const struct kernels tables[2][3] = { IN_EACH_PRECISION(false), IN_EACH_PRECISION(true) };

const struct kernels *cuda_described(enum kernels_precision precision, bool fast) {
    return precision < KERNELS_FP32 || precision > KERNELS_FP16 ? NULL : &tables[fast][precision];
}
