/* Ops that only move elements, apart from the sums of a class token's gradients.
 *
 * There is one thread for each element of the result, or for each pack of elements if rows are contiguous
 * (each.cuh). The thread computes where its element comes from, so that writes are contiguous and reads follow the
 * permutation. cuda_patches cuts an image into patches. cuda_channels_last moves the channels of an image to the
 * end. The class token ops put a token before the others of each sample and add positions. The last ops take the
 * first row of each sample, and put its gradient back. Backward of the class token sums over samples in order, one
 * thread per pack, so that the bits are fixed. */
#include "kernels/cuda/each.cuh"
#include "kernels/cuda/ops.h"

template <class E> struct patch_element {
    E *y;
    const E *x;
    int channels, height, width, patch;
    __device__ __forceinline__ void operator()(int64_t to, int64_t) const {
        const int j = (int)(to % patch), i = (int)(to / patch % patch);
        const int64_t rest = to / (patch * patch);
        const int c = (int)(rest % channels), across = width / patch, down = height / patch;
        const int64_t at = rest / channels, sample = at / (down * across);
        const int top = (int)(at / across % down) * patch, left = (int)(at % across) * patch;
        y[to] = x[((sample * channels + c) * height + top + i) * width + left + j];
    }
};

status_t cuda_patches(const struct kernels *k, element_t *y, const element_t *x, int64_t batch, int64_t channels,
                      int64_t height, int64_t width, int64_t patch, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return run_each<1>(k,
                           patch_element<E>{ (E *)y, (const E *)x, (int)channels, (int)height, (int)width, (int)patch },
                           batch * channels * height * width, e);
    });
}

template <class E> struct channels_last_element {
    E *y;
    const E *x;
    int64_t channels, pixels;
    __device__ __forceinline__ void operator()(int64_t to, int64_t) const {
        const int64_t at = to / channels, c = to % channels;
        y[to] = x[(at / pixels * channels + c) * pixels + at % pixels];
    }
};

status_t cuda_channels_last(const struct kernels *k, element_t *y, const element_t *x, int64_t batch, int64_t channels,
                            int64_t pixels, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return run_each<1>(k, channels_last_element<E>{ (E *)y, (const E *)x, channels, pixels },
                           batch * channels * pixels, e);
    });
}

/* --- class token ---------------------------------------------------------------------------------------------------*/
template <class E> struct class_token {
    E *y;
    const E *x, *token, *positions;
    int64_t time;
    int width;
    __device__ __forceinline__ void operator()(int64_t pack, int64_t) const {
        const row_pack<E> p(pack, width);
        const int64_t sample = p.row / time, t = p.row % time;
        const E *from = t ? x + (sample * (time - 1) + t - 1) * width : token;
        float a[PACK<E>], b[PACK<E>];
        read(a, from + p.column, p.n_valid);
        read(b, positions + t * width + p.column, p.n_valid);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++)
            a[j] += b[j];
        write(y + p.row * width + p.column, a, p.n_valid);
    }
};

status_t cuda_class_token_forward(const struct kernels *k, element_t *y, const element_t *x, const element_t *token,
                                  const element_t *positions, int64_t batch, int64_t time, int64_t width,
                                  struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return run_each<1>(
            k, class_token<E>{ (E *)y, (const E *)x, (const E *)token, (const E *)positions, time, (int)width },
            row_packs<E>(batch * time, width), e);
    });
}

/* One thread has a pack of a position, and visits all samples in order. */
template <class E> struct class_token_gradient {
    E *dx;
    float *dtoken, *dpositions;
    const E *dy;
    int64_t batch, time;
    int width;
    bool accumulate;

    __device__ __forceinline__ void put(float *to, const float (&sum)[PACK<E>], int n_valid) const {
        float a[PACK<E>] = {};
        if (accumulate)
            read(a, to, n_valid);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++)
            a[j] += sum[j];
        write(to, a, n_valid);
    }

    __device__ __forceinline__ void operator()(int64_t pack, int64_t) const {
        const row_pack<E> p(pack, width);
        const int64_t t = p.row;
        float sum[PACK<E>] = {};
        for (int64_t sample = 0; sample < batch; sample++) {
            float d[PACK<E>];
            read(d, dy + (sample * time + t) * width + p.column, p.n_valid);
            if (t > 0)
                write(dx + (sample * (time - 1) + t - 1) * width + p.column, d, p.n_valid);
#pragma unroll
            for (int j = 0; j < PACK<E>; j++)
                sum[j] += d[j];
        }
        put(dpositions + t * width + p.column, sum, p.n_valid);
        if (t == 0)
            put(dtoken + p.column, sum, p.n_valid);
    }
};

status_t cuda_class_token_backward(const struct kernels *k, element_t *dx, float *dtoken, float *dpositions,
                                   const element_t *dy, int64_t batch, int64_t time, int64_t width, bool accumulate,
                                   struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        const class_token_gradient<E> f = { (E *)dx, dtoken, dpositions, (const E *)dy,
                                            batch,   time,   (int)width, accumulate };
        return run_each<1>(k, f, row_packs<E>(time, width), e);
    });
}

/* A row of y is row `row * time` of x. In backward, all other rows of x are 0. */
template <class E> struct first_rows {
    E *to;
    const E *from;
    int64_t time;
    int width;
    bool backward;
    __device__ __forceinline__ void operator()(int64_t pack, int64_t) const {
        const row_pack<E> p(pack, width);
        float a[PACK<E>] = {};
        if (!backward)
            read(a, from + p.row * time * width + p.column, p.n_valid);
        else if (p.row % time == 0)
            read(a, from + p.row / time * width + p.column, p.n_valid);
        write(to + p.row * width + p.column, a, p.n_valid);
    }
};

status_t cuda_first_forward(const struct kernels *k, element_t *y, const element_t *x, int64_t batch, int64_t time,
                            int64_t width, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return run_each<1>(k, first_rows<E>{ (E *)y, (const E *)x, time, (int)width, false },
                           row_packs<E>(batch, width), e);
    });
}

status_t cuda_first_backward(const struct kernels *k, element_t *dx, const element_t *dy, int64_t batch, int64_t time,
                             int64_t width, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return run_each<1>(k, first_rows<E>{ (E *)dx, (const E *)dy, time, (int)width, true },
                           row_packs<E>(batch * time, width), e);
    });
}
