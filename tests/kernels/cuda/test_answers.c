/* The reactions to cuDNN's answers: which failures fall back to the project's own kernels and which are reported, which
 * implementation computes a shape, which engine wins when engines are timed, and which outputs are cleared for an old
 * cuDNN. libcudnn.c gives the scripted answers; the own kernels only count their calls. */
#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/convolution_columns.h"
#include "kernels/cuda/lib/attention_cudnn.h"
#include "kernels/cuda/lib/convolution_cudnn.h"
#include "kernels/cuda/lib/product.h"
#include "kernels/cuda/lib/tuning_cache.h"
#include "kernels/cuda/ops.h"
#include "tests/kernels/cuda/libcudnn.h"
#include "tests/kernels/cuda/scripted_events.h"
#include "tests/kernels/tensor.h"

#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- replacements of the own kernels and of the runtime --- */

static int by_units, by_warps, by_columns;
static enum kernels_precision unpacked; /* of the newest packed gradient of weights */

status_t attention_mma_forward(const struct kernels *k, element_t *out, float *lse, const element_t *qkv,
                               const struct attention_dims *d, const struct dropout *dropout, struct err *e) {
    (void)k, (void)out, (void)lse, (void)qkv, (void)d, (void)dropout, (void)e;
    by_units++;
    return ST_OK;
}
status_t attention_plain_forward(const struct kernels *k, element_t *out, float *lse, const element_t *qkv,
                                 const struct attention_dims *d, const struct dropout *dropout, struct err *e) {
    (void)k, (void)out, (void)lse, (void)qkv, (void)d, (void)dropout, (void)e;
    by_warps++;
    return ST_OK;
}
status_t attention_mma_backward(const struct kernels *k, const struct attention_gradient *g,
                                const struct attention_dims *d, const struct dropout *dropout, struct err *e) {
    (void)k, (void)g, (void)d, (void)dropout, (void)e;
    by_units++;
    return ST_OK;
}
status_t attention_plain_backward(const struct kernels *k, const struct attention_gradient *g,
                                  const struct attention_dims *d, const struct dropout *dropout, struct err *e) {
    (void)k, (void)g, (void)d, (void)dropout, (void)e;
    by_warps++;
    return ST_OK;
}
status_t columns_of(const struct kernels *k, element_t *columns, const element_t *x, const struct convolution_dims *d,
                    struct err *e) {
    (void)k, (void)columns, (void)x, (void)d, (void)e;
    by_columns++;
    return ST_OK;
}
status_t columns_back(const struct kernels *k, element_t *dx, const float *columns, const struct convolution_dims *d,
                      bool accumulate, struct err *e) {
    (void)k, (void)dx, (void)columns, (void)d, (void)accumulate, (void)e;
    by_columns++;
    return ST_OK;
}
status_t columns_weight(const struct kernels *k, float *dw, const element_t *packed, const struct convolution_dims *d,
                        bool accumulate, struct err *e) {
    (void)dw, (void)packed, (void)d, (void)accumulate, (void)e;
    unpacked = k->precision;
    return ST_OK;
}
status_t cuda_linear_forward(const struct kernels *k, element_t *y, element_t *pre, const element_t *x,
                             const element_t *w, const element_t *bias, const struct linear_dims *d, struct err *e) {
    (void)k, (void)y, (void)pre, (void)x, (void)w, (void)bias, (void)d, (void)e;
    return ST_OK;
}
status_t cuda_linear_backward_input(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *w,
                                    const struct linear_dims *d, bool accumulate, struct err *e) {
    (void)k, (void)dx, (void)dy, (void)w, (void)d, (void)accumulate, (void)e;
    return ST_OK;
}
status_t cuda_linear_backward_weight(const struct kernels *k, float *dw, const element_t *x, const element_t *dy,
                                     const struct linear_dims *d, bool accumulate, void *workspace, struct err *e) {
    (void)k, (void)dw, (void)x, (void)dy, (void)d, (void)accumulate, (void)workspace, (void)e;
    return ST_OK;
}
status_t cuda_products_run(const struct kernels *k, struct gemm p, void *c, element_t *pre, const element_t *a,
                           const element_t *b, const element_t *bias, struct err *e) {
    (void)k, (void)p, (void)c, (void)pre, (void)a, (void)b, (void)bias, (void)e;
    return ST_OK;
}
static status_t no_packing(const struct kernels *k, element_t *y, const element_t *x, int64_t batch, int64_t channels,
                           int64_t pixels, struct err *e) {
    (void)k, (void)y, (void)x, (void)batch, (void)channels, (void)pixels, (void)e;
    return ST_OK;
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream) {
    (void)stream;
    memset(p, value, bytes);
    return cudaSuccess;
}
status_t cuda_status(cudaError_t error, const char *what, struct err *e) {
    return error == cudaSuccess ? ST_OK : err_set(e, ST_INTERNAL, "%s: error %d", what, (int)error);
}

const int *const scripted_clock_ms = &cudnn_script.clock_ms;

/* --- a table, and workspaces ---*/

static const struct attention_dims attention = {
    .batch = 2, .time = 40, .heads = 4, .kv_heads = 4, .head = 16, .causal = true
};
static const struct convolution_dims convolution = {
    .batch = 2, .height = 8, .width = 8, .in = 8, .out = 8, .kernel = 3, .stride = 1, .padding = 1
};
static const struct dropout no_dropout = { .probability = 0 };

static struct cuda table;
static struct kernels fp32;
static char *workspace; /* filled with ones */
static size_t workspace_bytes;
alignas(16) static char tensor[1 << 10];
static void *const on_boundary = tensor, *const off_boundary = tensor + 4;

static void begin(bool fast) {
    cudnn_script = (struct cudnn_script){ .version = 91900, .engines = 1 };
    by_units = by_warps = by_columns = 0;
    table = (struct cuda){ .table = { .device = "cuda",
                                      .precision = KERNELS_BF16,
                                      .fast = fast,
                                      .channels_last = no_packing,
                                      .fp32 = &fp32 } };
    OK(cudnn_open(NULL, &table.cudnn, e));
    workspace_bytes = cuda_attention_workspace(&table.table, &attention);
    const size_t other = cuda_convolution_workspace(&table.table, &convolution);
    workspace_bytes = other > workspace_bytes ? other : workspace_bytes;
    workspace = aligned_alloc(256, (workspace_bytes + 255) / 256 * 256);
    assert_non_null(workspace);
    memset(workspace, 0xff, workspace_bytes);
}

static void end(void) {
    cudnn_close(table.cudnn);
    free(workspace);
}

static status_t forward(float *lse, struct err *e) {
    return cuda_attention_forward(&table.table, on_boundary, lse, on_boundary, &attention, &no_dropout, workspace, e);
}
static status_t backward(const float *lse, struct err *e) {
    return cuda_attention_backward(&table.table, on_boundary, on_boundary, on_boundary, on_boundary, lse, &attention,
                                   &no_dropout, workspace, e);
}
static status_t convolve(const element_t *x, struct err *e) {
    return cuda_convolution_forward(&table.table, on_boundary, x, on_boundary, NULL, &convolution, workspace, e);
}
static status_t convolve_back(element_t *dx, struct err *e) {
    return cuda_convolution_backward_input(&table.table, dx, on_boundary, on_boundary, &convolution, false, workspace,
                                           e);
}

static status_t convolve_weight(const element_t *x, struct err *e) {
    return cuda_convolution_backward_weight(&table.table, on_boundary, x, on_boundary, &convolution, true, workspace,
                                            e);
}

/* --- tests ---*/

static void what_cudnn_does_not_support_is_left_to_the_own_kernels(void **state) {
    static const cudnnStatus_t unsupported[] = { CUDNN_STATUS_NOT_SUPPORTED, CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN,
                                                 CUDNN_STATUS_NOT_SUPPORTED_SHAPE,
                                                 CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH };
    (void)state;
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
        for (int of_graph = 0; of_graph <= 1; of_graph++) {
            begin(false);
            *(of_graph ? &cudnn_script.graph : &cudnn_script.engine[0].plan) = unsupported[i];
            OK(forward(on_boundary, e));
            OK(backward(on_boundary, e));
            assert_int_equal(by_units, 2);
            OK(convolve(on_boundary, e));
            OK(convolve_back(on_boundary, e));
            OK(convolve_weight(on_boundary, e));
            assert_int_equal(by_columns, 3);
            assert_int_equal(cudnn_script.runs, 0);
            end();
        }
    begin(false);
    cudnn_script.engines = 0;
    OK(forward(on_boundary, e));
    assert_int_equal(by_units, 1);
    end();
}

static void every_other_failure_of_cudnn_is_reported(void **state) {
    static const struct {
        cudnnStatus_t said;
        status_t told;
    } failures[] = { { CUDNN_STATUS_INTERNAL_ERROR, ST_INTERNAL },
                     { CUDNN_STATUS_BAD_PARAM, ST_INTERNAL },
                     { CUDNN_STATUS_EXECUTION_FAILED, ST_INTERNAL },
                     { CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING, ST_FAILED_PRECONDITION },
                     { CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE, ST_FAILED_PRECONDITION } };
    (void)state;
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++)
        for (int of_graph = 0; of_graph <= 1; of_graph++) {
            struct err e = { "" };
            begin(false);
            cudnn_script.engines = 2;
            cudnn_script.engine[1].plan = CUDNN_STATUS_NOT_SUPPORTED;
            *(of_graph ? &cudnn_script.graph : &cudnn_script.engine[0].plan) = failures[i].said;
            assert_int_equal(forward(on_boundary, &e), failures[i].told);
            assert_non_null(strstr(e.msg, "as the script says"));
            assert_int_equal(backward(on_boundary, &e), failures[i].told);
            assert_int_equal(convolve(on_boundary, &e), failures[i].told);
            assert_int_equal(convolve_back(on_boundary, &e), failures[i].told);
            assert_int_equal(convolve_weight(on_boundary, &e), failures[i].told);
            assert_int_equal(by_units + by_warps + by_columns, 0);
            end();
        }
}

/* PyTorch and cuDNN's own frontend skip such engines too. The record names the engine that computed. */
static void an_engine_that_cannot_be_made_gives_way_to_the_next(void **state) {
    static const cudnnStatus_t failures[] = { CUDNN_STATUS_INTERNAL_ERROR, CUDNN_STATUS_BAD_PARAM,
                                              CUDNN_STATUS_EXECUTION_FAILED };
    (void)state;
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        begin(false);
        cudnn_script.engines = 2;
        cudnn_script.engine[0].plan = failures[i];
        OK(forward(on_boundary, e));
        OK(backward(on_boundary, e));
        OK(convolve(on_boundary, e));
        assert_int_equal(cudnn_script.ran, 1);
        assert_int_equal(cudnn_script.runs, 3);
        assert_int_equal(by_units + by_warps + by_columns, 0);
        end();
    }
}

/* A user must repair a host that lacks a part of cuDNN; another engine would hide the problem. */
static void an_engine_whose_library_is_missing_does_not_give_way(void **state) {
    struct err e = { "" };
    (void)state;
    begin(false);
    cudnn_script.engines = 2;
    cudnn_script.engine[0].plan = CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE;
    assert_int_equal(forward(on_boundary, &e), ST_FAILED_PRECONDITION);
    end();
}

/* Additions without a fixed order are allowed only in a fast table, and there only in attention's backward pass. */
static void the_first_engine_that_will_do_is_taken(void **state) {
    (void)state;
    for (int fast = 0; fast <= 1; fast++) {
        begin(fast);
        cudnn_script.engines = 3;
        cudnn_script.engine[0].plan = CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
        cudnn_script.engine[1].nondeterministic = true;
        OK(forward(on_boundary, e));
        assert_int_equal(cudnn_script.ran, 2);
        OK(backward(on_boundary, e));
        assert_int_equal(cudnn_script.ran, fast ? 1 : 2);
        OK(convolve(on_boundary, e));
        assert_int_equal(cudnn_script.ran, 2);
        OK(convolve_back(on_boundary, e));
        assert_int_equal(cudnn_script.ran, 2);
        OK(convolve_weight(on_boundary, e));
        assert_int_equal(cudnn_script.ran, 2);
        assert_int_equal(cudnn_script.runs, 5);
        end();
    }
}

static void no_more_engines_are_tried_than_were_asked_for(void **state) {
    (void)state;
    begin(false);
    cudnn_script.engines = MAX_SCRIPT_ENGINES;
    for (int i = 0; i < MAX_SCRIPT_ENGINES; i++)
        cudnn_script.engine[i].plan = CUDNN_STATUS_NOT_SUPPORTED;
    OK(convolve(on_boundary, e));
    assert_int_equal(cudnn_script.plans, 16);
    assert_int_equal(by_columns, 1);
    end();
}

static void an_engine_that_wants_more_than_the_room_is_not_taken(void **state) {
    (void)state;
    const int64_t alignment = 256;
    for (int64_t more = 0; more <= 1; more++) {
        begin(false);
        cudnn_script.engine[0].workspace = CUDA_ATTENTION_FORWARD_ENGINE_BYTES - alignment + more;
        OK(forward(on_boundary, e));
        assert_int_equal(cudnn_script.runs, more ? 0 : 1);
        end();
        begin(false);
        cudnn_script.engine[0].workspace = (int64_t)cuda_convolution_engine_bytes(&convolution) - alignment + more;
        OK(convolve(on_boundary, e));
        OK(convolve_weight(on_boundary, e));
        assert_int_equal(cudnn_script.runs, more ? 0 : 2);
        end();
        begin(false);
        cudnn_script.engine[0].workspace = (int64_t)cuda_convolution_dx_engine_bytes(&convolution, KERNELS_BF16) -
                                           alignment + more;
        OK(convolve_back(on_boundary, e));
        assert_int_equal(cudnn_script.runs, more ? 0 : 1);
        end();
    }
}

static void only_what_is_on_boundaries_is_cudnns(void **state) {
    (void)state;
    begin(false);
    OK(forward(on_boundary, e));
    assert_int_equal(cudnn_script.runs, 1);
    OK(forward(off_boundary, e));
    OK(backward(off_boundary, e));
    assert_int_equal(cudnn_script.runs, 1);
    assert_int_equal(by_units, 2); /* the matrix units' kernels read lse number by number */
    OK(convolve(off_boundary, e));
    OK(convolve_weight(off_boundary, e));
    assert_int_equal(cudnn_script.runs, 1);
    assert_int_equal(by_columns, 2);
    OK(convolve(on_boundary, e));
    assert_int_equal(cudnn_script.runs, 2);
    end();
}

static void gradients_of_weights_are_elements_by_cudnn_and_fp32_by_columns(void **state) {
    (void)state;
    begin(false);
    OK(convolve_weight(on_boundary, e));
    assert_int_equal(cudnn_script.runs, 1);
    assert_int_equal(unpacked, KERNELS_BF16);
    OK(convolve_weight(off_boundary, e));
    assert_int_equal(by_columns, 1);
    assert_int_equal(unpacked, KERNELS_FP32);
    end();
}

/* Making a plan loads code, which may wait for all work on the device. */
static void plans_are_made_when_their_room_is_asked_for(void **state) {
    (void)state;
    begin(false);
    assert_int_equal(cuda_attention_prepare(&table.table, &attention),
                     cuda_attention_workspace(&table.table, &attention));
    assert_int_equal(cuda_convolution_prepare(&table.table, &convolution),
                     cuda_convolution_workspace(&table.table, &convolution));
    assert_int_equal(cudnn_script.plans, 5);
    OK(forward(on_boundary, e));
    OK(backward(on_boundary, e));
    OK(convolve(on_boundary, e));
    OK(convolve_back(on_boundary, e));
    OK(convolve_weight(on_boundary, e));
    assert_int_equal(cudnn_script.runs, 5);
    assert_int_equal(cudnn_script.plans, 5);
    end();
}

static void a_failure_to_make_them_is_returned_by_the_first_call(void **state) {
    struct err e = { "" };
    (void)state;
    begin(false);
    cudnn_script.engine[0].plan = CUDNN_STATUS_INTERNAL_ERROR;
    assert_true(cuda_attention_prepare(&table.table, &attention) > 0);
    assert_int_equal(forward(on_boundary, &e), ST_INTERNAL);
    end();
}

/* Attention with dropout never uses cuDNN, not even in evaluation, and gets no workspace of cuDNN. */
static void what_may_be_masked_is_not_cudnns(void **state) {
    struct attention_dims masked = attention;
    (void)state;
    begin(false);
    masked.masked = true;
    assert_int_equal(cuda_attention_workspace(&table.table, &masked), cuda_attention_totals_bytes(&masked));
    OK(cuda_attention_forward(&table.table, on_boundary, on_boundary, on_boundary, &masked, &no_dropout, workspace, e));
    assert_int_equal(cudnn_script.plans, 0);
    assert_int_equal(by_units, 1);
    end();
}

/* Returns whether all bytes are `value`. */
static bool are(const char *from, size_t bytes, int value) {
    size_t i = 0;
    while (i < bytes && (unsigned char)from[i] == value)
        i++;
    return i == bytes;
}

static const char *pointer_into_sums(void) {
    const char *sums = workspace + cuda_attention_totals_bytes(&attention);
    for (int64_t i = 0; i < cudnn_script.n; i++)
        if (cudnn_script.pointer[i] == sums)
            return sums;
    return NULL;
}

/* Atomic additions add to the old content. */
static void sums_are_cleared_for_a_cudnn_that_does_not_do_it_itself(void **state) {
    static const struct {
        size_t version;
        int before_it_runs;
    } all[] = { { 90100, 0 }, { 90501, 0 }, { 90600, 0xff }, { 91900, 0xff } };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        begin(true);
        const size_t bytes = cuda_attention_sums_bytes(&attention, true);
        assert_true(bytes >=
                    sizeof(float) * (size_t)(attention.batch * attention.heads * attention.time * attention.head));
        cudnn_script.version = all[i].version;
        OK(backward(on_boundary, e));
        assert_int_equal(cudnn_script.runs, 1);
        assert_non_null(pointer_into_sums());
        assert_true(are(pointer_into_sums(), bytes, all[i].before_it_runs));
        assert_true(are(workspace, cuda_attention_totals_bytes(&attention), 0xff));
        end();
    }
}

/* --- engines that are timed ---*/

static struct tuning_cache choices;

/* Three engines. The second is the fastest, and adds in any order. `record`: that of an earlier part of the run. */
static void begin_kept(bool timed, const char *record) {
    begin(timed);
    cudnn_script.engines = 3;
    for (int i = 0; i < cudnn_script.engines; i++)
        cudnn_script.engine[i].ms = 10 + i;
    cudnn_script.engine[1].ms = 5;
    cudnn_script.engine[1].nondeterministic = true;
    choices = (struct tuning_cache){ .device = "a device" };
    if (record)
        OK(tuning_cache_take(&choices, record, strlen(record), e));
    cudnn_use_tuning_cache(table.cudnn, &choices, timed);
}

static void begin_timed(const char *record) { begin_kept(true, record); }

static char *end_kept(void) {
    char *record = NULL;
    record = tuning_cache_write(&choices);
    tuning_cache_done(&choices);
    end();
    return record;
}

#define KEY " bf16 2 8 8 8 8 3 1 1 91900 "

static size_t forward_bytes(void) { return cuda_convolution_engine_bytes(&convolution); }

/* A record with an engine for the forward pass. */
static void record_of(const char *engine, size_t for_bytes, char ret[200]) {
    snprintf(ret, 200, "trainyard products 1\non a device\nconvolution" KEY "%zu %s\n", for_bytes, engine);
}

static void the_fastest_engine_is_chosen_once_for_each_pass_of_a_convolution(void **state) {
    (void)state;
    begin_timed(NULL);
    assert_true(cuda_convolution_prepare(&table.table, &convolution) > 0);
    assert_int_equal(cudnn_script.plans, 9); /* before the first step, and none is made in its midst */
    OK(convolve(on_boundary, e));
    assert_int_equal(cudnn_script.ran, 1);
    assert_true(cudnn_script.runs > 3);
    cudnn_script.runs = 0;
    cudnn_script.engine[0].ms = 1;
    OK(convolve(on_boundary, e));
    assert_int_equal(cudnn_script.ran, 1);
    assert_int_equal(cudnn_script.runs, 1);
    OK(convolve_back(on_boundary, e));
    OK(convolve_weight(on_boundary, e));
    assert_int_equal(cudnn_script.ran, 0);
    assert_int_equal(cudnn_script.plans, 9);
    CLEANUP(freep) char *record = end_kept();
    char want[400];
    snprintf(want, sizeof want,
             "trainyard products 1\non a device\nconvolution" KEY "%zu 1:2=101\nconvolution-input" KEY
             "%zu 0:2=100\nconvolution-weight" KEY "%zu 0:2=100\n",
             forward_bytes(), cuda_convolution_dx_engine_bytes(&convolution, KERNELS_BF16), forward_bytes());
    assert_string_equal(record, want);
}

static void a_resumed_run_takes_the_engines_of_its_record_and_times_nothing(void **state) {
    (void)state;
    begin_timed(NULL);
    OK(convolve(on_boundary, e));
    CLEANUP(freep) char *record = end_kept();
    begin_timed(record);
    cudnn_script.first = 2;
    cudnn_script.engine[1].ms = 30;
    OK(convolve(on_boundary, e));
    assert_int_equal(cudnn_script.ran, 1);
    assert_int_equal(cudnn_script.runs, 1);
    assert_int_equal(cudnn_script.plans, 1);
    CLEANUP(freep) char *again = end_kept();
    assert_string_equal(again, record);
    begin_timed(record);
    cudnn_script.version = 91901; /* whose engines are others */
    cudnn_script.engine[1].ms = 30;
    OK(convolve(on_boundary, e));
    assert_int_equal(cudnn_script.ran, 0);
    free(end_kept());
}

static void an_engine_of_the_record_that_is_not_here_is_one_sentence(void **state) {
    (void)state;
    struct err e = { "" };
    char record[200];
    record_of("1:2=7", forward_bytes(), record);
    begin_timed(record);
    assert_int_equal(convolve(on_boundary, &e), ST_FAILED_PRECONDITION);
    assert_string_equal(e.msg, "the run's record chose an engine of cuDNN's that is not here");
    free(end_kept());
}

/* Another build may give a shape another workspace. Then its engines are chosen again. */
static void an_engine_that_was_chosen_for_another_room_is_not_asked_for(void **state) {
    (void)state;
    char record[200];
    for (int i = -1; i <= 1; i += 2) {
        record_of("1:2=101", forward_bytes() + (size_t)(256 * i), record);
        begin_timed(record);
        cudnn_script.engine[1].workspace = (int64_t)forward_bytes();
        OK(convolve(on_boundary, e));
        assert_int_equal(cudnn_script.ran, 0);
        free(end_kept());
    }
}

/* An engine that was refused before may be available when the run resumes. */
static void an_engine_that_was_the_only_one_is_taken_again(void **state) {
    (void)state;
    begin_timed(NULL);
    cudnn_script.engine[1].plan = cudnn_script.engine[2].plan = CUDNN_STATUS_INTERNAL_ERROR;
    OK(convolve(on_boundary, e));
    assert_int_equal(cudnn_script.runs, 1);
    CLEANUP(freep) char *record = end_kept();
    begin_timed(record);
    OK(convolve(on_boundary, e));
    OK(convolve(on_boundary, e));
    assert_int_equal(cudnn_script.ran, 0);
    assert_int_equal(cudnn_script.runs, 2);
    CLEANUP(freep) char *again = end_kept();
    assert_string_equal(again, record);
}

static void where_bits_are_promised_nothing_is_timed_and_the_record_names_the_engines(void **state) {
    (void)state;
    begin_kept(false, NULL);
    cudnn_script.engine[0].plan = CUDNN_STATUS_INTERNAL_ERROR;
    cudnn_script.engine[1].nondeterministic = false;
    OK(convolve(on_boundary, e));
    OK(forward(on_boundary, e));
    OK(backward(on_boundary, e));
    assert_int_equal(cudnn_script.ran, 1);
    assert_int_equal(cudnn_script.runs, 3);
    CLEANUP(freep) char *record = end_kept();
    assert_non_null(strstr(record, "\nconvolution" KEY));
    assert_non_null(strstr(record, "\nattention bf16 2 40 4 4 16 1 0 0 91900 "));
    assert_non_null(strstr(record, "\nattention-backward bf16 2 40 4 4 16 1 0 0 91900 "));
    begin_kept(false, record); /* on a host where the first engine can be made */
    cudnn_script.engine[1].nondeterministic = false;
    OK(convolve(on_boundary, e));
    assert_int_equal(cudnn_script.ran, 1);
    OK(forward(on_boundary, e));
    assert_int_equal(cudnn_script.ran, 1);
    free(end_kept());
}

static void attentions_engines_are_timed_too(void **state) {
    (void)state;
    begin_timed(NULL);
    assert_true(cuda_attention_prepare(&table.table, &attention) > 0);
    assert_int_equal(cudnn_script.plans, 5); /* the second one's forward pass adds in any order */
    cudnn_script.engine[2].ms = 1;
    OK(forward(on_boundary, e));
    assert_int_equal(cudnn_script.ran, 2);
    OK(backward(on_boundary, e));
    assert_int_equal(cudnn_script.ran, 2);
    cudnn_script.engine[0].ms = 0;
    cudnn_script.runs = 0;
    OK(backward(on_boundary, e));
    assert_int_equal(cudnn_script.ran, 2);
    assert_int_equal(cudnn_script.runs, 1);
    assert_int_equal(cudnn_script.plans, 5);
    CLEANUP(freep) char *record = end_kept();
    begin_timed(record);
    OK(backward(on_boundary, e));
    assert_int_equal(cudnn_script.ran, 2);
    assert_int_equal(cudnn_script.runs, 1);
    free(end_kept());
}

/* The run began without an engine of cuDNN. It resumes with the own kernels, even if cuDNN now has one. */
static void that_cudnn_had_no_engine_is_recorded_and_stays_so(void **state) {
    (void)state;
    begin_kept(false, NULL);
    cudnn_script.engines = 0;
    OK(forward(on_boundary, e));
    assert_int_equal(by_units, 1);
    CLEANUP(freep) char *record = end_kept();
    assert_non_null(strstr(record, " -\n"));
    begin_kept(false, record);
    OK(forward(on_boundary, e));
    assert_int_equal(by_units, 1);
    assert_int_equal(cudnn_script.runs, 0);
    CLEANUP(freep) char *again = end_kept();
    assert_string_equal(again, record);
}

/* If another engine cannot be made or run, only that engine is lost. */
static void an_engine_that_fails_while_it_is_timed_is_not_chosen(void **state) {
    (void)state;
    begin_timed(NULL);
    cudnn_script.engine[1].run = CUDNN_STATUS_EXECUTION_FAILED;
    cudnn_script.engine[2].plan = CUDNN_STATUS_INTERNAL_ERROR;
    OK(convolve(on_boundary, e));
    assert_int_equal(cudnn_script.ran, 0);
    free(end_kept());
    begin_timed(NULL);
    for (int i = 0; i < cudnn_script.engines; i++)
        cudnn_script.engine[i].run = CUDNN_STATUS_EXECUTION_FAILED;
    assert_int_equal(convolve(on_boundary, NULL), ST_INTERNAL);
    free(end_kept());
}

static void twelve_engines_are_timed_at_most(void **state) {
    (void)state;
    begin_timed(NULL);
    cudnn_script.engines = 14;
    OK(convolve(on_boundary, e));
    assert_int_equal(cudnn_script.plans, 12);
    free(end_kept());
}

static void a_cudnn_that_does_not_start_is_reported(void **state) {
    (void)state;
    struct cudnn *c = NULL;
    struct err e = { "" };
    cudnn_script = (struct cudnn_script){ .create = CUDNN_STATUS_INTERNAL_ERROR };
    assert_int_equal(cudnn_open(NULL, &c, &e), ST_INTERNAL);
    assert_null(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cudnn_does_not_support_is_left_to_the_own_kernels),
        cmocka_unit_test(every_other_failure_of_cudnn_is_reported),
        cmocka_unit_test(an_engine_that_cannot_be_made_gives_way_to_the_next),
        cmocka_unit_test(an_engine_whose_library_is_missing_does_not_give_way),
        cmocka_unit_test(the_first_engine_that_will_do_is_taken),
        cmocka_unit_test(no_more_engines_are_tried_than_were_asked_for),
        cmocka_unit_test(an_engine_that_wants_more_than_the_room_is_not_taken),
        cmocka_unit_test(only_what_is_on_boundaries_is_cudnns),
        cmocka_unit_test(gradients_of_weights_are_elements_by_cudnn_and_fp32_by_columns),
        cmocka_unit_test(plans_are_made_when_their_room_is_asked_for),
        cmocka_unit_test(a_failure_to_make_them_is_returned_by_the_first_call),
        cmocka_unit_test(what_may_be_masked_is_not_cudnns),
        cmocka_unit_test(sums_are_cleared_for_a_cudnn_that_does_not_do_it_itself),
        cmocka_unit_test(the_fastest_engine_is_chosen_once_for_each_pass_of_a_convolution),
        cmocka_unit_test(a_resumed_run_takes_the_engines_of_its_record_and_times_nothing),
        cmocka_unit_test(an_engine_of_the_record_that_is_not_here_is_one_sentence),
        cmocka_unit_test(an_engine_that_was_chosen_for_another_room_is_not_asked_for),
        cmocka_unit_test(an_engine_that_was_the_only_one_is_taken_again),
        cmocka_unit_test(where_bits_are_promised_nothing_is_timed_and_the_record_names_the_engines),
        cmocka_unit_test(attentions_engines_are_timed_too),
        cmocka_unit_test(that_cudnn_had_no_engine_is_recorded_and_stays_so),
        cmocka_unit_test(an_engine_that_fails_while_it_is_timed_is_not_chosen),
        cmocka_unit_test(twelve_engines_are_timed_at_most),
        cmocka_unit_test(a_cudnn_that_does_not_start_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
