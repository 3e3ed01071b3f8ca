#include "api/codec/text.h"
#include "api/spec/rules_parts.h"
#include "base/limits.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    MOST_EVAL_BATCHES = 1000000,
    MOST_GROWTH_INTERVAL = 1000000000,
    MOST_SPIKE_WINDOW = 1024,
    /* A trace holds every instruction of each of these steps. */
    MOST_PROFILED_STEPS = 100,
};

static bool is_power_of_two(int32_t n) { return n > 0 && (n & (n - 1)) == 0; }

/* Lane k takes micro-batches k, k + lanes, ...: every lane has equally many. Returns whether lanes can be relied on. */
bool rules_batches(const Trainyard__V1__TrainSpec *t, struct spec_problems *p) {
    bool good = check_given(p, "train.global_batch", t->global_batch, SPEC_MOST_BATCH);
    if (t->_micro_batch_case)
        good &= check_int(p, "train.micro_batch", t->micro_batch, 1, SPEC_MOST_BATCH);
    if (t->_lanes_case && (!is_power_of_two(t->lanes) || t->lanes > LIMIT_WORLD_SIZE)) {
        problem_add(p, "train.lanes: %d is not a power of two from 1 to %d", t->lanes, LIMIT_WORLD_SIZE);
        good = false;
    }
    if (!good || !t->_micro_batch_case) /* `auto`: the plan chooses what fits */
        return false;
    if (!t->_lanes_case && t->global_batch % t->micro_batch != 0) {
        problem_add(p, "train.global_batch: %d is not a multiple of micro_batch = %d", t->global_batch, t->micro_batch);
        return false;
    }
    int64_t group = (int64_t)t->micro_batch * t->lanes;
    if (t->global_batch % group != 0) {
        problem_add(p, "train.global_batch: %d is not a multiple of micro_batch x lanes = %" PRId64, t->global_batch,
                    group);
        return false;
    }
    return true;
}

static void check_loss_scale(const Trainyard__V1__TrainSpec *t, struct spec_problems *p) {
    if (!t->loss_scale)
        return;
    if (strcmp(t->precision, "fp16") != 0) {
        problem_add(p, "train.loss_scale: is for precision fp16, and train.precision is %s", t->precision);
        return;
    }
    int exponent;
    double scale = t->loss_scale->initial;
    if (!(scale >= 1 && scale <= 0x1p24) || frexp(scale, &exponent) != 0.5) {
        char shown[32];
        codec_double_text(scale, shown);
        problem_add(p, "train.loss_scale.initial: %s is not a power of two from 1 to 16777216", shown);
    }
    check_int(p, "train.loss_scale.growth_interval", t->loss_scale->growth_interval, 1, MOST_GROWTH_INTERVAL);
}

static void check_profile(const Trainyard__V1__ProfileSpec *f, int64_t steps, struct spec_problems *p) {
    if (!f || (f->from == 0 && f->to == 0))
        return;
    if (!check_int(p, "train.profile.from", f->from, 1, steps) ||
        !check_int(p, "train.profile.to", f->to, f->from, steps))
        return;
    if (f->to - f->from >= MOST_PROFILED_STEPS)
        problem_add(p, "train.profile.to: %" PRId64 " steps are more than the %d that a profile may cover",
                    f->to - f->from + 1, MOST_PROFILED_STEPS);
}

static void check_scaling(const Trainyard__V1__TrainSpec *t, struct spec_problems *p) {
    static const char *const scalings[] = { "none", "linear", "sqrt", NULL };
    if (!check_choice(p, "train.learning_rate_scaling", t->learning_rate_scaling, scalings))
        return;
    bool scaled = strcmp(t->learning_rate_scaling, "none") != 0;
    if (scaled && !t->_reference_batch_case)
        problem_add(p, "train.reference_batch: must be given with learning_rate_scaling %s", t->learning_rate_scaling);
    if (t->_reference_batch_case)
        check_int(p, "train.reference_batch", t->reference_batch, 1, SPEC_MOST_BATCH);
}

/* A checkpoint's name or a folder; whether it exists is found out where it can be. */
static void check_init_from(const char *from, struct spec_problems *p) {
    int64_t job, id;
    if (!*from || spec_checkpoint_name(from, &job, &id))
        return;
    if (strncmp(from, "file:", 5) == 0)
        rules_file(from, "train.init_from", p);
    else
        problem_add(p, "train.init_from: '%.60s' is neither a checkpoint (jobs/42/checkpoints/7) nor a file:// URI",
                    from);
}

static void check_extras(const Trainyard__V1__TrainSpec *t, bool steps, struct spec_problems *p) {
    check_loss_scale(t, p);
    if (t->ema)
        check_real_below(p, "train.ema.decay", t->ema->decay, 0, 1);
    if (t->skip_spikes) {
        check_real(p, "train.skip_spikes.z_score", t->skip_spikes->z_score, 0, 1e6);
        check_int(p, "train.skip_spikes.window", t->skip_spikes->window, 2, MOST_SPIKE_WINDOW);
    }
    if (steps)
        check_profile(t->profile, t->steps, p);
    if (t->inspect)
        check_int(p, "train.inspect.gradients_every", t->inspect->gradients_every, 0, SPEC_MOST_STEPS);
}

void rules_train(const Trainyard__V1__TrainSpec *t, struct spec_problems *p) {
    static const char *const precisions[] = { "fp32", "bf16", "fp16", NULL };
    static const char *const numerics[] = { "reproducible", "strict", "fast", NULL };
    static const char *const reductions[] = { "step", "micro_batch", NULL };
    static const char *const recomputes[] = { "none", "selective", "block", "auto", NULL };
    bool steps = check_given(p, "train.steps", t->steps, SPEC_MOST_STEPS);
    rules_optimizer(t, p);
    check_real(p, "train.clip_norm", t->clip_norm, 0, 1e30);
    check_real(p, "train.clip_value", t->clip_value, 0, 1e30);
    check_choice(p, "train.precision", t->precision, precisions);
    check_choice(p, "train.numerics", t->numerics, numerics);
    check_choice(p, "train.reduce", t->reduce, reductions);
    check_choice(p, "train.recompute", t->recompute, recomputes);
    check_scaling(t, p);
    check_init_from(t->init_from, p);
    check_extras(t, steps, p);
    check_int(p, "train.eval.every", t->eval->every, 0, SPEC_MOST_STEPS);
    check_int(p, "train.eval.batches", t->eval->batches, 1, MOST_EVAL_BATCHES);
}
