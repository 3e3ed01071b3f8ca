/* Cross entropy of logits (rows, vocabulary), one block per row: the first pass finds the maximum and the sum of
 * exponentials at once (Milakov and Gimelshein, arXiv 1805.02867), the second pass writes the gradient in place.
 *
 * The row is read once from memory: each thread keeps its packs in shared memory for the second pass, if a block can
 * have that much shared memory; otherwise the second pass reads the row again, most of it from the L2 cache. Both
 * give the same bits. A row can begin at any address, because a vocabulary may be odd. So its head and tail, before
 * the first and after the last whole pack, are read one element per thread, and the packs need no test for each
 * number. */
#include "kernels/cuda/fault.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/power.cuh"
#include "kernels/cuda/reduce.cuh"

enum { THREADS = 1024, TOP1_THREADS = 512 };

template <class E> struct row_parts {
    E *row;
    word *body;
    int width, head, packs; /* the first column of the packs, and their count */

    __device__ __forceinline__ row_parts(E *from, int numbers) : row(from), width(numbers) {
        const int beyond = (int)((uintptr_t)from % sizeof(word) / sizeof(E)), to_word = beyond ? PACK<E> - beyond : 0;
        head = to_word < width ? to_word : width;
        packs = (width - head) / PACK<E>;
        body = (word *)(row + head);
    }
    /* The column of this thread's element in the head or tail; -1 if the thread has none. */
    __device__ __forceinline__ int edge() const {
        const int i = (int)threadIdx.x, tail = head + packs * PACK<E>;
        return i < head ? i : tail + (i - head) < width ? tail + (i - head) : -1;
    }
};

/* The maximum of some logits, and the sum of exp(logit - maximum). */
template <class E> struct running {
    float row_max, sum;
    template <int N> __device__ __forceinline__ void take(const float (&x)[N]) {
        float here = row_max;
#pragma unroll
        for (int j = 0; j < N; j++)
            here = fmaxf(here, x[j]);
        if (here == -INFINITY)
            return;
        const exp_minus<E> power(here);
        sum *= power(row_max);
        row_max = here;
#pragma unroll
        for (int j = 0; j < N; j++)
            sum += power(x[j]);
    }
};

/* kept (packs): where this thread stores its packs; NULL: they are not kept. */
template <class E> static __device__ __forceinline__ running<E> sum_row(const struct row_parts<E> &r, word *kept) {
    struct running<E> s = {
        - INFINITY, 0
    };
    for (int i = (int)threadIdx.x; i < r.packs; i += THREADS) {
        float x[PACK<E>];
        const word w = r.body[i];
        if (kept)
            kept[i] = w;
        convert_to_fp32<E>(x, w);
        s.take(x);
    }
    if (r.edge() >= 0)
        s.take({ float_of(r.row[r.edge()]) });
    return s;
}

/* factor exp(x - row_max), minus `minus` at the target and `minus_partner` at the partner. */
template <class E> struct gradient {
    exp_minus<E> power;
    float factor, minus, minus_partner;
    int target, partner; /* target -1: the row has none, and its gradient is 0; partner -1: the row is not mixed */

    template <int N>
    static __device__ __forceinline__ void subtract(float (&x)[N], int column, int class_, float minus) {
        if (class_ >= column && class_ < column + N)
#pragma unroll
            for (int j = 0; j < N; j++)
                x[j] -= column + j == class_ ? minus : 0;
    }

    template <int N> __device__ __forceinline__ void operator()(float (&x)[N], int column) const {
#pragma unroll
        for (int j = 0; j < N; j++)
            x[j] = target < 0 ? 0 : factor * power(x[j]);
        subtract(x, column, target, minus);
        subtract(x, column, target < 0 ? -1 : partner, minus_partner);
    }
};

template <class E>
static __device__ __forceinline__ void write_row(const struct row_parts<E> &r, const word *kept, const gradient<E> &g) {
    for (int i = (int)threadIdx.x; i < r.packs; i += THREADS) {
        float x[PACK<E>];
        convert_to_fp32<E>(x, kept ? kept[i] : r.body[i]);
        g(x, r.head + i * PACK<E>);
        r.body[i] = round_to<E>(x);
    }
    if (r.edge() >= 0) {
        float x[1] = { float_of(r.row[r.edge()]) };
        g(x, r.edge());
        r.row[r.edge()] = element_of<E>(x[0]);
    }
}

template <class E, bool KEEPS>
static __global__ void __launch_bounds__(THREADS, 2)
    cross_entropy(float *losses, E *logits, const int32_t *targets, const int32_t *partners, const float *shares,
                  int vocabulary, const float *scale, uint64_t *fault) {
    const int64_t row = blockIdx.x;
    const struct row_parts<E> r(logits + row * vocabulary, vocabulary);
    word *kept = KEEPS ? (word *)dynamic_shared() : NULL;
    const int32_t target = index_checked(fault, targets[row], -1, vocabulary, row, -1);
    const int second = partners ? index_checked(fault, partners[row], -1, vocabulary, row, -1) : -1;
    const int partner = second == target ? -1 : second;
    const float share = partner < 0 ? 1 : shares[row];
    float wanted = target < 0 ? 0 : float_of(r.row[target]);
    if (partner >= 0)
        wanted = share * wanted + (1 - share) * float_of(r.row[partner]);
    const struct running<E> own = sum_row(r, kept);
    const float row_max = block_max(own.row_max, 0);
    const exp_minus<E> power(row_max);
    const float sum = block_sum(own.row_max == -INFINITY ? 0 : own.sum * power(own.row_max), 0);
    if (threadIdx.x == 0)
        losses[row] = target < 0 ? 0 : logf(sum) + row_max - wanted;
    if (scale)
        write_row(r, kept,
                  { power, target < 0 ? 0 : *scale / sum, *scale * share, *scale * (1 - share), target, partner });
}

status_t cuda_cross_entropy(const struct kernels *k, float *losses, element_t *logits, const int32_t *targets,
                            const int32_t *partners, const float *shares, int64_t rows, int64_t vocabulary,
                            const float *scale, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        const size_t bytes = (size_t)vocabulary / PACK<E> * sizeof(word);
        const bool keeps = scale && bytes <= cuda_of(k)->shared_bytes;
        const auto kernel = keeps ? cross_entropy<E, true> : cross_entropy<E, false>;
        return launch_with_shared(k, e, keeps ? bytes : 0, kernel, dim3((unsigned)rows), dim3(THREADS), losses,
                                  (E *)logits, targets, partners, shares, (int)vocabulary, scale,
                                  cuda_of(k)->faults + CUDA_FAULT_TARGET);
    });
}

struct smaller_of {
    __device__ __forceinline__ int operator()(int a, int b) const { return a < b ? a : b; }
};

template <class E>
static __global__ void __launch_bounds__(TOP1_THREADS)
    find_top1(float *is_top1, const E *logits, const int32_t *targets, int vocabulary) {
    const E *row = logits + (int64_t)blockIdx.x * vocabulary;
    float row_max = -INFINITY;
    int first[1] = { vocabulary };
    for (int v = (int)threadIdx.x; v < vocabulary; v += TOP1_THREADS)
        if (float_of(row[v]) > row_max || first[0] == vocabulary) {
            row_max = float_of(row[v]);
            first[0] = v;
        }
    const float largest = block_max(first[0] < vocabulary ? row_max : -INFINITY, 0);
    first[0] = row_max == largest ? first[0] : vocabulary;
    block_reduce(first, smaller_of(), 0);
    if (threadIdx.x == 0)
        is_top1[blockIdx.x] = first[0] == targets[blockIdx.x];
}

status_t cuda_top1(const struct kernels *k, float *is_top1, const element_t *logits, const int32_t *targets,
                   int64_t rows, int64_t vocabulary, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return launch(k, e, find_top1<E>, dim3((unsigned)rows), dim3(TOP1_THREADS), is_top1, (const E *)logits, targets,
                      (int)vocabulary);
    });
}
