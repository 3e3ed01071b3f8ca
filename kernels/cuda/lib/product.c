/* Matrix products by cuBLASLt: selecting an algorithm for each product, once.
 *
 * A product is identified by its sizes, strides, flags, precision and alignment. The cache keeps the descriptors and
 * the algorithm of each and replaces the product that was used least recently. The first run of a product selects:
 *
 *   1. The algorithm in the tuning cache, if there is one, after a check by the library.
 *   2. Else the library's heuristic gives up to CANDIDATES algorithms. With `fast` they are timed and the fastest is
 *      tried first, otherwise the heuristic's first. An algorithm that the library then refuses is skipped.
 *   3. The algorithm that has computed the result is recorded in the tuning cache.
 *
 * So equal products use equal algorithms in a run and in every resume, which keeps the bits. */
#include "kernels/cuda/lib/product.h"

#include "base/alloc.h"

#include "kernels/cuda/lib/autotune.h"
#include "kernels/cuda/lib/product_layout.h"
#include "kernels/cuda/lib/tuning_cache.h"

#include <string.h>

/* Memory for partial sums of products that are divided along k: 3072 x 3072 in fp32 by three parts, with space to
 * spare. NVIDIA recommends at least 32 MiB for Hopper. */
enum { WORKSPACE_BYTES = 128 << 20 };
/* How many of cuBLASLt's algorithms are timed for `numerics: fast`; otherwise the first of them that runs is taken. */
enum { CANDIDATES = FASTEST_WAYS_MAX };
/* The alignment of the arena's tensors, PLAN_ALIGN. If more were counted, the address of a tensor, which depends on
 * the layout, could change the selected algorithm. */
enum { ALIGNMENT_MAX = 64 };
/* cuBLASLt selects algorithms by the alignment of the matrices, and assumes that a bias begins on 16 bytes
 * (PyTorch's pull request 194497). So any other bias is copied. */
enum { BIAS_ALIGNMENT = 16, BIAS_BYTES = 1 << 20 };

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
    void *workspace; /* WORKSPACE_BYTES, then BIAS_BYTES for a copy of a bias */
    bool fast;
    uint64_t clock;
    struct tuning_cache *tuning_cache; /* borrowed */
    struct entry entries[KERNELS_MAX_PRODUCTS];
};

_Static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(uint64_t[PRODUCT_ALGORITHM_WORDS]), "choices keep all of it");

status_t cuda_products_new(const struct cuda *c, struct products **ret, struct err *e) {
    struct products *s = alloc_zeroed(1, sizeof *s);
    s->stream = c->stream;
    s->fast = c->table.fast;
    s->tuning_cache = c->tuning_cache;
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
    for (int i = 0; i < KERNELS_MAX_PRODUCTS; i++)
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

/* A sum may be divided along k only if the parts are kept in fp32 and a second kernel adds them in order. `fast`
 * also allows atomic additions of the parts. */
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

/* Removes the results that the library marks as invalid. Returns the count of the others. */
static int valid(cublasLtMatmulHeuristicResult_t *all, int n) {
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (all[i].state == CUBLAS_STATUS_SUCCESS)
            all[kept++] = all[i];
    return kept;
}

static status_t candidates(const struct products *s, const struct entry *t,
                           cublasLtMatmulHeuristicResult_t ret[CANDIDATES], int *ret_n, struct err *e) {
    const struct product_layout *l = &t->layout;
    cublasLtMatmulPreference_t preference = NULL;
    status_t st = preference_new(s, &t->product, &preference, e);
    *ret_n = 0;
    if (st == ST_OK)
        st = product_status(cublasLtMatmulAlgoGetHeuristic(s->lt, l->operation, l->first, l->second, l->c, l->c,
                                                           preference, CANDIDATES, ret, ret_n),
                            "choosing an algorithm", e);
    if (preference)
        (void)cublasLtMatmulPreferenceDestroy(preference);
    *ret_n = st == ST_OK ? valid(ret, *ret_n) : 0;
    return st == ST_UNIMPLEMENTED ? ST_OK : st;
}

/* The context of try_one: the candidates for one product. */
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

/* Stores the fastest of n algorithms. A product that accumulates writes to temporary memory here. That memory comes
 * from the stream's pool, because cudaFree would wait for all work on the device, which may include a receive whose
 * sender waits for this rank. */
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

/* Uses the recorded choice after a check by the library, because the record is an input from outside. */
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

static status_t record(struct products *s, struct entry *t, const cublasLtMatmulHeuristicResult_t *chosen,
                       struct err *e) {
    struct product_choice choice = { .product = t->product, .workspace = chosen->workspaceSize };
    t->algorithm = chosen->algo;
    memcpy(choice.algorithm, &chosen->algo, sizeof choice.algorithm);
    return tuning_cache_add_product(s->tuning_cache, &choice, e);
}

/* Computes the product with the first algorithm that the library really runs, from `best` on and then in the
 * heuristic's order, and records this one. The heuristic also names algorithms that cublasLtMatmul refuses; a
 * refused call has computed nothing. The same library refuses the same ones on every host, so the choice is the same
 * as well. */
static status_t first_that_runs(struct products *s, struct entry *t, const cublasLtMatmulHeuristicResult_t *all, int n,
                                int best, const struct operands *o, struct err *e) {
    cublasStatus_t refusal = CUBLAS_STATUS_NOT_SUPPORTED;
    for (int i = -1; i < n; i++) {
        const cublasLtMatmulHeuristicResult_t *way = &all[i < 0 ? best : i];
        const cublasStatus_t st = i == best ? refusal : multiply(s, t, &way->algo, o, o->c);
        if (st == CUBLAS_STATUS_SUCCESS)
            return record(s, t, way, e);
        refusal = st;
    }
    t->none = refusal == CUBLAS_STATUS_NOT_SUPPORTED;
    return product_status(refusal, "multiplying by any of its algorithms", e);
}

/* The first run of a product: selects an algorithm, or takes the recorded one. */
static status_t run_first(struct products *s, struct entry *t, const struct operands *o, struct err *e) {
    const struct product_choice *before = tuning_cache_product(s->tuning_cache, &t->product);
    cublasLtMatmulHeuristicResult_t all[CANDIDATES];
    int n, best = 0;
    if (before) {
        TRY(repeat(s, t, before, e));
        return product_status(multiply(s, t, &t->algorithm, o, o->c), "multiplying", e);
    }
    TRY(candidates(s, t, all, &n, e));
    t->none = n == 0;
    if (n == 0)
        return err_set(e, ST_UNIMPLEMENTED, "cuBLASLt has no algorithm");
    if (s->fast && n > 1)
        TRY(fastest_of(s, t, all, n, o, &best, e));
    return first_that_runs(s, t, all, n, best, o, e);
}

/* --- the cache ---*/

static struct entry *entry_of(struct products *s, const struct gemm *p) {
    struct entry *oldest = &s->entries[0];
    for (int i = 0; i < KERNELS_MAX_PRODUCTS; i++) {
        struct entry *t = &s->entries[i];
        if (t->used && gemm_equal(&t->product, p))
            return t;
        if (t->used < oldest->used)
            oldest = t;
    }
    /* A free entry has used = 0, so it is replaced before any other. */
    product_layout_done(&oldest->layout);
    *oldest = (struct entry){ .product = *p };
    return oldest;
}

/* The largest power of two, up to ALIGNMENT_MAX, that divides the addresses of all matrices. */
static int64_t alignment(const struct operands *o) {
    const uintptr_t bits = (uintptr_t)o->c | (uintptr_t)o->pre | (uintptr_t)o->a | (uintptr_t)o->b | ALIGNMENT_MAX;
    return (int64_t)(bits & -bits);
}

static status_t run(struct products *s, struct entry *t, const struct operands *o, struct err *e) {
    if (!t->used) {
        TRY(product_layout_new(&t->product, &t->layout, e));
        TRY(point(t, o, e));
        const status_t st = run_first(s, t, o, e);
        if (st == ST_OK || t->none)
            t->used = ++s->clock;
        return st;
    }
    t->used = ++s->clock;
    if (t->none)
        return err_set(e, ST_UNIMPLEMENTED, "cuBLASLt has no algorithm");
    TRY(point(t, o, e));
    return product_status(multiply(s, t, &t->algorithm, o, o->c), "multiplying", e);
}

static status_t bias_aligned(struct products *s, const struct gemm *p, struct operands *o, struct err *e) {
    const size_t bytes = (size_t)p->n * (p->precision == KERNELS_FP32 ? sizeof(float) : sizeof(uint16_t));
    if ((uintptr_t)o->bias % BIAS_ALIGNMENT == 0)
        return ST_OK;
    if (bytes > BIAS_BYTES)
        return err_set(e, ST_UNIMPLEMENTED, "a bias of %zu bytes does not begin on a multiple of %d bytes", bytes,
                       BIAS_ALIGNMENT);
    void *copy = (char *)s->workspace + WORKSPACE_BYTES;
    TRY(cuda_status(cudaMemcpyAsync(copy, o->bias, bytes, cudaMemcpyDeviceToDevice, s->stream), "copying a bias", e));
    o->bias = copy;
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
