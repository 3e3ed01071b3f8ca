/* Optimizers: one pass over parameters, states and gradients for each step.
 *
 * take_step is the loop of all elementwise optimizers (AdamW, SGD, Lion, the plain SGD step, scaled addition,
 * running means). It receives a list of tensors as a kernel parameter (spans.cuh), so that one launch covers many
 * tensors, and the work is cut into parts of EACH numbers. A struct with the settings of the optimizer computes one
 * pack at a time. The learning rate, the number of the update and the decision to skip it are read from device
 * memory, so that a captured step stays valid. Normalisation takes two passes: the norm of the whole tensor, then
 * the scaling.
 *
 * Compiled without contraction to fused multiply-adds, which would round differently and save no time here: the bits
 * are those of kernels/cpu/plain. */
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/seen.cuh"
#include "kernels/cuda/shared.cuh"
#include "kernels/cuda/spans.cuh"

#include <math.h>

/* Threads of a block, blocks of a multiprocessor, and numbers of a part. */
enum { THREADS = 256, BLOCKS = 4, EACH = 8192 };

/* `step` is a struct of settings. begin() reads the values of this step from device memory and returns false if the
 * step changes nothing. of(p, x, s, at, n_valid) computes the new parameters of a pack in place from x, the
 * optimizer's input (for most the gradient), and updates the states of s at `at`. */
template <class E, class Step>
static __global__ void __launch_bounds__(THREADS, BLOCKS)
    take_step(const __grid_constant__ spans<struct span> list, Step step) {
    if (!step.begin())
        return;
    for (int part = blockIdx.x; part < list.parts; part += gridDim.x) {
        const int i = list.holding(part);
        struct span s = list.at[i];
        const int64_t begin = (int64_t)(part - list.first[i]) * EACH;
        s.p += begin;
        s.x += begin;
        E *weight = s.weight ? (E *)s.weight + begin : NULL;
        const int n = s.n - begin < EACH ? (int)(s.n - begin) : EACH;
        for (int at = threadIdx.x * PACK<E>; at < n; at += THREADS * PACK<E>) {
            float parameter[PACK<E>], input[PACK<E>];
            read(parameter, s.p + at, n - at);
            read(input, s.x + at, n - at);
            step.of(parameter, input, s, begin + at, n - at);
            write(s.p + at, parameter, n - at);
            if (weight)
                write(weight + at, parameter, n - at);
        }
    }
}

template <class Step>
static status_t run(const struct kernels *k, const struct span *all, int n_all, const Step &step, struct err *e) {
    static_assert(sizeof(spans<struct span>) + sizeof(Step) <= PARAMETER_BYTES, "a launch takes both");
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return spans_each(all, n_all, EACH, [&](const spans<struct span> &list) {
            return launch(k, e, take_step<E, Step>, cuda_grid(k, list.parts, 1), dim3(THREADS), list, step);
        });
    });
}

/* AdamW's factors, which depend on the rate and the number of the update. One thread of each block computes them. */
struct adamw_rates {
    float step, correction, keep;
};

struct adamw_pack {
    const double *learning_rate;
    double decay1, decay2, weight_decay;
    struct seen seen;
    float beta1, rest1, beta2, rest2, epsilon, step, correction, keep;

    __device__ __forceinline__ bool begin() {
        auto &rates = shared<adamw_rates>();
        if (threadIdx.x == 0) {
            const double rate = *learning_rate, number = (double)seen.update->number;
            rates.step = (float)(rate / (1.0 - pow(decay1, number)));
            rates.correction = (float)sqrt(1.0 - pow(decay2, number));
            rates.keep = (float)(1.0 - rate * weight_decay);
        }
        __syncthreads();
        step = rates.step;
        correction = rates.correction;
        keep = rates.keep;
        return seen.begin();
    }

    template <int N>
    __device__ __forceinline__ void of(float (&p)[N], const float (&g)[N], const struct span &s, int64_t at,
                                       int n_valid) const {
        const float kept = s.decay ? keep : 1.0f;
        float a[N], b[N];
        read(a, s.m + at, n_valid);
        read(b, s.v + at, n_valid);
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float gj = seen.of(g[j]);
            a[j] = beta1 * a[j] + rest1 * gj;
            b[j] = beta2 * b[j] + rest2 * gj * gj;
            p[j] = kept * p[j] - step * a[j] / (sqrtf(b[j]) / correction + epsilon);
        }
        write(s.m + at, a, n_valid);
        write(s.v + at, b, n_valid);
    }
};

status_t cuda_adamw(const struct kernels *k, const struct span *all, int n_all, const struct adamw *o, struct err *e) {
    const adamw_pack a = {
        .learning_rate = o->learning_rate,
        .decay1 = o->beta1,
        .decay2 = o->beta2,
        .weight_decay = o->weight_decay,
        .seen = seen_of(o->update, o->clip_value),
        .beta1 = (float)o->beta1,
        .rest1 = (float)(1.0 - o->beta1),
        .beta2 = (float)o->beta2,
        .rest2 = (float)(1.0 - o->beta2),
        .epsilon = (float)o->epsilon,
        .step = 0,
        .correction = 0,
        .keep = 0,
    };
    return run(k, all, n_all, a, e);
}

struct sgd_pack {
    const double *learning_rate;
    struct seen seen;
    float momentum, decay, rate;
    bool nesterov;

    __device__ __forceinline__ bool begin() {
        rate = (float)*learning_rate;
        return seen.begin();
    }

    template <int N>
    __device__ __forceinline__ void of(float (&p)[N], const float (&g)[N], const struct span &s, int64_t at,
                                       int n_valid) const {
        const float decays = s.decay ? decay : 0.0f;
        float a[N];
        read(a, s.m + at, n_valid);
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float gj = seen.of(g[j]) + decays * p[j];
            a[j] = momentum * a[j] + gj;
            p[j] -= rate * (nesterov ? gj + momentum * a[j] : a[j]);
        }
        write(s.m + at, a, n_valid);
    }
};

status_t cuda_sgd(const struct kernels *k, const struct span *all, int n_all, const struct sgd *o, struct err *e) {
    const sgd_pack a = {
        .learning_rate = o->learning_rate,
        .seen = seen_of(o->update, o->clip_value),
        .momentum = (float)o->momentum,
        .decay = (float)o->weight_decay,
        .rate = 0,
        .nesterov = o->nesterov,
    };
    return run(k, all, n_all, a, e);
}

struct lion_pack {
    const double *learning_rate;
    double weight_decay;
    struct seen seen;
    float beta1, rest1, beta2, rest2, rate, keep;

    __device__ __forceinline__ bool begin() {
        rate = (float)*learning_rate;
        keep = (float)(1.0 - *learning_rate * weight_decay);
        return seen.begin();
    }

    template <int N>
    __device__ __forceinline__ void of(float (&p)[N], const float (&g)[N], const struct span &s, int64_t at,
                                       int n_valid) const {
        const float kept = s.decay ? keep : 1.0f;
        float a[N];
        read(a, s.m + at, n_valid);
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float gj = seen.of(g[j]), along = beta1 * a[j] + rest1 * gj;
            p[j] = kept * p[j] - rate * (along > 0 ? 1.0f : along < 0 ? -1.0f : along);
            a[j] = beta2 * a[j] + rest2 * gj;
        }
        write(s.m + at, a, n_valid);
    }
};

status_t cuda_lion(const struct kernels *k, const struct span *all, int n_all, const struct lion *o, struct err *e) {
    const lion_pack a = {
        .learning_rate = o->learning_rate,
        .weight_decay = o->weight_decay,
        .seen = seen_of(o->update, o->clip_value),
        .beta1 = (float)o->beta1,
        .rest1 = (float)(1.0 - o->beta1),
        .beta2 = (float)o->beta2,
        .rest2 = (float)(1.0 - o->beta2),
        .rate = 0,
        .keep = 0,
    };
    return run(k, all, n_all, a, e);
}

struct sgd_step_pack {
    const double *learning_rate;
    const struct update *update;
    double factor, weight_decay;
    float keep, by;

    __device__ __forceinline__ bool begin() {
        const double rate = *learning_rate;
        keep = (float)(1 - rate * weight_decay);
        by = (float)(-rate * factor);
        return update->skip == STEP_APPLIED;
    }
    template <int N>
    __device__ __forceinline__ void of(float (&p)[N], const float (&x)[N], const struct span &, int64_t,
                                       int64_t) const {
#pragma unroll
        for (int j = 0; j < N; j++)
            p[j] = keep * p[j] + by * x[j];
    }
};

status_t cuda_sgd_step(const struct kernels *k, float *p, element_t *weight, const float *x, int64_t n,
                       const struct sgd_step *o, struct err *e) {
    const struct span one = { .n = n, .p = p, .weight = weight, .m = NULL, .v = NULL, .x = x, .decay = true };
    return run(k, &one, 1, sgd_step_pack{ o->learning_rate, o->update, o->factor, o->weight_decay, 0, 0 }, e);
}

/* update NULL: the operation is never skipped. */
struct scale_add_pack {
    float keep, by;
    const struct update *update;

    __device__ __forceinline__ bool begin() const { return !update || update->skip == STEP_APPLIED; }
    template <int N>
    __device__ __forceinline__ void of(float (&p)[N], const float (&x)[N], const struct span &, int64_t,
                                       int64_t) const {
#pragma unroll
        for (int j = 0; j < N; j++)
            p[j] = keep * p[j] + by * x[j];
    }
};

status_t cuda_scale_add(const struct kernels *k, const struct span *all, int n_all, double keep, double by,
                        const struct update *update, struct err *e) {
    return run(k, all, n_all, scale_add_pack{ (float)keep, (float)by, update }, e);
}

/* x contains sums over `parts` micro-batches. */
struct running_mean_pack {
    double momentum, parts;
    const struct update *update;

    __device__ __forceinline__ bool begin() const { return update->skip == STEP_APPLIED; }
    template <int N>
    __device__ __forceinline__ void of(float (&p)[N], const float (&x)[N], const struct span &, int64_t,
                                       int64_t) const {
#pragma unroll
        for (int j = 0; j < N; j++)
            p[j] = (float)((double)p[j] + momentum * ((double)x[j] / parts - (double)p[j]));
    }
};

status_t cuda_running_mean(const struct kernels *k, const struct span *all, int n_all, double momentum, int64_t parts,
                           const struct update *update, struct err *e) {
    return run(k, all, n_all, running_mean_pack{ momentum, (double)parts, update }, e);
}

/* One block: *ret = the factor that scales a tensor to norm 1. sums: the sums of squares of the tensor's chunks. */
static __global__ void __launch_bounds__(THREADS)
    unit_scale(double *ret, const double *sums, int64_t chunks, double min_norm) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < chunks; i += THREADS)
        sum += sums[i];
    const double norm = sqrt(block_sum(sum, 0));
    if (threadIdx.x == 0)
        *ret = 1 / (norm > min_norm ? norm : min_norm);
}

static __global__ void __launch_bounds__(THREADS) scale(float *x, const double *by, int64_t n) {
    constexpr int N = PACK<float>;
    for (int64_t at = first_pack<N>(); at < n; at += pack_stride<N>()) {
        float a[N];
        read(a, x + at, n - at);
#pragma unroll
        for (int j = 0; j < N; j++)
            a[j] *= (float)*by;
        write(x + at, a, n - at);
    }
}

status_t cuda_normalise(const struct kernels *k, float *x, int64_t n, double min_norm, double *workspace,
                        struct err *e) {
    const int64_t chunks = (n + KERNELS_CHUNK - 1) / KERNELS_CHUNK;
    double *by = workspace + chunks;
    const struct norm_span all = { workspace, x, n };
    TRY(k->sum_squares(k, &all, 1, e));
    TRY(launch(k, e, unit_scale, dim3(1), dim3(THREADS), by, (const double *)workspace, chunks, min_norm));
    return launch(k, e, scale, cuda_grid(k, n, THREADS * PACK<float>), dim3(THREADS), x, (const double *)by, n);
}

static __global__ void __launch_bounds__(THREADS) add_momentum(float *u, float *m, const float *g, struct seen seen,
                                                               float keep, float rest, bool nesterov, int64_t n) {
    if (!seen.begin())
        return;
    constexpr int N = PACK<float>;
    for (int64_t at = first_pack<N>(); at < n; at += pack_stride<N>()) {
        float a[N], x[N];
        read(a, m + at, n - at);
        read(x, g + at, n - at);
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float gj = rest * seen.of(x[j]);
            a[j] = keep * a[j] + gj;
            x[j] = nesterov ? keep * a[j] + gj : a[j];
        }
        write(m + at, a, n - at);
        write(u + at, x, n - at);
    }
}

status_t cuda_momentum(const struct kernels *k, float *u, float *m, const float *g, int64_t n, const struct momentum *o,
                       struct err *e) {
    return launch(k, e, add_momentum, cuda_grid(k, n, THREADS * PACK<float>), dim3(THREADS), u, m, g,
                  seen_of(o->update, o->clip_value), (float)o->momentum, (float)(1.0 - o->momentum), o->nesterov, n);
}
