#include "api/spec/fields.h"
#include "api/spec/rules.h"
#include "base/limits.h"

#include <string.h>

static void check_memory(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    if (spec->resources->memory_bytes != 0)
        return;
    if (spec->train->micro_batch_auto && !spec->train->_micro_batch_case)
        problem_add(p, "train.micro_batch: auto needs resources.memory_bytes, the bytes that one rank may take");
    else if (strcmp(spec->train->recompute, "auto") == 0)
        problem_add(p, "train.recompute: auto needs resources.memory_bytes, the bytes that one rank may take");
}

static void check_zero(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    const Trainyard__V1__ParallelSpec *l = spec->parallel;
    const ProtobufCMessage *optimizer = &spec->train->optimizer->base;
    if (l->zero >= 2 && l->pipeline > 1)
        problem_add(p,
                    "parallel.zero: %d shards gradients, which the stages of pipeline %d accumulate whole over a step; "
                    "give 0 or 1, or pipeline 1",
                    l->zero, l->pipeline);
    if (l->zero == 3 && spec_member_rule(optimizer)->whole_tensors)
        problem_add(p, "parallel.zero: 3 shards tensors, and %s steps whole ones; give at most 2",
                    spec_member(optimizer)->name);
}

static void check_pipeline(const Trainyard__V1__ParallelSpec *l, struct spec_problems *p) {
    if (!rules_field_good(&l->base, "pipeline") || !rules_field_good(&l->base, "pipeline_schedule") ||
        !rules_field_good(&l->base, "virtual_stages"))
        return;
    bool interleaved = strcmp(l->pipeline_schedule, "interleaved") == 0;
    if (l->virtual_stages > 1 && !interleaved)
        problem_add(p, "parallel.virtual_stages: %d needs pipeline_schedule interleaved", l->virtual_stages);
    if (interleaved && l->pipeline == 1)
        problem_add(p, "parallel.pipeline_schedule: interleaved needs a pipeline above 1");
    else if (interleaved && l->virtual_stages == 1)
        problem_add(p, "parallel.virtual_stages: interleaved needs at least 2");
}

/* The largest divisor of n that is at most max. */
static int32_t divisor_up_to(int32_t n, int32_t max) {
    while (n % max != 0)
        max--;
    return max;
}

/* Ranks share the lanes, so every rank needs at least one: by more lanes, or by smaller micro-batches. */
static void refuse_data(const Trainyard__V1__TrainSpec *t, int32_t data, int32_t lanes, struct spec_problems *p) {
    int32_t own = t->global_batch / data, max = t->micro_batch < own ? t->micro_batch : own;
    if (t->global_batch % data != 0)
        problem_add(p, "parallel.data: %d ranks cannot share train.global_batch %d; give a multiple of %d", data,
                    t->global_batch, data);
    else if (t->global_batch / t->micro_batch % data == 0)
        problem_add(p, "parallel.data: %d does not divide train.lanes %d; set train.lanes to %d", data, lanes, data);
    else
        problem_add(p,
                    "parallel.data: %d does not divide train.lanes %d, since a step has %d micro-batch%s; set "
                    "train.micro_batch to %d and train.lanes to %d",
                    data, lanes, t->global_batch / t->micro_batch, t->global_batch > t->micro_batch ? "es" : "",
                    divisor_up_to(own, max), data);
}

/* Reproducible sums need pairs of ranks. */
static bool check_data(const Trainyard__V1__ParallelSpec *l, struct spec_problems *p) {
    if (l->elastic)
        problem_add(p, "parallel.data: {min, max} is for a program; the number of ranks is part of a model's plan and "
                       "of its bits: give one number");
    if (l->elastic || !rules_field_good(&l->base, "data"))
        return false;
    const bool good = (l->data & (l->data - 1)) == 0;
    if (!good)
        problem_add(p, "parallel.data: %d is not a power of two from 1 to %d", l->data, LIMIT_WORLD_SIZE);
    return good;
}

/* Interleaved stages take turns with as many micro-batches as there are stages. */
static void check_interleaved(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    const Trainyard__V1__ParallelSpec *l = spec->parallel;
    const Trainyard__V1__TrainSpec *t = spec->train;
    const int32_t own = t->global_batch / l->data, batches = own / t->micro_batch;
    const bool interleaved = l->pipeline > 1 && l->virtual_stages > 1 &&
                             strcmp(l->pipeline_schedule, "interleaved") == 0;
    if (!interleaved || batches % l->pipeline == 0)
        return;
    if (own % l->pipeline != 0)
        problem_add(p,
                    "parallel.pipeline_schedule: interleaved needs a multiple of %d micro-batches, and a data rank has "
                    "%d samples a step; give global_batch a multiple of %d",
                    l->pipeline, own, l->pipeline * l->data);
    else
        problem_add(p,
                    "parallel.pipeline_schedule: interleaved needs a multiple of %d micro-batches, and a data rank has "
                    "%d; set train.micro_batch to %d",
                    l->pipeline, batches, divisor_up_to(own / l->pipeline, t->micro_batch));
}

void rules_layout(const Trainyard__V1__JobSpec *spec, bool lanes_known, struct spec_problems *p) {
    const Trainyard__V1__ParallelSpec *l = spec->parallel;
    const bool data = check_data(l, p), pipeline = rules_field_good(&l->base, "pipeline");
    if (data && lanes_known && spec->train->lanes % l->data != 0)
        refuse_data(spec->train, l->data, spec->train->lanes, p);
    else if (data && pipeline && lanes_known && rules_field_good(&l->base, "virtual_stages"))
        check_interleaved(spec, p);
    check_pipeline(l, p);
    if (data && pipeline && l->data * l->pipeline > LIMIT_WORLD_SIZE)
        problem_add(p, "parallel: data %d x pipeline %d are more than %d ranks", l->data, l->pipeline,
                    LIMIT_WORLD_SIZE);
    if (rules_field_good(&l->base, "zero"))
        check_zero(spec, p);
    if (l->nccl && strcmp(spec->resources->accelerator, "cuda") != 0)
        problem_add(p, "parallel.nccl: needs resources.accelerator cuda");
    check_memory(spec, p);
}
