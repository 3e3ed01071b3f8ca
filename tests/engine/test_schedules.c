/* The learning rates of every schedule against those of torch.optim.lr_scheduler (record_schedules.py). */
#include "base/cleanup.h"
#include "engine/run/engine_config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { STEPS = 50 };

static struct engine_train train_of(const struct rate_kind *kind) {
    return (struct engine_train){ .steps = STEPS,
                                  .global_batch = 64,
                                  .optimizer = { .kind = &optimizer_sgd, .sgd = { .lr = 0.3 } },
                                  .schedule = { .kind = kind, .warmup_steps = 5, .decay_steps = 12, .min_lr = 0.03 } };
}

static void every_schedule_agrees_with_pytorch(void **state) {
    (void)state;
    static const struct rate_kind *const kinds[] = { &rate_constant, &rate_cosine, &rate_linear, &rate_wsd };
    const char *source = getenv("TRAINYARD_SOURCE");
    char path[512];
    snprintf(path, sizeof path, "%s/tests/engine/schedules.f64", source ? source : ".");
    CLEANUP(fclosep) FILE *f = fopen(path, "rb");
    assert_non_null(f);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const struct engine_train t = train_of(kinds[k]);
        double want[STEPS];
        assert_int_equal(fread(want, sizeof *want, STEPS, f), STEPS);
        for (int step = 0; step < STEPS; step++)
            if (!(fabs(learning_rate(&t, step) / want[step] - 1) < 1e-12))
                fail_msg("schedule %zu has %.17g at step %d, and PyTorch %.17g", k, learning_rate(&t, step), step,
                         want[step]);
    }
    assert_int_equal(fgetc(f), EOF);
}

/* From one step to many, with all warm-ups and decays that a spec may have. */
static void linear_and_wsd_hold_lr_and_end_at_min_lr(void **state) {
    (void)state;
    for (int64_t steps = 1; steps <= 12; steps++)
        for (int64_t warmup = 0; warmup < steps; warmup++)
            for (int64_t decay = 0; decay <= steps - warmup; decay++) {
                struct engine_train t = train_of(&rate_wsd), linear = train_of(&rate_linear);
                t.steps = linear.steps = steps;
                t.schedule.warmup_steps = linear.schedule.warmup_steps = warmup;
                t.schedule.decay_steps = decay;
                assert_true(learning_rate(&t, steps - 1) == (decay ? 0.03 : 0.3));
                assert_true(learning_rate(&linear, steps - 1) == 0.03);
                for (int64_t step = warmup; step < steps - 1; step++) {
                    bool decays = step > warmup && step >= steps - decay;
                    assert_true((learning_rate(&t, step) == 0.3) == !decays);
                    assert_true((learning_rate(&linear, step) == 0.3) == (step == warmup));
                    assert_true(learning_rate(&t, step + 1) <= learning_rate(&t, step));
                }
                if (decay == steps - warmup)
                    for (int64_t step = 0; step < steps; step++)
                        assert_true(learning_rate(&t, step) == learning_rate(&linear, step));
            }
}

static void rates_scale_with_the_batch_and_not_with_ranks(void **state) {
    (void)state;
    struct engine_train t = train_of(&rate_cosine), scaled = t;
    scaled.rate_scaling.reference_batch = 16;
    for (int step = 0; step < STEPS; step++) {
        scaled.rate_scaling.kind = ENGINE_RATE_LINEAR;
        assert_true(fabs(learning_rate(&scaled, step) / (4 * learning_rate(&t, step)) - 1) < 1e-12);
        scaled.rate_scaling.kind = ENGINE_RATE_SQRT;
        assert_true(fabs(learning_rate(&scaled, step) / (2 * learning_rate(&t, step)) - 1) < 1e-12);
        scaled.rate_scaling.kind = ENGINE_RATE_UNSCALED;
        assert_true(learning_rate(&scaled, step) == learning_rate(&t, step));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_agrees_with_pytorch),
        cmocka_unit_test(linear_and_wsd_hold_lr_and_end_at_min_lr),
        cmocka_unit_test(rates_scale_with_the_batch_and_not_with_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
