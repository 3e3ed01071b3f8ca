#include "executor/engine/model/model.h"

#include "executor/engine/data/source.h"

#include <stdio.h>
#include <string.h>

static const char *const NAME[MODEL_FAMILIES] = {
    [MODEL_GPT] = "gpt", [MODEL_LLAMA] = "llama", [MODEL_RESNET] = "resnet",
    [MODEL_VIT] = "vit", [MODEL_MLP] = "mlp",     [MODEL_UNROLLED] = "unrolled"
};

const char *model_family_name(enum model_family family) { return NAME[family]; }

struct model_data model_data_of(const struct source_info *info) {
    struct model_data d = { .vocabulary = info->vocabulary, .classes = info->classes };
    for (int i = 0; i < info->n_inputs; i++) {
        const struct source_input *in = &info->inputs[i];
        if ((in->input == BATCH_IMAGES || in->input == BATCH_REFERENCE) && in->n_dims == 3) {
            d.channels = (int)in->dim[0];
            d.height = (int)in->dim[1];
            d.width = (int)in->dim[2];
        }
    }
    return d;
}

int model_context(const struct model_config *config) {
    return config->family == MODEL_GPT     ? config->gpt.context
           : config->family == MODEL_LLAMA ? config->llama.context
                                           : 0;
}

int model_vocabulary(const struct model_config *config) {
    return config->family == MODEL_GPT     ? config->gpt.vocabulary
           : config->family == MODEL_LLAMA ? config->llama.vocabulary
                                           : 0;
}

/* *n becomes the data's number when it is 0; else it must be at least that. */
static status_t at_least_the_datas(const struct model_config *c, const char *field, int *n, int data, const char *whose,
                                   struct err *e) {
    if (*n == 0)
        *n = data;
    if (*n < data)
        return err_set(e, ST_INVALID_ARGUMENT, "model.%s.%s: %d is less than the %s's %d", NAME[c->family], field, *n,
                       whose, data);
    return ST_OK;
}

static status_t resolve_llama(struct llama_shape *s, struct err *e) {
    if (s->kv_heads == 0)
        s->kv_heads = s->heads;
    if (s->hidden == 0)
        s->hidden = (8 * s->width / 3 + 31) / 32 * 32;
    if (s->rope_theta == 0)
        s->rope_theta = 10000;
    if (s->norm_eps == 0)
        s->norm_eps = 1e-5;
    (void)e;
    return ST_OK;
}

static status_t resolve_tokens(struct model_config *c, const struct model_data *data, struct err *e) {
    if (data->vocabulary == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "model.%s: reads tokens, but the data has none", NAME[c->family]);
    if (c->family == MODEL_LLAMA)
        TRY(resolve_llama(&c->llama, e));
    int *vocabulary = c->family == MODEL_GPT ? &c->gpt.vocabulary : &c->llama.vocabulary;
    return at_least_the_datas(c, "vocabulary", vocabulary, data->vocabulary, "tokenizer", e);
}

static status_t resolve_classifier(struct model_config *c, const struct model_data *data, struct err *e) {
    if (data->height == 0 || data->classes == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "model.%s: reads labelled images, but the data has none",
                       NAME[c->family]);
    if (c->family == MODEL_RESNET) {
        struct resnet_shape *s = &c->resnet;
        s->layers = s->layers ? s->layers : 18;
        s->width = s->width ? s->width : 64;
        if (s->stem == RESNET_STEM_AUTO)
            s->stem = data->height <= 64 && data->width <= 64 ? RESNET_STEM_SMALL : RESNET_STEM_IMAGENET;
        return at_least_the_datas(c, "classes", &s->classes, data->classes, "data", e);
    }
    if (c->family == MODEL_VIT) {
        c->vit.hidden = c->vit.hidden ? c->vit.hidden : 4 * c->vit.width;
        return at_least_the_datas(c, "classes", &c->vit.classes, data->classes, "data", e);
    }
    return at_least_the_datas(c, "classes", &c->mlp.classes, data->classes, "data", e);
}

static status_t resolve_unrolled(struct unrolled_shape *s, const struct model_data *data, struct err *e) {
    if (data->height == 0 || data->classes != 0)
        return err_set(e, ST_INVALID_ARGUMENT, "model.unrolled: reads measurements of images, but the data has none");
    s->channels = s->channels ? s->channels : 32;
    s->layers = s->layers ? s->layers : 3;
    return ST_OK;
}

status_t model_resolve(struct model_config *config, const struct model_data *data, struct err *e) {
    switch (config->family) {
    case MODEL_GPT:
    case MODEL_LLAMA: return resolve_tokens(config, data, e);
    case MODEL_RESNET:
    case MODEL_VIT:
    case MODEL_MLP: return resolve_classifier(config, data, e);
    case MODEL_UNROLLED: return resolve_unrolled(&config->unrolled, data, e);
    default: return err_set(e, ST_INVALID_ARGUMENT, "model: no family is given");
    }
}

static status_t blocks(const struct model_config *c, const struct model_data *d, struct graph *g, struct err *e) {
    switch (c->family) {
    case MODEL_GPT: return gpt_blocks(&c->gpt, g, e);
    case MODEL_LLAMA: return llama_blocks(&c->llama, g, e);
    case MODEL_MLP: return mlp_blocks(&c->mlp, d->channels, d->height, d->width, g, e);
    case MODEL_RESNET: return resnet_blocks(&c->resnet, d->channels, d->height, d->width, g, e);
    case MODEL_VIT: return vit_blocks(&c->vit, d->channels, d->height, d->width, g, e);
    case MODEL_UNROLLED: return unrolled_blocks(&c->unrolled, d->height, d->width, g, e);
    default: return err_set(e, ST_INVALID_ARGUMENT, "model: no family is given");
    }
}

status_t model_build(const struct model_config *config, const struct model_data *data, int micro_batch,
                     enum dtype element, struct graph **ret, struct err *e) {
    if (micro_batch < 1)
        return err_set(e, ST_INVALID_ARGUMENT, "train.micro_batch: %d is less than 1", micro_batch);
    CLEANUP(graph_freep) struct graph *g = graph_new(element);
    if (!g)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the model's graph");
    g->micro_batch = micro_batch;
    TRY(blocks(config, data, g, e));
    TRY(graph_differentiate(g, e));
    *ret = take_ptr(&g);
    return ST_OK;
}
