#include "kernels/rope.h"

#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"

/* MAX_PAIRS: attention has no wider heads either. */
enum { THREADS = 256, MAX_PAIRS = 128 };

/* The angle of each pair from one position to the next, in half turns. The host computes the angles, and the kernel
 * gets them as an argument. */
struct frequencies {
    double of_pair[MAX_PAIRS];
};

struct angle_scratch {
    float cosine[MAX_PAIRS], sine[MAX_PAIRS];
};

/* One block per row of a sample, because all heads of a row turn by the same angles. Each half of a head is read in
 * packs, whose last may be partial. */
template <class E>
static __global__ void __launch_bounds__(THREADS)
    turn_row(E *to, const E *from, struct frequencies f, int64_t time, int turned, int heads, int half, bool inverse) {
    auto &angle = shared<angle_scratch>();
    const int64_t row = blockIdx.x, position = row % time;
    for (int i = (int)threadIdx.x; i < half; i += THREADS) {
        const double turn = (double)position * f.of_pair[i];
        angle.cosine[i] = (float)cospi(turn);
        angle.sine[i] = inverse ? -(float)sinpi(turn) : (float)sinpi(turn);
    }
    __syncthreads();
    const int packs = (half + PACK<E> - 1) / PACK<E>;
    from += row * heads * 2 * half;
    to += row * heads * 2 * half;
    for (int at = (int)threadIdx.x; at < heads * packs; at += THREADS) {
        const int first = at % packs * PACK<E>, a_at = at / packs * 2 * half + first;
        float a[PACK<E>], b[PACK<E>];
        read(a, from + a_at, half - first);
        read(b, from + a_at + half, half - first);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++)
            if (at / packs < turned && first + j < half) {
                const float x = a[j], y = b[j], c = angle.cosine[first + j], s = angle.sine[first + j];
                a[j] = x * c - y * s;
                b[j] = y * c + x * s;
            }
        write(to + a_at, a, half - first);
        write(to + a_at + half, b, half - first);
    }
}

status_t cuda_rope(const struct kernels *k, element_t *to, const element_t *from, const struct attention_dims *d,
                   const struct rope *r, bool inverse, struct err *e) {
    const int64_t half = d->head / 2;
    if (half > MAX_PAIRS)
        return err_set(e, ST_UNIMPLEMENTED, "rotary positions of heads of %lld numbers: CUDA has up to %d",
                       (long long)d->head, 2 * MAX_PAIRS);
    struct frequencies f = {};
    for (int64_t i = 0; i < half; i++)
        f.of_pair[i] = rope_frequency(r, i, d->head) / M_PI;
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return launch(k, e, turn_row<E>, dim3((unsigned)(d->batch * d->time)), dim3(THREADS), (E *)to, (const E *)from,
                      f, d->time, (int)(d->heads + d->kv_heads), (int)(d->heads + 2 * d->kv_heads), (int)half, inverse);
    });
}
