/* The algorithm that computes a product, over a cuBLASLt that only reports which algorithms it has and how long each
 * takes, and records which one it runs. The algorithm is chosen once and recorded. The next part of the run takes the
 * recorded one, even if the library would now prefer another. */
#include "kernels/cuda/lib/product.h"
#include "kernels/cuda/lib/product_layout.h"
#include "kernels/cuda/lib/tuning_cache.h"
#include "kernels/cuda/ops.h"
#include "tests/kernels/cuda/scripted_events.h"
#include "tests/kernels/tensor.h"

#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { HAS = 3 };

/* The library and the device. The first word of an algorithm identifies it. */
static struct {
    size_t version;
    uint64_t first;   /* the heuristic's first choice; the others follow, modulo HAS */
    int ms[HAS];      /* the time of each algorithm */
    uint64_t refused; /* by the check; HAS: none */
    unsigned fails;   /* a bit for each algorithm that the heuristic names and that fails when it runs */
    cublasStatus_t failure;
    int slow_ms;      /* an idle device: runs take four times as long for this many milliseconds */
    int void_results; /* the first results of the heuristic that are invalid */
    int asked, run;   /* calls of the heuristic; products that ran */
    uint64_t newest;  /* the algorithm that ran last */
    int clock_ms;
    const void *bias; /* the bias as the library received it */
    const void *copied;
    size_t copied_bytes;
} library;

alignas(256) static char somewhere[256]; /* the target of device pointers */

cublasStatus_t cublasLtCreate(cublasLtHandle_t *ret) {
    *ret = (cublasLtHandle_t)(void *)somewhere;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    (void)handle;
    return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion(void) { return library.version; }
const char *cublasLtGetStatusString(cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS ? "" : "no"; }

#define DESCRIPTOR(name, type, ...)                                                                                    \
    cublasStatus_t name##Create(type *ret __VA_ARGS__) {                                                               \
        *ret = calloc(1, sizeof **ret);                                                                                \
        return *ret ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;                                              \
    }                                                                                                                  \
    cublasStatus_t name##Destroy(type descriptor) {                                                                    \
        free(descriptor);                                                                                              \
        return CUBLAS_STATUS_SUCCESS;                                                                                  \
    }
#define SETTER(name, type, attribute)                                                                                  \
    cublasStatus_t name##SetAttribute(type to, attribute what, const void *value, size_t bytes) {                      \
        (void)to, (void)what, (void)value, (void)bytes;                                                                \
        return CUBLAS_STATUS_SUCCESS;                                                                                  \
    }
DESCRIPTOR(cublasLtMatmulDesc, cublasLtMatmulDesc_t, , __attribute__((unused)) cublasComputeType_t compute,
           __attribute__((unused)) cudaDataType_t scale)
DESCRIPTOR(cublasLtMatrixLayout, cublasLtMatrixLayout_t, , __attribute__((unused)) cudaDataType type,
           __attribute__((unused)) uint64_t rows, __attribute__((unused)) uint64_t columns,
           __attribute__((unused)) int64_t ld)
DESCRIPTOR(cublasLtMatmulPreference, cublasLtMatmulPreference_t, )
SETTER(cublasLtMatmulPreference, cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t)

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t to, cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t bytes) {
    (void)to, (void)bytes;
    if (what == CUBLASLT_MATMUL_DESC_BIAS_POINTER)
        library.bias = *(const void *const *)value;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t results[], int *ret_n) {
    (void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d, (void)preference;
    *ret_n = most < HAS ? most : HAS;
    for (int i = 0; i < *ret_n; i++)
        results[i] = (cublasLtMatmulHeuristicResult_t){ .algo.data[0] = (library.first + (uint64_t)i) % HAS,
                                                        .workspaceSize = 1024,
                                                        .state = i < library.void_results ? CUBLAS_STATUS_NOT_SUPPORTED
                                                                                          : CUBLAS_STATUS_SUCCESS };
    library.asked++;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                       cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algorithm,
                                       cublasLtMatmulHeuristicResult_t *result) {
    (void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d;
    result->workspaceSize = 1024;
    return algorithm->data[0] == library.refused ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t bytes, cudaStream_t stream) {
    (void)handle, (void)operation, (void)alpha, (void)a, (void)a_layout, (void)b, (void)b_layout, (void)beta, (void)c,
        (void)c_layout, (void)d, (void)d_layout, (void)workspace, (void)bytes, (void)stream;
    if (library.fails & 1u << algorithm->data[0])
        return library.failure;
    library.newest = algorithm->data[0];
    library.clock_ms += library.ms[library.newest] * (library.clock_ms < library.slow_ms ? 4 : 1);
    library.run++;
    return CUBLAS_STATUS_SUCCESS;
}

cudaError_t cudaMalloc(void **ret, size_t bytes) {
    (void)bytes;
    *ret = somewhere;
    return cudaSuccess;
}
cudaError_t cudaFree(void *p) {
    (void)p;
    return cudaSuccess;
}
cudaError_t cudaMallocAsync(void **ret, size_t bytes, cudaStream_t stream) {
    (void)stream;
    return cudaMalloc(ret, bytes);
}
cudaError_t cudaFreeAsync(void *p, cudaStream_t stream) {
    (void)p, (void)stream;
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    (void)to, (void)kind, (void)stream;
    library.copied = from;
    library.copied_bytes = bytes;
    return cudaSuccess;
}
const int *const scripted_clock_ms = &library.clock_ms;
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "no"; }

/* --- a part of a run -----------------------------------------------------------------------------------------------*/

static int reset(void **state) {
    (void)state;
    memset(&library, 0, sizeof library);
    library.version = 130100;
    library.first = 1;
    library.refused = HAS;
    library.failure = CUBLAS_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < HAS; i++)
        library.ms[i] = 10 + i;
    return 0;
}

/* The caller must call `closed`. */
static struct cuda opened(const char *device, bool fast, const char *record) {
    struct cuda c = { .table = { .fast = fast }, .processors = 132 };
    snprintf(c.name, sizeof c.name, "%s", device);
    OK(cuda_tuning_cache_open(&c, record, e));
    OK(cuda_products_new(&c, &c.products, e));
    return c;
}

static void closed(struct cuda *c) {
    c->products = cuda_products_free(c->products);
    cuda_tuning_cache_close(c);
}

static status_t multiply(const struct cuda *c, int64_t m, struct err *e) {
    const struct gemm p = { .m = m, .n = 64, .k = 64, .lda = 64, .ldb = 64, .ldc = 64 };
    return cuda_products_run(&c->table, p, somewhere, NULL, somewhere, somewhere, NULL, e);
}

/* Returns the algorithm of the product of m rows, and the record afterwards. */
static uint64_t algorithm_of(const char *device, bool fast, int64_t m, const char *before, char **ret_record) {
    struct cuda c = opened(device, fast, before);
    char *record = NULL;
    OK(multiply(&c, m, e));
    record = cuda_tuning_cache(&c.table);
    closed(&c);
    if (ret_record)
        *ret_record = record;
    else
        free(record);
    return library.newest;
}

static void the_heuristics_first_is_chosen_once_and_taken_again_when_the_heuristic_says_another(void **state) {
    (void)state;
    CLEANUP(freep) char *record = NULL, *again = NULL;
    struct cuda c = opened("X", false, NULL);
    OK(multiply(&c, 8, e));
    OK(multiply(&c, 8, e));
    record = cuda_tuning_cache(&c.table);
    closed(&c);
    assert_int_equal(library.newest, 1);
    assert_int_equal(library.asked, 1);
    assert_non_null(strstr(record, "\non X, 132 processors, cuBLASLt 130100\nfp32 8 64 64 "));
    library.first = 2;
    assert_int_equal(algorithm_of("X", false, 8, record, &again), 1);
    assert_string_equal(again, record);
    assert_int_equal(library.asked, 1);
    assert_int_equal(algorithm_of("X", false, 9, record, NULL), 2); /* which it has no choice of */
    assert_int_equal(algorithm_of("X", false, 8, NULL, NULL), 2);
}

static void a_fast_run_times_its_products_and_a_resumed_one_does_not(void **state) {
    (void)state;
    CLEANUP(freep) char *record = NULL;
    assert_int_equal(algorithm_of("X", true, 8, NULL, &record), 0); /* the fastest, and not the first */
    assert_true(library.run > HAS);
    assert_non_null(strstr(record, "cuBLASLt 130100, fast\n"));
    library.run = 0;
    library.ms[0] = 30;
    assert_int_equal(algorithm_of("X", true, 8, record, NULL), 0);
    assert_int_equal(library.run, 1);
    assert_int_equal(algorithm_of("X", true, 8, NULL, NULL), 1);
}

static void a_result_that_the_library_calls_none_is_not_taken(void **state) {
    (void)state;
    struct err e = { "" };
    library.void_results = 2; /* 1 and 2 */
    library.ms[0] = 30;
    assert_int_equal(algorithm_of("X", true, 8, NULL, NULL), 0);
    assert_int_equal(algorithm_of("X", false, 8, NULL, NULL), 0);
    library.void_results = HAS;
    struct cuda c = opened("X", false, NULL);
    assert_int_equal(multiply(&c, 8, &e), ST_UNIMPLEMENTED);
    assert_string_equal(e.msg, "product 8 x 64 x 64: cuBLASLt has no algorithm");
    closed(&c);
}

/* cuBLASLt's heuristic may name algorithms that cublasLtMatmul then refuses. A refused one must not end the job, and
 * must not enter its record. */
static void an_algorithm_that_is_refused_when_it_runs_gives_way_to_the_next(void **state) {
    (void)state;
    CLEANUP(freep) char *record = NULL;
    static const cublasStatus_t failures[] = { CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_INVALID_VALUE };
    for (int i = 0; i < 2; i++) {
        library.failure = failures[i];
        library.fails = 1u << 1;
        freep(&record);
        assert_int_equal(algorithm_of("X", false, 8, NULL, &record), 2);
        library.fails = 0;
        assert_int_equal(algorithm_of("X", false, 8, record, NULL), 2);
        library.fails = 1u << 0; /* the fastest */
        assert_int_equal(algorithm_of("X", true, 8, NULL, NULL), 1);
    }
}

static void algorithms_that_are_all_refused_are_one_sentence(void **state) {
    (void)state;
    struct err e = { "" };
    library.fails = 7;
    struct cuda c = opened("X", false, NULL);
    for (int i = 0; i < 2; i++) /* the caller computes otherwise, and asks once */
        assert_int_equal(multiply(&c, 8, &e), ST_UNIMPLEMENTED);
    assert_int_equal(library.asked, 1);
    library.failure = CUBLAS_STATUS_INTERNAL_ERROR;
    assert_int_equal(multiply(&c, 9, &e), ST_INTERNAL);
    assert_string_equal(e.msg, "product 9 x 64 x 64: cuBLASLt, multiplying by any of its algorithms: no");
    closed(&c);
}

/* The clock of an idle device is low. The algorithm that is timed first must not look slow because of that. */
static void timing_waits_until_the_device_is_at_its_clock(void **state) {
    (void)state;
    library.ms[1] = 10; /* the first that is timed */
    library.ms[2] = 11;
    library.ms[0] = 12;
    library.slow_ms = 100;
    assert_int_equal(algorithm_of("X", true, 8, NULL, NULL), 1);
}

static int64_t alignment_of(char *at) {
    struct cuda c = opened("X", false, NULL);
    const struct gemm p = { .m = 8, .n = 64, .k = 64, .lda = 64, .ldb = 64, .ldc = 64 };
    OK(cuda_products_run(&c.table, p, at, NULL, somewhere, somewhere, NULL, e));
    const int64_t found = c.tuning_cache->products[0].product.alignment;
    closed(&c);
    return found;
}

static void cublaslt_gets_the_alignment_up_to_the_arenas(void **state) {
    (void)state;
    assert_int_equal(alignment_of(somewhere), 64);
    assert_int_equal(alignment_of(somewhere + 128),
                     64); /* that of all tensors of an arena: the layout does not matter */
    assert_int_equal(alignment_of(somewhere + 32), 32);
    assert_int_equal(alignment_of(somewhere + 2), 2);
}

static void tuning_cache_of_another_device_library_or_promise_are_made_anew(void **state) {
    (void)state;
    CLEANUP(freep) char *record = NULL, *fast = NULL;
    assert_int_equal(algorithm_of("X", false, 8, NULL, &record), 1);
    assert_int_equal(algorithm_of("X", true, 8, record, &fast), 0);
    assert_int_equal(algorithm_of("X", false, 8, fast, NULL), 1); /* never one that adds by atomic operations */
    library.first = 2;
    assert_int_equal(algorithm_of("Y", false, 8, record, NULL), 2);
    library.version = 130200;
    assert_int_equal(algorithm_of("X", false, 8, record, NULL), 2);
}

static void an_algorithm_that_does_not_run_here_is_one_sentence(void **state) {
    (void)state;
    CLEANUP(freep) char *record = NULL;
    struct err e = { "" };
    assert_int_equal(algorithm_of("X", false, 8, NULL, &record), 1);
    library.refused = 1;
    struct cuda c = opened("X", false, record);
    assert_int_equal(multiply(&c, 8, &e), ST_FAILED_PRECONDITION);
    assert_string_equal(e.msg, "product 8 x 64 x 64: the run's record chose an algorithm that does not run here");
    closed(&c);
}

static void a_record_that_is_none_is_lost_data(void **state) {
    (void)state;
    struct err e = { "" };
    struct cuda c = { .name = "X" };
    assert_int_equal(cuda_tuning_cache_open(&c, "nonsense\n", &e), ST_DATA_LOSS);
    assert_string_equal(e.msg, "the run's record: line 1 of a table of choices is not one");
    cuda_tuning_cache_close(&c);
}

/* The library's kernels load a bias in vectors, whatever the alignment of the matrices. */
static void a_bias_that_is_not_on_a_boundary_is_copied_to_one(void **state) {
    (void)state;
    struct cuda c = opened("X", false, NULL);
    const struct gemm p = { .m = 8, .n = 64, .k = 64, .lda = 64, .ldb = 64, .ldc = 64, .flags = GEMM_BIAS };
    OK(cuda_products_run(&c.table, p, somewhere, NULL, somewhere, somewhere, somewhere, e));
    assert_ptr_equal(library.bias, somewhere);
    assert_null(library.copied);
    OK(cuda_products_run(&c.table, p, somewhere, NULL, somewhere, somewhere, somewhere + 4, e));
    assert_int_equal((uintptr_t)library.bias % 16, 0);
    assert_ptr_not_equal(library.bias, somewhere);
    assert_ptr_equal(library.copied, somewhere + 4);
    assert_int_equal(library.copied_bytes, 64 * sizeof(float));
    assert_int_equal(library.asked, 1); /* one product, wherever its bias lies */
    struct gemm wide = p;
    wide.n = wide.ldb = wide.ldc = 1 << 20;
    struct err why = { "" };
    assert_int_equal(cuda_products_run(&c.table, wide, somewhere, NULL, somewhere, somewhere, somewhere + 4, &why),
                     ST_UNIMPLEMENTED);
    assert_non_null(strstr(why.msg, "a bias of 4194304 bytes does not begin on a multiple of 16 bytes"));
    closed(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_heuristics_first_is_chosen_once_and_taken_again_when_the_heuristic_says_another,
                               reset),
        cmocka_unit_test_setup(a_fast_run_times_its_products_and_a_resumed_one_does_not, reset),
        cmocka_unit_test_setup(a_result_that_the_library_calls_none_is_not_taken, reset),
        cmocka_unit_test_setup(an_algorithm_that_is_refused_when_it_runs_gives_way_to_the_next, reset),
        cmocka_unit_test_setup(algorithms_that_are_all_refused_are_one_sentence, reset),
        cmocka_unit_test_setup(timing_waits_until_the_device_is_at_its_clock, reset),
        cmocka_unit_test_setup(cublaslt_gets_the_alignment_up_to_the_arenas, reset),
        cmocka_unit_test_setup(tuning_cache_of_another_device_library_or_promise_are_made_anew, reset),
        cmocka_unit_test_setup(an_algorithm_that_does_not_run_here_is_one_sentence, reset),
        cmocka_unit_test_setup(a_record_that_is_none_is_lost_data, reset),
        cmocka_unit_test_setup(a_bias_that_is_not_on_a_boundary_is_copied_to_one, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
