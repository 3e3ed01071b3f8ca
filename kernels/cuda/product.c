#include "kernels/cuda/product.h"

#include "kernels/cuda/choices.h"
#include "kernels/cuda/fastest.h"
#include "kernels/cuda/product_layout.h"

#include <string.h>

/* What NVIDIA recommends for Hopper. */
enum { WORKSPACE_BYTES = 32 << 20 };
/* How many of cuBLASLt's choices are measured where speed goes first, or looked through where its first is none. */
enum { CANDIDATES = 16 };
/* Vectors of 16 bytes are the widest that a kernel loads. */
enum { ALIGNMENT_MOST = 16 };
/* cuBLASLt is asked for algorithms by the alignment of matrices, and takes a bias to be on 16 bytes whatever they are
 * (PyTorch's pull request 194497): one that is not is copied to where it is. */
enum { BIAS_BYTES = 1 << 20 };

struct entry {
    struct gemm product;
    uint64_t used; /* the clock of the last use; 0 = free */
    struct product_layout layout;
    cublasLtMatmulAlgo_t algorithm;
    bool none; /* cuBLASLt has no algorithm */
};

struct products {
    cublasLtHandle_t lt;
    cudaStream_t stream;
    void *workspace; /* WORKSPACE_BYTES, and behind them BIAS_BYTES for a copy of a bias */
    bool fast;
    uint64_t clock;
    struct choices *choices; /* borrowed */
    struct entry entries[KERNELS_PRODUCTS_MOST];
};

_Static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(uint64_t[PRODUCT_ALGORITHM_WORDS]), "choices keep all of it");

status_t cuda_products_new(const struct cuda *c, struct products **ret, struct err *e) {
    struct products *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the cache of products");
    s->stream = c->stream;
    s->fast = c->table.fast;
    s->choices = c->choices;
    status_t st = product_status(cublasLtCreate(&s->lt), "beginning", e);
    if (st == ST_OK)
        st = cuda_status(cudaMalloc(&s->workspace, WORKSPACE_BYTES + BIAS_BYTES), "reserving cuBLASLt's workspace", e);
    if (st != ST_OK) {
        cuda_products_free(s);
        return st;
    }
    *ret = s;
    return ST_OK;
}

struct products *cuda_products_free(struct products *s) {
    if (!s)
        return NULL;
    for (int i = 0; i < KERNELS_PRODUCTS_MOST; i++)
        product_layout_done(&s->entries[i].layout);
    (void)cudaFree(s->workspace);
    if (s->lt)
        (void)cublasLtDestroy(s->lt);
    free(s);
    return NULL;
}

size_t cuda_products_version(void) { return cublasLtGetVersion(); }

/* --- running ---*/

struct operands {
    void *c;
    element_t *pre;
    const element_t *a, *b, *bias;
};

static status_t point(struct entry *t, const struct operands *o, struct err *e) {
    cublasLtMatmulDesc_t d = t->layout.operation;
    if (t->product.flags & GEMM_BIAS)
        TRY(product_status(
            cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &o->bias, sizeof o->bias),
            "giving a product its bias", e));
    if (t->product.flags & GEMM_GELU)
        TRY(product_status(
            cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &o->pre, sizeof o->pre),
            "giving a product its second result", e));
    return ST_OK;
}

static cublasStatus_t multiply(struct products *s, const struct entry *t, const cublasLtMatmulAlgo_t *algorithm,
                               const struct operands *o, void *c) {
    const float alpha = 1, beta = t->product.flags & GEMM_ACCUMULATE ? 1 : 0;
    const struct product_layout *l = &t->layout;
    return cublasLtMatmul(s->lt, l->operation, &alpha, o->b, l->first, o->a, l->second, &beta, c, l->c, c, l->c,
                          algorithm, s->workspace, WORKSPACE_BYTES, s->stream);
}

/* --- choosing ---*/

/* Sums may be cut along k only into parts that fp32 keeps and a second kernel adds in order; `fast` lets them meet by
 * atomic additions, too. */
static status_t preference_new(const struct products *s, const struct gemm *p, cublasLtMatmulPreference_t *ret,
                               struct err *e) {
    const uint64_t workspace = WORKSPACE_BYTES;
    const uint32_t alignment = (uint32_t)p->alignment, reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
                                                                    (s->fast ? CUBLASLT_REDUCTION_SCHEME_INPLACE : 0);
    const struct attribute {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t bytes;
    } all[] = {
        { CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace },
        { CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment, sizeof alignment },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignment, sizeof alignment },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignment, sizeof alignment },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignment, sizeof alignment },
    };
    cublasStatus_t st = cublasLtMatmulPreferenceCreate(ret);
    for (size_t i = 0; st == CUBLAS_STATUS_SUCCESS && i < sizeof all / sizeof *all; i++)
        st = cublasLtMatmulPreferenceSetAttribute(*ret, all[i].name, all[i].value, all[i].bytes);
    return product_status(st, "saying which algorithms will do", e);
}

/* The library marks those of its results that are none. */
static int valid(cublasLtMatmulHeuristicResult_t *all, int n) {
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (all[i].state == CUBLAS_STATUS_SUCCESS)
            all[kept++] = all[i];
    return kept;
}

static status_t candidates(const struct products *s, const struct entry *t, int most,
                           cublasLtMatmulHeuristicResult_t *ret, int *ret_n, struct err *e) {
    const struct product_layout *l = &t->layout;
    cublasLtMatmulPreference_t preference = NULL;
    status_t st = preference_new(s, &t->product, &preference, e);
    *ret_n = 0;
    if (st == ST_OK)
        st = product_status(cublasLtMatmulAlgoGetHeuristic(s->lt, l->operation, l->first, l->second, l->c, l->c,
                                                           preference, most, ret, ret_n),
                            "choosing an algorithm", e);
    if (preference)
        (void)cublasLtMatmulPreferenceDestroy(preference);
    *ret_n = st == ST_OK ? valid(ret, *ret_n) : 0;
    return st == ST_UNIMPLEMENTED ? ST_OK : st;
}

/* What is timed. */
struct trial {
    struct products *products;
    const struct entry *entry;
    const cublasLtMatmulHeuristicResult_t *all;
    const struct operands *operands;
    void *c;
};

static bool try_one(void *ctx, int way) {
    const struct trial *t = ctx;
    return multiply(t->products, t->entry, &t->all[way].algo, t->operands, t->c) == CUBLAS_STATUS_SUCCESS;
}

/* The fastest of n. A product that is added to what is there has a matrix of its own for it, of the stream: cudaFree
 * would wait for all work on the device, and that may be a receive whose sender waits for this rank. */
static status_t fastest_of(struct products *s, const struct entry *t, const cublasLtMatmulHeuristicResult_t *all, int n,
                           const struct operands *o, int *ret, struct err *e) {
    const struct gemm *p = &t->product;
    const size_t bytes = p->flags & GEMM_C_FP32 || p->precision == KERNELS_FP32 ? 4 : 2;
    struct trial trial = { s, t, all, o, o->c };
    if (!(p->flags & GEMM_ACCUMULATE))
        return fastest(s->stream, n, try_one, &trial, ret, e);
    TRY(cuda_status(cudaMallocAsync(&trial.c, (size_t)(p->m * p->ldc) * bytes, s->stream),
                    "reserving memory to measure a product", e));
    const status_t st = fastest(s->stream, n, try_one, &trial, ret, e);
    (void)cudaFreeAsync(trial.c, s->stream);
    return st;
}

/* The run's choice, checked against the library: the text may be anyone's. */
static status_t repeat(const struct products *s, struct entry *t, const struct product_choice *choice, struct err *e) {
    const struct product_layout *l = &t->layout;
    cublasLtMatmulHeuristicResult_t result = { 0 };
    memcpy(&t->algorithm, choice->algorithm, sizeof t->algorithm);
    const cublasStatus_t st = cublasLtMatmulAlgoCheck(s->lt, l->operation, l->first, l->second, l->c, l->c,
                                                      &t->algorithm, &result);
    if (st != CUBLAS_STATUS_SUCCESS || result.workspaceSize > WORKSPACE_BYTES)
        return err_set(e, ST_FAILED_PRECONDITION, "the run's record chose an algorithm that does not run here");
    return ST_OK;
}

static status_t choose(struct products *s, struct entry *t, const struct operands *o, struct err *e) {
    const struct product_choice *before = choices_product(s->choices, &t->product);
    if (before)
        return repeat(s, t, before, e);
    cublasLtMatmulHeuristicResult_t all[CANDIDATES];
    int n, best = 0;
    TRY(candidates(s, t, s->fast ? CANDIDATES : 1, all, &n, e));
    if (n == 0 && !s->fast)
        TRY(candidates(s, t, CANDIDATES, all, &n, e));
    t->none = n == 0;
    if (n == 0)
        return ST_OK;
    if (s->fast)
        TRY(fastest_of(s, t, all, n, o, &best, e));
    struct product_choice choice = { .product = t->product, .workspace = all[best].workspaceSize };
    t->algorithm = all[best].algo;
    memcpy(choice.algorithm, &all[best].algo, sizeof choice.algorithm);
    return choices_add_product(s->choices, &choice, e);
}

/* --- the cache ---*/

static struct entry *entry_of(struct products *s, const struct gemm *p) {
    struct entry *oldest = &s->entries[0];
    for (int i = 0; i < KERNELS_PRODUCTS_MOST; i++) {
        struct entry *t = &s->entries[i];
        if (t->used && gemm_equal(&t->product, p))
            return t;
        if (t->used < oldest->used)
            oldest = t;
    }
    product_layout_done(&oldest->layout);
    *oldest = (struct entry){ .product = *p };
    return oldest;
}

/* The largest power of two that divides all of them. */
static int64_t alignment(const struct operands *o) {
    const uintptr_t bits = (uintptr_t)o->c | (uintptr_t)o->pre | (uintptr_t)o->a | (uintptr_t)o->b |
                           (uintptr_t)o->bias | ALIGNMENT_MOST;
    return (int64_t)(bits & -bits);
}

static status_t run(struct products *s, struct entry *t, const struct operands *o, struct err *e) {
    if (!t->used)
        TRY(product_layout_new(&t->product, &t->layout, e));
    TRY(point(t, o, e));
    if (!t->used)
        TRY(choose(s, t, o, e));
    t->used = ++s->clock;
    if (t->none)
        return err_set(e, ST_UNIMPLEMENTED, "cuBLASLt has no algorithm");
    return product_status(multiply(s, t, &t->algorithm, o, o->c), "multiplying", e);
}

static status_t bias_aligned(struct products *s, const struct gemm *p, struct operands *o, struct err *e) {
    const size_t bytes = (size_t)p->n * (p->precision == KERNELS_FP32 ? sizeof(float) : sizeof(uint16_t));
    if ((uintptr_t)o->bias % ALIGNMENT_MOST == 0)
        return ST_OK;
    if (bytes > BIAS_BYTES)
        return err_set(e, ST_UNIMPLEMENTED, "a bias of %zu bytes is not on a boundary of %d", bytes, ALIGNMENT_MOST);
    void *room = (char *)s->workspace + WORKSPACE_BYTES;
    TRY(cuda_status(cudaMemcpyAsync(room, o->bias, bytes, cudaMemcpyDeviceToDevice, s->stream), "copying a bias", e));
    o->bias = room;
    return ST_OK;
}

status_t cuda_products_run(const struct kernels *k, struct gemm p, void *c, element_t *pre, const element_t *a,
                           const element_t *b, const element_t *bias, struct err *e) {
    struct operands o = { .c = c, .pre = pre, .a = a, .b = b, .bias = bias };
    struct products *s = cuda_of(k)->products;
    p.precision = k->precision;
    status_t st = bias_aligned(s, &p, &o, e);
    p.alignment = alignment(&o);
    if (st == ST_OK)
        st = run(s, entry_of(s, &p), &o, e);
    return st == ST_OK
               ? ST_OK
               : err_prefix(e, st, "product %lld x %lld x %lld: ", (long long)p.m, (long long)p.n, (long long)p.k);
}
