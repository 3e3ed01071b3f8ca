#include "executor/worker/config_parts.h"

static struct model_config gpt_of(const Trainyard__V1__GptModel *m) {
    return (struct model_config){ .family = MODEL_GPT,
                                  .gpt = { .layers = m->layers,
                                           .heads = m->heads,
                                           .width = m->width,
                                           .context = m->context,
                                           .vocabulary = m->vocabulary,
                                           .dropout = m->dropout } };
}

static struct llama_rope_scaling rope_scaling_of(const Trainyard__V1__LlamaRopeScaling *s) {
    if (!s)
        return (struct llama_rope_scaling){ 0 };
    return (struct llama_rope_scaling){ s->factor, s->low_freq_factor, s->high_freq_factor,
                                        s->original_max_position_embeddings };
}

static struct model_config llama_of(const Trainyard__V1__LlamaModel *m) {
    return (struct model_config){ .family = MODEL_LLAMA,
                                  .llama = { .layers = m->layers,
                                             .heads = m->heads,
                                             .width = m->width,
                                             .context = m->context,
                                             .kv_heads = m->kv_heads,
                                             .hidden = m->hidden,
                                             .vocabulary = m->vocabulary,
                                             .rope_theta = m->rope_theta,
                                             .rope_scaling = rope_scaling_of(m->rope_scaling),
                                             .norm_eps = m->norm_eps,
                                             .tied_embeddings = m->tied_embeddings } };
}

static status_t resnet_of(const Trainyard__V1__ResnetModel *m, struct model_config *ret, struct err *e) {
    static const char *const stems[] = {
        [RESNET_STEM_AUTO] = "", [RESNET_STEM_IMAGENET] = "imagenet", [RESNET_STEM_SMALL] = "small", NULL
    };
    int stem = 0;
    TRY(config_choice("model.resnet.stem", m->stem ? m->stem : "", stems, &stem, e));
    *ret = (struct model_config){
        .family = MODEL_RESNET,
        .resnet = { .layers = m->layers, .classes = m->classes, .stem = (enum resnet_stem)stem, .width = m->width }
    };
    return ST_OK;
}

static struct model_config vit_of(const Trainyard__V1__VitModel *m) {
    return (struct model_config){ .family = MODEL_VIT,
                                  .vit = { .layers = m->layers,
                                           .heads = m->heads,
                                           .width = m->width,
                                           .patch = m->patch,
                                           .hidden = m->hidden,
                                           .classes = m->classes,
                                           .dropout = m->dropout } };
}

static status_t mlp_of(const Trainyard__V1__MlpModel *m, struct model_config *ret, struct err *e) {
    if (m->n_hidden > MLP_LAYERS_MOST)
        return err_set(e, ST_INVALID_ARGUMENT, "model.mlp.hidden: %zu layers are more than %d", m->n_hidden,
                       MLP_LAYERS_MOST);
    *ret = (struct model_config){
        .family = MODEL_MLP, .mlp = { .n_hidden = (int)m->n_hidden, .classes = m->classes, .dropout = m->dropout }
    };
    for (size_t i = 0; i < m->n_hidden; i++)
        ret->mlp.hidden[i] = m->hidden[i];
    return ST_OK;
}

static struct model_config unrolled_of(const Trainyard__V1__UnrolledModel *m) {
    return (struct model_config){ .family = MODEL_UNROLLED,
                                  .unrolled = { .iterations = m->iterations,
                                                .channels = m->channels,
                                                .layers = m->layers,
                                                .shared_weights = m->shared_weights } };
}

status_t config_model(struct engine_config *c, const Trainyard__V1__ModelSpec *model, struct err *e) {
    switch (model ? model->family_case : TRAINYARD__V1__MODEL_SPEC__FAMILY__NOT_SET) {
    case TRAINYARD__V1__MODEL_SPEC__FAMILY_GPT: c->model = gpt_of(model->gpt); return ST_OK;
    case TRAINYARD__V1__MODEL_SPEC__FAMILY_LLAMA: c->model = llama_of(model->llama); return ST_OK;
    case TRAINYARD__V1__MODEL_SPEC__FAMILY_RESNET: return resnet_of(model->resnet, &c->model, e);
    case TRAINYARD__V1__MODEL_SPEC__FAMILY_VIT: c->model = vit_of(model->vit); return ST_OK;
    case TRAINYARD__V1__MODEL_SPEC__FAMILY_MLP: return mlp_of(model->mlp, &c->model, e);
    case TRAINYARD__V1__MODEL_SPEC__FAMILY_UNROLLED: c->model = unrolled_of(model->unrolled); return ST_OK;
    default: return err_set(e, ST_INVALID_ARGUMENT, "model: it is missing");
    }
}
