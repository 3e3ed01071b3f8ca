#include "tests/kernels/tensor.h"

#include "kernels/philox.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

float *tensor_new(int64_t n) {
    void *p = NULL;
    if (posix_memalign(&p, 64, (size_t)(n < 1 ? 1 : n) * sizeof(float)))
        abort();
    return p;
}

/* Numbers 4 block to 4 block + 3 of this seed's sequence. */
static void four_numbers(uint64_t seed, int64_t block, uint32_t ret[4]) {
    const uint32_t counter[4] = { (uint32_t)block, (uint32_t)(block >> 32), 0, 0 };
    philox4x32_10(counter, seed, ret);
}

float *tensor_random(int64_t n, uint64_t seed, float scale) {
    float *a = tensor_new(n);
    uint32_t four[4];
    for (int64_t i = 0; i < n; i++) {
        if (i % 4 == 0)
            four_numbers(seed, i / 4, four);
        a[i] = ((float)(four[i % 4] >> 8) / 8388608.0f - 1.0f) * scale;
    }
    return a;
}

float *tensor_copy(const float *a, int64_t n) {
    float *b = tensor_new(n);
    memcpy(b, a, (size_t)n * sizeof *a);
    return b;
}

int32_t *tokens_random(int64_t n, uint64_t seed, int32_t vocabulary) {
    int32_t *t = (int32_t *)tensor_new(n);
    uint32_t four[4];
    for (int64_t i = 0; i < n; i++) {
        if (i % 4 == 0)
            four_numbers(seed, i / 4, four);
        t[i] = (int32_t)(four[i % 4] % (uint32_t)vocabulary);
    }
    return t;
}

static double excess(double got, double want, double tolerance, double floor) {
    return isfinite(got) ? fabs(got - want) / (tolerance * (fabs(want) + floor)) : INFINITY;
}

void tensor_assert_close(const char *what, const float *got, const float *want, int64_t n, double tolerance,
                         double floor) {
    for (int64_t i = 0; i < n; i++)
        if (!(excess(got[i], want[i], tolerance, floor) <= 1))
            fail_msg("%s[%lld of %lld] is %.9g, not %.9g", what, (long long)i, (long long)n, got[i], want[i]);
}

void tensor_assert_near(const char *what, const float *got, const double *want, int64_t n, double tolerance,
                        double floor) {
    for (int64_t i = 0; i < n; i++)
        if (!(excess(got[i], want[i], tolerance, floor) <= 1))
            fail_msg("%s[%lld of %lld] is %.9g, not %.9g", what, (long long)i, (long long)n, got[i], want[i]);
}

void tensor_assert_same_bits(const char *what, const float *a, const float *b, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0)
            fail_msg("%s[%lld of %lld]: %.9g and %.9g differ", what, (long long)i, (long long)n, a[i], b[i]);
}

struct kernels *kernels_of_precision(enum kernels_isa isa, int threads, enum kernels_precision precision) {
    const struct kernels_config config = { .device = "cpu", .threads = threads, .isa = isa, .precision = precision };
    struct kernels *k = NULL;
    return kernels_open(&config, &k, NULL) == ST_OK ? k : NULL;
}

struct kernels *kernels_of_team(enum kernels_isa isa, enum kernels_precision precision) {
    const struct kernels_config config = {
        .device = "cpu", .threads = 1, .max_threads = 4, .isa = isa, .precision = precision
    };
    struct kernels *k = NULL;
    return kernels_open(&config, &k, NULL) == ST_OK ? k : NULL;
}

struct kernels *kernels_or_null(enum kernels_isa isa, int threads) {
    return kernels_of_precision(isa, threads, KERNELS_FP32);
}

const char *precision_name(enum kernels_precision precision) {
    static const char *const names[] = { "fp32", "bf16", "fp16" };
    return names[precision];
}

element_t *elements_new(const struct kernels *k, int64_t n) {
    return tensor_new((n * (int64_t)kernels_element_bytes(k) + 3) / 4);
}

element_t *elements_of(const struct kernels *k, const float *a, int64_t n) {
    element_t *to = elements_new(k, n);
    OK(k->convert(k, to, a, n, e));
    return to;
}

float *floats_of(const struct kernels *k, const element_t *a, int64_t n) {
    float *to = tensor_new(n);
    OK(k->convert_to_fp32(k, to, a, n, e));
    return to;
}

element_t *elements_random(const struct kernels *k, int64_t n, uint64_t seed, float scale) {
    CLEANUP(freep) float *a = tensor_random(n, seed, scale);
    return elements_of(k, a, n);
}

float *rounded_random(enum kernels_precision precision, int64_t n, uint64_t seed, float scale) {
    CLEANUP(kernels_closep) struct kernels *k = kernels_of_precision(KERNELS_ISA_PLAIN, 1, precision);
    CLEANUP(freep) element_t *a = elements_random(k, n, seed, scale);
    return floats_of(k, a, n);
}

static int isa_list(enum kernels_isa list[3]) {
    int n = 0;
    for (enum kernels_isa isa = KERNELS_ISA_PLAIN; isa <= KERNELS_ISA_AVX512; isa++) {
        CLEANUP(kernels_closep) struct kernels *k = kernels_or_null(isa, 1);
        if (k)
            list[n++] = isa;
    }
    return n;
}

int isa_count(void) {
    enum kernels_isa list[3];
    return isa_list(list);
}

enum kernels_isa isa_at(int i) {
    enum kernels_isa list[3];
    (void)isa_list(list);
    return list[i];
}
