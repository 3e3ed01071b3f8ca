#include "api/spec/rules_parts.h"

#include <stdio.h>
#include <string.h>

enum { MOST_HIDDEN_LAYERS = 32, MOST_ITERATIONS = 1024, MOST_CHANNELS = 1 << 14 };

static void check_heads(struct spec_problems *p, const char *path, int32_t heads, int32_t width) {
    if (width % heads != 0)
        problem_add(p, "%s.heads: %d does not divide width %d", path, heads, width);
}

static void check_gpt(const Trainyard__V1__GptModel *gpt, struct spec_problems *p) {
    check_given(p, "model.gpt.layers", gpt->layers, SPEC_MOST_LAYERS);
    bool heads = check_given(p, "model.gpt.heads", gpt->heads, SPEC_MOST_HEADS);
    bool width = check_given(p, "model.gpt.width", gpt->width, SPEC_MOST_WIDTH);
    if (heads && width)
        check_heads(p, "model.gpt", gpt->heads, gpt->width);
    check_given(p, "model.gpt.context", gpt->context, SPEC_MOST_CONTEXT);
    check_real_below(p, "model.gpt.dropout", gpt->dropout, 0, 1);
    if (gpt->_vocabulary_case)
        check_int(p, "model.gpt.vocabulary", gpt->vocabulary, 2, SPEC_MOST_VOCABULARY);
}

static void check_rope_scaling(const Trainyard__V1__LlamaRopeScaling *s, struct spec_problems *p) {
    check_real(p, "model.llama.rope_scaling.factor", s->factor, 1, 1e6);
    bool low = check_real(p, "model.llama.rope_scaling.low_freq_factor", s->low_freq_factor, 1e-6, 1e6);
    bool high = check_real(p, "model.llama.rope_scaling.high_freq_factor", s->high_freq_factor, 1e-6, 1e6);
    if (low && high && s->high_freq_factor <= s->low_freq_factor)
        problem_add(p, "model.llama.rope_scaling.high_freq_factor: %g is not above low_freq_factor %g",
                    s->high_freq_factor, s->low_freq_factor);
    check_int(p, "model.llama.rope_scaling.original_max_position_embeddings", s->original_max_position_embeddings, 1,
              SPEC_MOST_CONTEXT);
}

static void check_llama(const Trainyard__V1__LlamaModel *m, struct spec_problems *p) {
    check_given(p, "model.llama.layers", m->layers, SPEC_MOST_LAYERS);
    bool heads = check_given(p, "model.llama.heads", m->heads, SPEC_MOST_HEADS);
    bool width = check_given(p, "model.llama.width", m->width, SPEC_MOST_WIDTH);
    if (heads && width) {
        check_heads(p, "model.llama", m->heads, m->width);
        if (m->width % m->heads == 0 && m->width / m->heads % 2 != 0)
            problem_add(p, "model.llama.heads: heads of %d numbers are odd, and rotary positions turn pairs",
                        m->width / m->heads);
    }
    if (heads && check_int(p, "model.llama.kv_heads", m->kv_heads, 1, m->heads) && m->heads % m->kv_heads != 0)
        problem_add(p, "model.llama.kv_heads: %d does not divide heads %d", m->kv_heads, m->heads);
    if (m->_hidden_case)
        check_int(p, "model.llama.hidden", m->hidden, 1, 4 * SPEC_MOST_WIDTH);
    check_given(p, "model.llama.context", m->context, SPEC_MOST_CONTEXT);
    if (m->_vocabulary_case)
        check_int(p, "model.llama.vocabulary", m->vocabulary, 2, SPEC_MOST_VOCABULARY);
    check_real(p, "model.llama.rope_theta", m->rope_theta, 1, 1e12);
    check_real(p, "model.llama.norm_eps", m->norm_eps, 1e-12, 1);
    if (m->rope_scaling)
        check_rope_scaling(m->rope_scaling, p);
}

static void check_classes(struct spec_problems *p, const char *path, bool given, int32_t classes) {
    if (given)
        check_int(p, path, classes, 2, SPEC_MOST_CLASSES);
}

static void check_resnet(const Trainyard__V1__ResnetModel *m, struct spec_problems *p) {
    static const char *const stems[] = { "imagenet", "small", NULL };
    if (m->layers != 18 && m->layers != 34 && m->layers != 50)
        problem_add(p, "model.resnet.layers: %d is not one of: 18, 34, 50", m->layers);
    check_classes(p, "model.resnet.classes", m->_classes_case, m->classes);
    if (m->_stem_case)
        check_choice(p, "model.resnet.stem", m->stem, stems);
    check_int(p, "model.resnet.width", m->width, 1, MOST_CHANNELS);
}

static void check_vit(const Trainyard__V1__VitModel *m, struct spec_problems *p) {
    check_given(p, "model.vit.layers", m->layers, SPEC_MOST_LAYERS);
    bool heads = check_given(p, "model.vit.heads", m->heads, SPEC_MOST_HEADS);
    bool width = check_given(p, "model.vit.width", m->width, SPEC_MOST_WIDTH);
    if (heads && width)
        check_heads(p, "model.vit", m->heads, m->width);
    check_given(p, "model.vit.patch", m->patch, SPEC_MOST_PIXELS);
    if (m->_hidden_case)
        check_int(p, "model.vit.hidden", m->hidden, 1, 4 * SPEC_MOST_WIDTH);
    check_classes(p, "model.vit.classes", m->_classes_case, m->classes);
    check_real_below(p, "model.vit.dropout", m->dropout, 0, 1);
}

static void check_mlp(const Trainyard__V1__MlpModel *m, struct spec_problems *p) {
    if (m->n_hidden > MOST_HIDDEN_LAYERS)
        problem_add(p, "model.mlp.hidden: %zu layers are more than %d", m->n_hidden, MOST_HIDDEN_LAYERS);
    for (size_t i = 0; i < m->n_hidden && i < MOST_HIDDEN_LAYERS; i++) {
        char path[48];
        snprintf(path, sizeof path, "model.mlp.hidden[%zu]", i);
        check_int(p, path, m->hidden[i], 1, 4 * SPEC_MOST_WIDTH);
    }
    check_classes(p, "model.mlp.classes", m->_classes_case, m->classes);
    check_real_below(p, "model.mlp.dropout", m->dropout, 0, 1);
}

static void check_unrolled(const Trainyard__V1__UnrolledModel *m, struct spec_problems *p) {
    check_given(p, "model.unrolled.iterations", m->iterations, MOST_ITERATIONS);
    check_int(p, "model.unrolled.channels", m->channels, 1, MOST_CHANNELS);
    check_int(p, "model.unrolled.layers", m->layers, 2, SPEC_MOST_LAYERS);
}

void rules_model(const Trainyard__V1__ModelSpec *model, struct spec_problems *p) {
    switch (model ? model->family_case : TRAINYARD__V1__MODEL_SPEC__FAMILY__NOT_SET) {
    case TRAINYARD__V1__MODEL_SPEC__FAMILY_GPT: check_gpt(model->gpt, p); break;
    case TRAINYARD__V1__MODEL_SPEC__FAMILY_LLAMA: check_llama(model->llama, p); break;
    case TRAINYARD__V1__MODEL_SPEC__FAMILY_RESNET: check_resnet(model->resnet, p); break;
    case TRAINYARD__V1__MODEL_SPEC__FAMILY_VIT: check_vit(model->vit, p); break;
    case TRAINYARD__V1__MODEL_SPEC__FAMILY_MLP: check_mlp(model->mlp, p); break;
    case TRAINYARD__V1__MODEL_SPEC__FAMILY_UNROLLED: check_unrolled(model->unrolled, p); break;
    default: problem_add(p, "model: give exactly one of gpt, llama, resnet, vit, mlp, unrolled"); break;
    }
}
