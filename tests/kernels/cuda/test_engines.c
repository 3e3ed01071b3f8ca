/* cuDNN without a device: whether it has an engine for the shapes of known models on sm_80 and sm_90, and whether the
 * engine fits into the workspace that workspace.h gives the shape on any device. Engines are compiled completely;
 * libcuda.c is the driver. Skipped if cuDNN or the compiler is missing. */
#include "kernels/cuda/lib/attention_cudnn.h"
#include "kernels/cuda/lib/convolution_cudnn.h"
#include "kernels/cuda/lib/cudnn_library.h"
#include "kernels/cuda/workspace.h"
#include "tests/kernels/cuda/presets.h"
#include "tests/kernels/tensor.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* As cudnnBackendGetAttribute(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION) writes them. */
static const struct described {
    const char *name, *properties;
} devices[] = {
#define PROPERTIES(version, processors, shared, memory, l2, name)                                                      \
    "{\"descriptorType\":\"DEVICEPROP\",\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"     \
    "\"regsPerBlock\":65536,\"multiProcessorCount\":" processors ",\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152," \
    "\"maxSharedMemoryPerBlockOptin\":" shared ",\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,"   \
    "\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"    \
    "\"supportCoopLaunch\":1,\"totalGlobalMem\":" memory ",\"smClockRateKHz\":1400000,\"memClockRateKHz\":1593000,"    \
    "\"l2CacheSize\":" l2 ",\"cudaDeviceId\":0,\"deviceVer\":" version ",\"driverVer\":13000,"                         \
    "\"deviceName\":\"" name "\"}"
    { "sm_80", PROPERTIES("800", "108", "166912", "85899345920", "41943040", "NVIDIA A100") },
    { "sm_90", PROPERTIES("900", "132", "232448", "150754820096", "62914560", "NVIDIA H200") },
};

#define COMPILER "libnvrtc.so.13"

enum { LARGE_BATCH = 256, LARGER_BATCH = 512, COLOURS = 3 };

static struct cudnn *open_or_skip(const struct described *d) {
    struct cudnn *c = NULL;
    struct err e = { { 0 } };
    const status_t st = cudnn_open_deviceless(d->properties, &c, &e);
    if (st == ST_FAILED_PRECONDITION || !dlopen(COMPILER, RTLD_NOW)) {
        print_message("%s\n", st == ST_OK ? "no " COMPILER ", with which cuDNN compiles its engines" : e.msg);
        cudnn_close(c);
        skip();
    }
    if (st != ST_OK)
        fail_msg("%s: %s", d->name, e.msg);
    return c;
}

static void attention(struct cudnn *c, const char *device, const char *preset, const struct attention_dims *d) {
    for (int fast = 0; fast <= 1; fast++) {
        const struct attention_cudnn a = { .dims = *d, .precision = KERNELS_BF16, .fast = fast };
        struct err e = { { 0 } };
        assert_true(cuda_attention_engine_bytes(d, KERNELS_BF16, fast) > 0);
        if (attention_cudnn_find(c, &a, &e) != ST_OK)
            fail_msg("%s, %s: attention %lld x %lld of %lld: %s", device, preset, (long long)d->heads,
                     (long long)d->head, (long long)d->time, e.msg);
    }
}

static void convolution(struct cudnn *c, const char *device, const char *preset, const struct convolution_dims *d,
                        enum kernels_precision precision) {
    struct err e = { { 0 } };
    for (int pass = CONVOLUTION_FORWARD; pass < CONVOLUTION_PASSES; pass++) {
        if (pass == CONVOLUTION_BACKWARD_INPUT && d->in == COLOURS)
            continue; /* the gradient of images is not used */
        if (convolution_cudnn_find(c, (enum convolution_pass)pass, precision, d, &e) != ST_OK)
            fail_msg("%s, %s, %s: convolution %lld x %lld of %lld x %lld to %lld channels, pass %d: %s", device, preset,
                     precision_name(precision), (long long)d->kernel, (long long)d->kernel, (long long)d->batch,
                     (long long)d->in, (long long)d->out, pass, e.msg);
    }
}

/* Also with as many images as fill a large device: an engine's workspace mostly grows with them, especially if it
 * copies an image with padded channels. */
static void convolution_at_sizes(struct cudnn *c, const char *device, const char *preset,
                                 const struct convolution_dims *d) {
    struct convolution_dims large = *d;
    for (int precision = KERNELS_BF16; precision <= KERNELS_FP16; precision++) {
        convolution(c, device, preset, d, (enum kernels_precision)precision);
        large.batch = LARGE_BATCH;
        convolution(c, device, preset, &large, (enum kernels_precision)precision);
        large.batch = LARGER_BATCH;
        if (d->in == COLOURS)
            convolution(c, device, preset, &large, (enum kernels_precision)precision);
    }
}

static void cudnn_has_an_engine_within_the_room_for_every_shape_of_known_models(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        struct cudnn *c = open_or_skip(&devices[i]);
        int attentions = 0, convolutions = 0;
        for (int p = 0; p < preset_count(); p++) {
            struct preset_shapes s;
            preset_shapes(p, &s);
            for (int j = 0; j < s.n_attention; j++)
                attention(c, devices[i].name, preset_name(p), &s.attention[j]);
            for (int j = 0; j < s.n_convolution; j++)
                convolution_at_sizes(c, devices[i].name, preset_name(p), &s.convolution[j]);
            attentions += s.n_attention;
            convolutions += s.n_convolution;
        }
        print_message("%s: cuDNN %zu has engines for %d attentions and %d convolutions\n", devices[i].name,
                      cudnn_version(c), attentions, convolutions);
        cudnn_close(c);
    }
}

/* Score matrices that are not whole tiles, few positions, query heads that share keys: shapes that easily exceed a
 * bound. */
static void engines_for_odd_shapes_fit_too(void **state) {
    static const struct attention_dims odd[] = {
        { .batch = 2, .time = 1, .heads = 2, .kv_heads = 2, .head = 8, .causal = true },
        { .batch = 3, .time = 37, .heads = 2, .kv_heads = 1, .head = 8, .causal = true },
        { .batch = 2, .time = 129, .heads = 6, .kv_heads = 2, .head = 40, .causal = false },
        { .batch = 2, .time = 1000, .heads = 3, .kv_heads = 1, .head = 40, .causal = true },
        { .batch = 1, .time = 2049, .heads = 8, .kv_heads = 8, .head = 128, .causal = true },
        { .batch = 16, .time = 197, .heads = 12, .kv_heads = 12, .head = 64, .causal = false },
    };
    (void)state;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        struct cudnn *c = open_or_skip(&devices[i]);
        for (size_t j = 0; j < sizeof odd / sizeof *odd; j++)
            attention(c, devices[i].name, "odd", &odd[j]);
        cudnn_close(c);
    }
}

/* Shapes without an engine must return UNIMPLEMENTED each time, so that the table can fall back. */
static void a_shape_without_engine_is_reported(void **state) {
    (void)state;
    struct cudnn *c = open_or_skip(&devices[0]);
    const struct attention_cudnn wide = { .dims = { .batch = 2, .time = 64, .heads = 2, .kv_heads = 2, .head = 192 },
                                          .precision = KERNELS_BF16 };
    for (int i = 0; i < 2; i++) {
        struct err e = { { 0 } };
        assert_int_equal(attention_cudnn_find(c, &wide, &e), ST_UNIMPLEMENTED);
        assert_true(strlen(e.msg) > 0);
    }
    cudnn_close(c);
}

static void choose_by_time(struct cudnn *c, struct tuning_cache *table) {
    *table = (struct tuning_cache){ .device = "a device, fast" };
    cudnn_use_tuning_cache(c, table, true);
}

/* With a newly opened library, as in a resumed run. */
static void assert_found_by_name(const struct cudnn_key *key, const char *name) {
    struct cudnn *c = open_or_skip(&devices[1]);
    struct tuning_cache table;
    struct err why = { { 0 } };
    const int64_t *n = key->dims;
    const struct convolution_dims d = { .batch = n[0],
                                        .height = n[1],
                                        .width = n[2],
                                        .in = n[3],
                                        .out = n[4],
                                        .kernel = n[5],
                                        .stride = n[6],
                                        .padding = n[7] };
    const enum engine_pass pass = (enum engine_pass)(key->pass - CUDNN_CONVOLUTION_FORWARD);
    struct engine_choice choice = { .pass = pass,
                                    .precision = key->precision,
                                    .version = (int64_t)cudnn_version(c),
                                    .workspace_bytes = key->workspace_bytes };
    memcpy(choice.dims, n, sizeof choice.dims);
    snprintf(choice.name, sizeof choice.name, "%s", name);
    choose_by_time(c, &table);
    OK(tuning_cache_add_engine(&table, &choice, e));
    if (convolution_cudnn_find(c, (enum convolution_pass)pass, key->precision, &d, &why) != ST_OK)
        fail_msg("%s: %s", name, why.msg);
    const struct cudnn_plan *found = c->entries[0].plan;
    assert_non_null(found);
    assert_string_equal(found->engine, name);
    assert_null(found->next);
    cudnn_close(c);
    tuning_cache_done(&table);
}

/* A record identifies engines by name. Each name must give the same engine again. */
static void engines_that_would_be_timed_are_found_by_names_of_their_own(void **state) {
    static const struct convolution_dims shapes[] = {
        { .batch = 256, .height = 224, .width = 224, .in = 3, .out = 64, .kernel = 7, .stride = 2, .padding = 3 },
        { .batch = 256, .height = 56, .width = 56, .in = 64, .out = 64, .kernel = 3, .stride = 1, .padding = 1 },
        { .batch = 256, .height = 56, .width = 56, .in = 256, .out = 512, .kernel = 1, .stride = 2, .padding = 0 },
    };
    (void)state;
    struct cudnn *c = open_or_skip(&devices[1]);
    struct tuning_cache table;
    struct err e = { { 0 } };
    int several = 0;
    choose_by_time(c, &table);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int pass = CONVOLUTION_FORWARD; pass < CONVOLUTION_PASSES; pass++)
            if (!(pass == CONVOLUTION_BACKWARD_INPUT && shapes[i].in == COLOURS) &&
                convolution_cudnn_find(c, (enum convolution_pass)pass, KERNELS_BF16, &shapes[i], &e) != ST_OK)
                fail_msg("shape %zu, pass %d: %s", i, pass, e.msg);
    for (int i = 0; i < CUDNN_MAX_PLANS; i++)
        for (const struct cudnn_plan *p = c->entries[i].plan; p; p = p->next) {
            assert_true(strlen(p->engine) > 2);
            several += p->next != NULL;
            assert_found_by_name(&c->entries[i].key, p->engine);
            for (const struct cudnn_plan *other = p->next; other; other = other->next)
                assert_string_not_equal(p->engine, other->engine);
        }
    assert_true(several > 0);
    cudnn_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cudnn_has_an_engine_within_the_room_for_every_shape_of_known_models),
        cmocka_unit_test(engines_for_odd_shapes_fit_too),
        cmocka_unit_test(a_shape_without_engine_is_reported),
        cmocka_unit_test(engines_that_would_be_timed_are_found_by_names_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
