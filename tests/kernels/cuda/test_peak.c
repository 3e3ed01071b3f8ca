/* The computed peak rates of devices, against the rates in NVIDIA's data sheets at the clock that the sheets name. */
#include "engine/plan/cost/profile.h"
#include "kernels/cuda/peak.h"
#include "tests/kernels/tensor.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void assert_close(const char *what, double got, double want) {
    if (!(fabs(got - want) <= 0.015 * want))
        fail_msg("%s: %.4g FLOP/s, not %.4g", what, got, want);
}

/* The profiles with which plans are costed must agree with it. */
static void the_peaks_of_the_plans_profiles_follow_from_processors_and_clock(void **state) {
    (void)state;
    static const struct {
        const char *profile;
        struct cuda_peak tensor, fp32; /* Hopper's sheets state fp32 at a higher clock */
    } ALL[] = {
        { "a100", { "NVIDIA A100-SXM4-80GB", 80, 108, 1.41e9 }, { "NVIDIA A100-SXM4-80GB", 80, 108, 1.41e9 } },
        { "h100", { "NVIDIA H100 80GB HBM3", 90, 132, 1.83e9 }, { "NVIDIA H100 80GB HBM3", 90, 132, 1.98e9 } },
        { "h200", { "NVIDIA H200", 90, 132, 1.83e9 }, { "NVIDIA H200", 90, 132, 1.98e9 } },
    };
    for (size_t i = 0; i < sizeof ALL / sizeof *ALL; i++) {
        struct plan_profile p;
        OK(plan_profile_find(ALL[i].profile, &p, e));
        assert_close(ALL[i].profile, cuda_peak_flops(&ALL[i].tensor, KERNELS_BF16), p.product_flops[DTYPE_BF16]);
        assert_close(ALL[i].profile, cuda_peak_flops(&ALL[i].tensor, KERNELS_FP16), p.product_flops[DTYPE_F16]);
        assert_close(ALL[i].profile, cuda_peak_flops(&ALL[i].fp32, KERNELS_FP32), p.product_flops[DTYPE_F32]);
    }
}

static void the_peaks_of_other_devices_are_their_data_sheets(void **state) {
    (void)state;
    static const struct {
        struct cuda_peak device;
        double bf16, fp32;
    } ALL[] = {
        { { "NVIDIA A10", 86, 72, 1.695e9 }, 125e12, 31.2e12 },
        { { "NVIDIA GeForce RTX 3090", 86, 82, 1.695e9 }, 71e12, 35.6e12 },
        { { "NVIDIA L40S", 89, 142, 2.52e9 }, 362.05e12, 91.6e12 },
        { { "NVIDIA GeForce RTX 4090", 89, 128, 2.52e9 }, 165.2e12, 82.6e12 },
        { { "NVIDIA GeForce RTX 5090", 120, 170, 2.407e9 }, 209.5e12, 104.8e12 },
        { { "NVIDIA B200", 100, 148, 1.965e9 }, 0, 75e12 },
        { { "NVIDIA B200", 100, 148, 1.856e9 }, 2.25e15, 0 }, /* the clock that belongs to this rate */
        { { "NVIDIA B300", 103, 148, 1.856e9 }, 2.25e15, 0 },
    };
    for (size_t i = 0; i < sizeof ALL / sizeof *ALL; i++) {
        if (ALL[i].bf16 > 0)
            assert_close(ALL[i].device.name, cuda_peak_flops(&ALL[i].device, KERNELS_BF16), ALL[i].bf16);
        if (ALL[i].fp32 > 0)
            assert_close(ALL[i].device.name, cuda_peak_flops(&ALL[i].device, KERNELS_FP32), ALL[i].fp32);
    }
}

static void of_an_unknown_capability_nothing_is_said(void **state) {
    (void)state;
    const struct cuda_peak none = { "NVIDIA B9000", 190, 100, 1e9 };
    for (int precision = KERNELS_FP32; precision <= KERNELS_FP16; precision++)
        assert_true(cuda_peak_flops(&none, (enum kernels_precision)precision) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_peaks_of_the_plans_profiles_follow_from_processors_and_clock),
        cmocka_unit_test(the_peaks_of_other_devices_are_their_data_sheets),
        cmocka_unit_test(of_an_unknown_capability_nothing_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
