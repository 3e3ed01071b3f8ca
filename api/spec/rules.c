#include "api/spec/rules.h"

#include "api/codec/text.h"
#include "base/limits.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Ceilings that keep products of sizes inside 64 bits and catch slips of the keyboard; nothing trains near them. */
enum {
    MOST_LAYERS = 1024,
    MOST_HEADS = 1024,
    MOST_WIDTH = 1 << 17,
    MOST_CONTEXT = 1 << 20,
    MOST_VOCABULARY = 1 << 24,
    MOST_BATCH = 1 << 20,
    MOST_FILES = 256,
    MOST_PATH_BYTES = 4096,
    MOST_EVAL_BATCHES = 1000000,
    MOST_KEPT = 1000,
    MOST_RESTARTS = 1000,
    MOST_PRIORITY = 1000000,
    MOST_LABELS = 64,
    MOST_LABEL_BYTES = 255,
    BYTE_VOCABULARY = 256,
};
static const int64_t MOST_STEPS = 1000000000000;
static const double MOST_LR = 1e30;

static void check_gpt(const Trainyard__V1__GptModel *gpt, struct spec_problems *p) {
    check_given(p, "model.gpt.layers", gpt->layers, MOST_LAYERS);
    bool heads = check_given(p, "model.gpt.heads", gpt->heads, MOST_HEADS);
    bool width = check_given(p, "model.gpt.width", gpt->width, MOST_WIDTH);
    if (heads && width && gpt->width % gpt->heads != 0)
        problem_add(p, "model.gpt.heads: %d does not divide width %d", gpt->heads, gpt->width);
    check_given(p, "model.gpt.context", gpt->context, MOST_CONTEXT);
    check_real_below(p, "model.gpt.dropout", gpt->dropout, 0, 1);
    if (gpt->_vocabulary_case)
        check_int(p, "model.gpt.vocabulary", gpt->vocabulary, 2, MOST_VOCABULARY);
}

static void check_model(const Trainyard__V1__ModelSpec *model, struct spec_problems *p) {
    if (!model || model->family_case != TRAINYARD__V1__MODEL_SPEC__FAMILY_GPT)
        problem_add(p, "model: give exactly one of gpt");
    else
        check_gpt(model->gpt, p);
}

static void check_file(const char *uri, const char *path, struct spec_problems *p) {
    char local[MOST_PATH_BYTES];
    struct err e;
    if (spec_uri_path(uri, local, sizeof local, &e) != ST_OK)
        problem_add(p, "%s: %s", path, e.msg);
}

static void check_text(const Trainyard__V1__TextData *text, struct spec_problems *p) {
    static const char *const tokenizers[] = { "char", "byte", NULL };
    if (text->n_files == 0)
        problem_add(p, "data.text.files: must name at least one file");
    if (text->n_files > MOST_FILES)
        problem_add(p, "data.text.files: %zu files are more than %d", text->n_files, MOST_FILES);
    for (size_t i = 0; i < text->n_files && i < MOST_FILES; i++) {
        char path[48];
        snprintf(path, sizeof path, "data.text.files[%zu]", i);
        check_file(text->files[i], path, p);
    }
    check_choice(p, "data.text.tokenizer", text->tokenizer, tokenizers);
    check_real_below(p, "data.text.validation_fraction", text->validation_fraction, 0, 1);
}

static void check_data(const Trainyard__V1__DataSpec *data, struct spec_problems *p) {
    if (!data || data->source_case != TRAINYARD__V1__DATA_SPEC__SOURCE_TEXT)
        problem_add(p, "data: give exactly one of text");
    else
        check_text(data->text, p);
}

static bool is_power_of_two(int32_t n) { return n > 0 && (n & (n - 1)) == 0; }

/* Lane k takes micro-batches k, k + lanes, ...: every lane has equally many. Returns whether lanes can be relied on. */
static bool check_batches(const Trainyard__V1__TrainSpec *t, struct spec_problems *p) {
    bool good = check_given(p, "train.global_batch", t->global_batch, MOST_BATCH);
    if (t->_micro_batch_case)
        good &= check_int(p, "train.micro_batch", t->micro_batch, 1, MOST_BATCH);
    if (t->_lanes_case && (!is_power_of_two(t->lanes) || t->lanes > LIMIT_WORLD_SIZE)) {
        problem_add(p, "train.lanes: %d is not a power of two from 1 to %d", t->lanes, LIMIT_WORLD_SIZE);
        good = false;
    }
    if (!good)
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

static bool check_adamw(const Trainyard__V1__AdamW *adamw, struct spec_problems *p) {
    bool lr = adamw->lr > 0 && adamw->lr <= MOST_LR; /* false for NaN */
    if (!lr) {
        char shown[32];
        codec_double_text(adamw->lr, shown);
        problem_add(p, "train.optimizer.adamw.lr: %s is not above 0 and at most 1e+30", shown);
    }
    check_real_below(p, "train.optimizer.adamw.beta1", adamw->beta1, 0, 1);
    check_real_below(p, "train.optimizer.adamw.beta2", adamw->beta2, 0, 1);
    /* Less than this and fp32 gradients of zero divide by zero. */
    check_real(p, "train.optimizer.adamw.eps", adamw->eps, 1e-30, 1);
    check_real(p, "train.optimizer.adamw.weight_decay", adamw->weight_decay, 0, 100);
    return lr;
}

static void check_warmup(const char *path, int64_t warmup, int64_t steps, struct spec_problems *p) {
    if (warmup < 0 || warmup > steps)
        problem_add(p, "%s.warmup_steps: %" PRId64 " is not from 0 to train.steps = %" PRId64, path, warmup, steps);
}

static void check_min_lr(const char *path, double min_lr, double lr, struct spec_problems *p) {
    if (min_lr >= 0 && min_lr <= lr)
        return;
    char shown[32], most[32];
    codec_double_text(min_lr, shown);
    codec_double_text(lr, most);
    problem_add(p, "%s.min_lr: %s is not from 0 to the optimizer's lr = %s", path, shown, most);
}

static void check_schedule(const Trainyard__V1__ScheduleSpec *s, int64_t steps, double lr, struct spec_problems *p) {
    switch (s->kind_case) {
    case TRAINYARD__V1__SCHEDULE_SPEC__KIND_COSINE:
        check_warmup("train.learning_rate_schedule.cosine", s->cosine->warmup_steps, steps, p);
        check_min_lr("train.learning_rate_schedule.cosine", s->cosine->min_lr, lr, p);
        break;
    case TRAINYARD__V1__SCHEDULE_SPEC__KIND_LINEAR:
        check_warmup("train.learning_rate_schedule.linear", s->linear->warmup_steps, steps, p);
        check_min_lr("train.learning_rate_schedule.linear", s->linear->min_lr, lr, p);
        break;
    case TRAINYARD__V1__SCHEDULE_SPEC__KIND_CONSTANT:
        check_warmup("train.learning_rate_schedule.constant", s->constant->warmup_steps, steps, p);
        break;
    default: break;
    }
}

static void check_train(const Trainyard__V1__TrainSpec *t, struct spec_problems *p) {
    static const char *const precisions[] = { "fp32", NULL };
    static const char *const numerics[] = { "reproducible", "strict", "fast", NULL };
    static const char *const reductions[] = { "step", "micro_batch", NULL };
    bool steps = check_given(p, "train.steps", t->steps, MOST_STEPS);
    bool lr = check_adamw(t->optimizer->adamw, p);
    if (steps && lr)
        check_schedule(t->learning_rate_schedule, t->steps, t->optimizer->adamw->lr, p);
    check_real(p, "train.clip_norm", t->clip_norm, 0, 1e30);
    check_choice(p, "train.precision", t->precision, precisions);
    check_choice(p, "train.numerics", t->numerics, numerics);
    check_choice(p, "train.reduce", t->reduce, reductions);
    check_int(p, "train.eval.every", t->eval->every, 0, MOST_STEPS);
    check_int(p, "train.eval.batches", t->eval->batches, 1, MOST_EVAL_BATCHES);
}

static void check_parallel(const Trainyard__V1__ParallelSpec *l, int32_t lanes, struct spec_problems *p) {
    static const char *const schedules[] = { "1f1b", NULL };
    if (check_int(p, "parallel.data", l->data, 1, LIMIT_WORLD_SIZE) && lanes > 0 && lanes % l->data != 0)
        problem_add(p, "parallel.data: %d does not divide train.lanes %d", l->data, lanes);
    if (l->pipeline != 1)
        problem_add(p, "parallel.pipeline: %d is not one of: 1", l->pipeline);
    if (l->zero != 0)
        problem_add(p, "parallel.zero: %d is not one of: 0", l->zero);
    check_choice(p, "parallel.pipeline_schedule", l->pipeline_schedule, schedules);
}

static void check_checkpoint(const Trainyard__V1__CheckpointSpec *c, struct spec_problems *p) {
    check_int(p, "checkpoint.every", c->every, 0, MOST_STEPS);
    check_int(p, "checkpoint.keep_last", c->keep_last, 1, MOST_KEPT);
    check_int(p, "checkpoint.keep_best", c->keep_best, 0, MOST_KEPT);
    if (*c->directory)
        check_file(c->directory, "checkpoint.directory", p);
}

/* A label's key is a name too; its value may be any line of text. */
static void check_label(const Trainyard__V1__JobSpec__LabelsEntry *label, struct spec_problems *p) {
    if (!check_name(p, "labels", label->key))
        return;
    size_t n = strlen(label->value);
    if (n > MOST_LABEL_BYTES)
        problem_add(p, "labels.%s: %zu bytes are more than %d", label->key, n, MOST_LABEL_BYTES);
    else if (!utf8_valid(label->value, n))
        problem_add(p, "labels.%s: is not UTF-8", label->key);
    else
        for (size_t i = 0; i < n; i++)
            if ((uint8_t)label->value[i] < 0x20 || label->value[i] == 0x7f) {
                problem_add(p, "labels.%s: has a control character", label->key);
                return;
            }
}

static void check_labels(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    if (spec->n_labels > MOST_LABELS) {
        problem_add(p, "labels: %zu labels are more than %d", spec->n_labels, MOST_LABELS);
        return;
    }
    for (size_t i = 0; i < spec->n_labels; i++) {
        check_label(spec->labels[i], p);
        for (size_t j = 0; j < i; j++) /* a map on the wire may repeat a key */
            if (strcmp(spec->labels[i]->key, spec->labels[j]->key) == 0)
                problem_add(p, "labels.%s: given twice", spec->labels[i]->key);
    }
}

static void check_across(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    if (!spec->data || spec->data->source_case != TRAINYARD__V1__DATA_SPEC__SOURCE_TEXT)
        return;
    const Trainyard__V1__TextData *text = spec->data->text;
    if (spec->checkpoint->keep_best > 0 && text->validation_fraction == 0)
        problem_add(p, "checkpoint.keep_best: needs validation data, and data.text.validation_fraction is 0");
    if (spec->model && spec->model->family_case == TRAINYARD__V1__MODEL_SPEC__FAMILY_GPT) {
        const Trainyard__V1__GptModel *gpt = spec->model->gpt;
        if (gpt->_vocabulary_case && strcmp(text->tokenizer, "byte") == 0 && gpt->vocabulary >= 2 &&
            gpt->vocabulary < BYTE_VOCABULARY)
            problem_add(p, "model.gpt.vocabulary: %d is less than the byte tokenizer's %d", gpt->vocabulary,
                        BYTE_VOCABULARY);
    }
}

void rules_check(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    static const char *const accelerators[] = { "cpu", NULL };
    check_name(p, "name", spec->name);
    check_model(spec->model, p);
    check_data(spec->data, p);
    check_train(spec->train, p);
    bool lanes = check_batches(spec->train, p);
    check_parallel(spec->parallel, lanes ? spec->train->lanes : 0, p);
    check_checkpoint(spec->checkpoint, p);
    check_choice(p, "resources.accelerator", spec->resources->accelerator, accelerators);
    check_int(p, "retry.max_restarts", spec->retry->max_restarts, 0, MOST_RESTARTS);
    check_name(p, "queue", spec->queue);
    check_int(p, "priority", spec->priority, -MOST_PRIORITY, MOST_PRIORITY);
    check_labels(spec, p);
    check_across(spec, p);
}
