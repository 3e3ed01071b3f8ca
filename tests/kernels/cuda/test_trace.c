/* CUPTI's records become a trace. Its size stays bounded, whatever CUPTI delivers. */
#include "base/clock.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/lib/kernel_name.h"
#include "kernels/trace.h"
#include "tests/kernels/cuda/libcupti.h"
#include "tests/kernels/tensor.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { FORWARD = 5 }; /* a mark */

/* --- finding the library --- */

static const char *found; /* the end of the path of the only file that exists; NULL: none */
static char asked[600];

void *__real_dlopen(const char *file, int flags);
void *__wrap_dlopen(const char *file, int flags);
void *__wrap_dlopen(const char *file, int flags) {
    if (!strstr(file, "libcupti"))
        return __real_dlopen(file, flags);
    const size_t n = strlen(asked);
    snprintf(asked + n, sizeof asked - n, "%s\n", file);
    const bool here = found && strcmp(file, found) == 0;
    return __real_dlopen(here ? CUPTI_STAND_IN : "/nowhere/libcupti.so", flags);
}

static struct cupti_script *script(void) {
    static struct cupti_script *loaded;
    if (!loaded) {
        void *library = __real_dlopen(CUPTI_STAND_IN, RTLD_NOW);
        loaded = library ? dlsym(library, "cupti_script") : NULL;
    }
    if (!loaded)
        abort();
    return loaded;
}

static char soname[32];

static void refused(const char *why_begins) {
    struct trace *t = NULL;
    struct err why = { "" };
    assert_int_equal(cuda_trace.open(10, &t, &why), ST_FAILED_PRECONDITION);
    assert_null(t);
    if (strncmp(why.msg, why_begins, strlen(why_begins)) != 0)
        fail_msg("\"%s\" does not begin \"%s\"", why.msg, why_begins);
}

/* Must be the first test: a loaded library stays loaded. */
static void the_library_is_searched_in_the_usual_places_and_must_have_this_version(void **state) {
    (void)state;
    char want[600];
    snprintf(want, sizeof want,
             "%s\n/home/extras/CUPTI/lib64/%s\n/home/lib64/%s\n/home/lib/%s\n/path/extras/CUPTI/lib64/%s\n"
             "/path/lib64/%s\n/path/lib/%s\n/usr/local/cuda/extras/CUPTI/lib64/%s\n/usr/local/cuda/lib64/%s\n"
             "/usr/local/cuda/lib/%s\n",
             soname, soname, soname, soname, soname, soname, soname, soname, soname, soname);
    setenv("CUDA_HOME", "/home", 1);
    setenv("CUDA_PATH", "/path", 1);
    refused("CUPTI cannot be loaded: ");
    assert_string_equal(asked, want);
    unsetenv("CUDA_PATH");
    static char last[80];
    snprintf(last, sizeof last, "/usr/local/cuda/lib64/%s", soname);
    found = last;
    script()->version = 28;
    refused("this host's CUPTI is of version 0.0, and this build reads ");
    script()->version = CUPTI_API_VERSION + 10000;
    refused("this host's CUPTI is of version ");
    script()->version = CUPTI_API_VERSION + 100;
    script()->registers = CUPTI_ERROR_UNKNOWN;
    refused("registering with CUPTI: an error without a name");
    script()->registers = CUPTI_ERROR_INVALID_DEVICE;
    refused("registering with CUPTI: an error without a name");
    found = NULL;
    script()->registers = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    refused("registering with CUPTI: somebody else profiles"); /* it was loaded before */
    script()->registers = CUPTI_SUCCESS;
}

/* --- its records --- */

struct records {
    size_t bytes;
    uint8_t data[TRACE_BUFFER_BYTES];
};

static struct records *records_new(void) {
    struct records *r = calloc(1, sizeof *r);
    if (!r)
        abort();
    return r;
}

static void add(struct records *r, const void *record, size_t bytes) {
    assert_true(r->bytes + bytes <= sizeof r->data);
    memcpy(r->data + r->bytes, record, bytes);
    r->bytes += bytes;
}

static void add_kernel(struct records *r, const char *name, uint64_t start, uint64_t end, uint32_t call) {
    add(r,
        &(CUpti_ActivityKernel10){ .kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                   .start = start,
                                   .end = end,
                                   .streamId = 13,
                                   .correlationId = call,
                                   .name = name },
        sizeof(CUpti_ActivityKernel10));
}

static void add_link(struct records *r, CUpti_ExternalCorrelationKind kind, uint64_t mark, uint32_t call) {
    add(r,
        &(CUpti_ActivityExternalCorrelation){ .kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
                                              .externalKind = kind,
                                              .externalId = mark,
                                              .correlationId = call },
        sizeof(CUpti_ActivityExternalCorrelation));
}

static struct trace *opened(int64_t max_runs) {
    struct trace *t = NULL;
    *script() = (struct cupti_script){
        .version = CUPTI_API_VERSION, .wanted = script()->wanted, .full = script()->full, .clock = script()->clock
    };
    OK(cuda_trace.open(max_runs, &t, e));
    OK(cuda_trace.begin(t, e));
    return t;
}

/* One flush that delivers the records, of which this many bytes are valid. Returns the number of lost ones. */
static int64_t delivered(struct trace *t, struct records *r, size_t valid, const struct trace_run **ret,
                         int64_t *ret_n) {
    int64_t lost = -1;
    script()->records = r->data;
    script()->bytes = r->bytes;
    script()->valid = valid;
    OK(cuda_trace.end(t, e));
    free(r);
    cuda_trace.read(t, ret, ret_n, &lost);
    return lost;
}

static void check_run(const struct trace_run *run, const char *name, int64_t start, int64_t end, int64_t mark,
                      uint32_t stream) {
    assert_string_equal(run->name, name);
    assert_int_equal(run->start_ns, start);
    assert_int_equal(run->end_ns, end);
    assert_int_equal(run->mark, mark);
    assert_int_equal(run->stream, stream);
}

static void kernels_copies_and_fills_have_their_names_times_and_marks(void **state) {
    (void)state;
    struct trace *t = opened(10);
    struct records *r = records_new();
    add_kernel(r, "_ZN12_GLOBAL__N_117layernorm_forwardI13__nv_bfloat16EEvPT_PKS2_ll", 100, 250, 77);
    add(r, &(CUpti_ActivityAPI){ .kind = CUPTI_ACTIVITY_KIND_RUNTIME, .correlationId = 77 }, sizeof(CUpti_ActivityAPI));
    add_link(r, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, FORWARD, 77); /* in another buffer it may come before */
    add_link(r, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1, 99, 78);      /* somebody else's */
    add(r,
        &(CUpti_ActivityMemcpy6){ .kind = CUPTI_ACTIVITY_KIND_MEMCPY,
                                  .copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_DTOH,
                                  .start = 300,
                                  .end = 310,
                                  .streamId = 14,
                                  .correlationId = 78 },
        sizeof(CUpti_ActivityMemcpy6));
    add(r, &(CUpti_ActivityMemset4){ .kind = CUPTI_ACTIVITY_KIND_MEMSET, .start = 320, .end = 321, .correlationId = 3 },
        sizeof(CUpti_ActivityMemset4));
    add_link(r, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, UINT64_MAX - 5, 3); /* nor is this a mark */
    add_kernel(r, NULL, 330, 330, 79);
    const struct trace_run *runs;
    int64_t n, lost;
    assert_int_equal(delivered(t, r, r->bytes, &runs, &n), 0);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(n, 4);
        check_run(&runs[0], "layernorm_forward<__nv_bfloat16>", 100, 250, FORWARD, 13);
        check_run(&runs[1], "copy to the host", 300, 310, -1, 14);
        check_run(&runs[2], "fill", 320, 321, -1, 0);
        check_run(&runs[3], "unnamed", 330, 330, -1, 13);
        cuda_trace.read(t, &runs, &n, &lost);
    }
    cuda_trace.close(t);
}

static void calls_are_marked_and_nothing_is_traced_but_between_begin_and_end(void **state) {
    (void)state;
    static const CUpti_ActivityKind KINDS[] = {
        CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER,
        CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,    CUPTI_ACTIVITY_KIND_MEMCPY,  CUPTI_ACTIVITY_KIND_MEMSET
    };
    struct trace *t = opened(10), *second = NULL;
    struct err why;
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        assert_true(script()->enabled[KINDS[i]]);
    const int64_t before = clock_mono_ns(), now = (int64_t)script()->clock();
    assert_true(before <= now && now <= clock_mono_ns());
    cuda_trace.mark(t, 3);
    cuda_trace.unmark(t);
    cuda_trace.mark(t, 4);
    cuda_trace.unmark(t);
    assert_true(script()->n_pushed == 2 && script()->pushed[0] == 3 && script()->pushed[1] == 4);
    assert_int_equal(script()->n_open, 0);
    assert_int_equal(cuda_trace.open(10, &second, &why), ST_FAILED_PRECONDITION);
    assert_string_equal(why.msg, "this process is traced already");
    script()->flushes = CUPTI_ERROR_NOT_INITIALIZED;
    assert_int_equal(cuda_trace.end(t, &why), ST_FAILED_PRECONDITION);
    assert_string_equal(why.msg, "collecting what was traced: somebody else profiles");
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        assert_false(script()->enabled[KINDS[i]]);
    script()->refused = CUPTI_ACTIVITY_KIND_MEMCPY;
    assert_int_equal(cuda_trace.begin(t, &why), ST_FAILED_PRECONDITION);
    assert_string_equal(why.msg, "beginning to trace: somebody else profiles");
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        assert_false(script()->enabled[KINDS[i]]);
    assert_null(cuda_trace.close(t));
    assert_null(cuda_trace.close(NULL));
}

static void a_record_that_is_cut_off_ends_its_buffer(void **state) {
    (void)state;
    for (size_t cut = 1; cut <= sizeof(CUpti_ActivityKernel10); cut += 40) {
        struct trace *t = opened(10);
        struct records *r = records_new();
        const struct trace_run *runs;
        int64_t n;
        add_kernel(r, "whole", 1, 2, 1);
        add_kernel(r, "cut", 3, 4, 2);
        script()->walk = CUPTI_RUNS_ON;
        assert_int_equal(delivered(t, r, r->bytes - cut, &runs, &n), 1);
        assert_int_equal(n, 1);
        assert_string_equal(runs[0].name, "whole");
        cuda_trace.close(t);
    }
}

static void what_is_said_to_be_valid_beyond_its_buffer_is_not_read(void **state) {
    (void)state;
    struct trace *t = opened(1 << 16);
    struct records *r = records_new();
    const struct trace_run *runs;
    int64_t n;
    while (r->bytes + sizeof(CUpti_ActivityKernel10) + 1000 <= sizeof r->data)
        add_kernel(r, "kernel", 1, 2, 1);
    const int64_t whole = (int64_t)(r->bytes / sizeof(CUpti_ActivityKernel10));
    while ((sizeof r->data - r->bytes) % sizeof(CUpti_ActivityExternalCorrelation) != 0)
        add(r, &(CUpti_ActivityAPI){ .kind = CUPTI_ACTIVITY_KIND_RUNTIME }, sizeof(CUpti_ActivityAPI));
    while (r->bytes < sizeof r->data) /* up to its last byte: whoever goes on is beyond it */
        add_link(r, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, FORWARD, 1);
    script()->walk = CUPTI_RUNS_ON;
    assert_int_equal(delivered(t, r, SIZE_MAX / 2, &runs, &n), 1);
    assert_int_equal(n, whole);
    cuda_trace.close(t);
}

static void records_without_an_end_are_not_read_forever(void **state) {
    (void)state;
    struct trace *t = opened(10);
    struct records *r = records_new();
    const struct trace_run *runs;
    int64_t n;
    add_kernel(r, "kernel", 1, 2, 1);
    script()->walk = CUPTI_STANDS;
    assert_int_equal(delivered(t, r, r->bytes, &runs, &n), 1);
    assert_int_equal(n, 1);
    cuda_trace.close(t);
}

static void a_record_of_no_known_kind_ends_its_buffer_and_is_lost(void **state) {
    (void)state;
    struct trace *t = opened(10);
    struct records *r = records_new();
    const struct trace_run *runs;
    int64_t n;
    add_kernel(r, "kernel", 1, 2, 1);
    add(r, &(CUpti_Activity){ .kind = (CUpti_ActivityKind)12345 }, sizeof(CUpti_Activity));
    assert_int_equal(delivered(t, r, r->bytes, &runs, &n), 1);
    assert_int_equal(n, 1);
    cuda_trace.close(t);
}

static void what_was_dropped_or_has_no_times_is_lost(void **state) {
    (void)state;
    struct trace *t = opened(10);
    struct records *r = records_new();
    const struct trace_run *runs;
    int64_t n;
    add_kernel(r, "untimed", 0, 0, 1);
    add_kernel(r, "backwards", 5, 4, 1);
    add_kernel(r, "beyond", 5, UINT64_MAX, 1);
    add_kernel(r, "kernel", 5, 5, 1);
    script()->dropped = 40;
    assert_int_equal(delivered(t, r, r->bytes, &runs, &n), 43);
    assert_int_equal(n, 1);
    assert_string_equal(runs[0].name, "kernel");
    OK(cuda_trace.begin(t, e));
    script()->dropped = SIZE_MAX;
    r = records_new();
    assert_int_equal(delivered(t, r, 0, &runs, &n), 43 + (int64_t)INT32_MAX);
    cuda_trace.close(t);
}

static void more_kernels_names_and_marks_than_there_is_room_for_are_lost_or_others(void **state) {
    (void)state;
    enum { MORE = TRACE_NAMES + 20 };
    static char names[MORE][24];
    struct trace *t = opened(MORE - 5);
    struct records *r = records_new();
    const struct trace_run *runs;
    int64_t n;
    for (int i = 0; i < MORE; i++) {
        snprintf(names[i], sizeof names[i], "kernel_%d", i);
        add_kernel(r, names[i], 1, 2, 1);
    }
    for (int i = 0; i < 5 * MORE; i++)
        add_link(r, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, FORWARD, 1);
    add_link(r, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, UINT64_MAX, 1);
    assert_int_equal(delivered(t, r, r->bytes, &runs, &n), 5);
    assert_int_equal(n, MORE - 5);
    assert_string_equal(runs[TRACE_NAMES - 1].name, names[TRACE_NAMES - 1]);
    assert_string_equal(runs[TRACE_NAMES].name, "other");
    assert_int_equal(runs[0].mark, FORWARD);
    cuda_trace.close(t);
}

static void so_many_buffers_are_given_and_what_comes_late_is_let_go(void **state) {
    (void)state;
    struct trace *t = opened(10);
    uint8_t *buffers[TRACE_BUFFERS + 1], mine[8] = { 0 };
    size_t size, most;
    for (int i = 0; i <= TRACE_BUFFERS; i++) {
        size = most = 99;
        script()->wanted(&buffers[i], &size, &most);
        assert_int_equal(most, 0);
        assert_int_equal(size, i < TRACE_BUFFERS ? TRACE_BUFFER_BYTES : 0);
        for (int j = 0; j < i; j++)
            assert_ptr_not_equal(buffers[i], buffers[j]);
    }
    assert_null(buffers[TRACE_BUFFERS]);
    script()->dropped = 1;
    script()->full(NULL, 0, mine, sizeof mine, sizeof mine); /* none of ours: not even looked at */
    assert_int_equal(script()->dropped, 1);
    cuda_trace.close(t);
    for (int i = 0; i < TRACE_BUFFERS; i++)
        script()->full(NULL, 0, buffers[i], TRACE_BUFFER_BYTES, 8);
    assert_int_equal(script()->dropped, 1);
    t = opened(10);
    script()->wanted(&buffers[0], &size, &most);
    assert_non_null(buffers[0]);
    script()->full(NULL, 0, buffers[0], TRACE_BUFFER_BYTES, 0);
    cuda_trace.close(t);
}

/* --- names ---*/

static void names_are_as_in_the_source_without_results_and_parameters(void **state) {
    (void)state;
    static const struct {
        const char *symbol, *name;
    } NAMES[] = {
        { "_ZN7cutlass7Kernel2I20cutlass_80_gemm_reluEEvNT_6ParamsE", "cutlass::Kernel2<cutlass_80_gemm_relu>" },
        { "_ZN12_GLOBAL__N_14fillEPffl", "fill" },
        { "_Z3addPfS_PFviE", "add" },
        { "sm90_xmma_gemm_bf16bf16_f32_tn_n", "sm90_xmma_gemm_bf16bf16_f32_tn_n" },
        { "_Znot_a_symbol", "_Znot_a_symbol" },
        { "", "" },
        { "a\"b\nc\xff", "a\"b?c?" },
    };
    char name[TRACE_NAME_BYTES];
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        cuda_kernel_name(NAMES[i].symbol, name, sizeof name);
        assert_string_equal(name, NAMES[i].name);
    }
    cuda_kernel_name("0123456789abcdefghijklmnopqrstuvwxyz", name, 17);
    assert_string_equal(name, "01234567...vwxyz");
}

static void a_symbol_that_is_long_or_stands_for_a_long_name_stays_one(void **state) {
    (void)state;
    char name[TRACE_NAME_BYTES], symbol[5000], letters[5000];
    memset(letters, 'a', sizeof letters);
    snprintf(symbol, sizeof symbol, "_Z1000%.1000sv", letters);
    cuda_kernel_name(symbol, name, sizeof name);
    assert_int_equal(strlen(name), TRACE_NAME_BYTES - 1);
    assert_int_equal(strncmp(name, "aaaa", 4), 0);
    snprintf(symbol, sizeof symbol, "_Z4100%.4100sv", letters);
    cuda_kernel_name(symbol, name, sizeof name);
    assert_int_equal(strlen(name), TRACE_NAME_BYTES - 1);
    assert_int_equal(strncmp(name, "_Z4100aaaa", 10), 0);
    /* pair<int, int>, a pair of two of these, and so on: each name is twice as long. */
    for (int pairs = 2; pairs <= 14; pairs += 12) {
        size_t n = (size_t)snprintf(symbol, sizeof symbol, "_Z1fSt4pairIiiE");
        for (int i = 0; i < pairs; i++)
            n += (size_t)snprintf(symbol + n, sizeof symbol - n, "S_IS%c_S%c_E", "0123456789ABCDE"[i],
                                  "0123456789ABCDE"[i]);
        cuda_kernel_name(symbol, name, sizeof name);
        assert_int_equal(strncmp(name, pairs == 2 ? "f" : "_Z1fSt4pairIiiE", pairs == 2 ? 2 : 15), 0);
    }
}

int main(void) {
    snprintf(soname, sizeof soname, "libcupti.so.%d", CUPTI_API_VERSION / 10000);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_library_is_searched_in_the_usual_places_and_must_have_this_version),
        cmocka_unit_test(kernels_copies_and_fills_have_their_names_times_and_marks),
        cmocka_unit_test(calls_are_marked_and_nothing_is_traced_but_between_begin_and_end),
        cmocka_unit_test(a_record_that_is_cut_off_ends_its_buffer),
        cmocka_unit_test(what_is_said_to_be_valid_beyond_its_buffer_is_not_read),
        cmocka_unit_test(records_without_an_end_are_not_read_forever),
        cmocka_unit_test(a_record_of_no_known_kind_ends_its_buffer_and_is_lost),
        cmocka_unit_test(what_was_dropped_or_has_no_times_is_lost),
        cmocka_unit_test(more_kernels_names_and_marks_than_there_is_room_for_are_lost_or_others),
        cmocka_unit_test(so_many_buffers_are_given_and_what_comes_late_is_let_go),
        cmocka_unit_test(names_are_as_in_the_source_without_results_and_parameters),
        cmocka_unit_test(a_symbol_that_is_long_or_stands_for_a_long_name_stays_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
