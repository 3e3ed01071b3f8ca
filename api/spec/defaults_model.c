#include "api/spec/defaults_fill.h"

enum { HIDDEN_MULTIPLE = 32 };

/* As Llama's authors do: two thirds of 4 x width, since SwiGLU has three matrices where others have two. */
static int32_t llama_hidden(int32_t width) {
    int64_t third = ((int64_t)width * 8 + 2) / 3;
    return (int32_t)((third + HIDDEN_MULTIPLE - 1) / HIDDEN_MULTIPLE * HIDDEN_MULTIPLE);
}

static void fill_llama(Trainyard__V1__LlamaModel *m) {
    if (m->heads > 0)
        FILL(m, LLAMA_MODEL, kv_heads, KV_HEADS, m->heads);
    if (m->width > 0 && m->width < INT32_MAX / 4)
        FILL(m, LLAMA_MODEL, hidden, HIDDEN, llama_hidden(m->width));
    FILL(m, LLAMA_MODEL, rope_theta, ROPE_THETA, 10000);
    FILL(m, LLAMA_MODEL, norm_eps, NORM_EPS, 1e-5);
}

static void fill_model(Trainyard__V1__ModelSpec *model) {
    switch (model->family_case) {
    case TRAINYARD__V1__MODEL_SPEC__FAMILY_LLAMA: fill_llama(model->llama); break;
    case TRAINYARD__V1__MODEL_SPEC__FAMILY_RESNET:
        FILL(model->resnet, RESNET_MODEL, layers, LAYERS, 18);
        FILL(model->resnet, RESNET_MODEL, width, WIDTH, 64);
        break;
    case TRAINYARD__V1__MODEL_SPEC__FAMILY_VIT:
        if (model->vit->width > 0 && model->vit->width < INT32_MAX / 4)
            FILL(model->vit, VIT_MODEL, hidden, HIDDEN, 4 * model->vit->width);
        break;
    case TRAINYARD__V1__MODEL_SPEC__FAMILY_UNROLLED:
        FILL(model->unrolled, UNROLLED_MODEL, channels, CHANNELS, 32);
        FILL(model->unrolled, UNROLLED_MODEL, layers, LAYERS, 3);
        break;
    default: break;
    }
}

static status_t fill_data(Trainyard__V1__DataSpec *data, struct err *e) {
    switch (data->source_case) {
    case TRAINYARD__V1__DATA_SPEC__SOURCE_TEXT:
        FILL_TEXT(data->text, TEXT_DATA, tokenizer, TOKENIZER, "char");
        FILL(data->text, TEXT_DATA, validation_fraction, VALIDATION_FRACTION, 0.1);
        break;
    case TRAINYARD__V1__DATA_SPEC__SOURCE_TOKENS: FILL(data->tokens, TOKEN_DATA, token_bytes, TOKEN_BYTES, 2); break;
    case TRAINYARD__V1__DATA_SPEC__SOURCE_IMAGES:
        FILL(data->images, IMAGE_DATA, channels, CHANNELS, 3);
        FILL_PART(data->images->augment, trainyard__v1__augmentation__descriptor);
        break;
    case TRAINYARD__V1__DATA_SPEC__SOURCE_IDX:
        FILL_PART(data->idx->augment, trainyard__v1__augmentation__descriptor);
        break;
    case TRAINYARD__V1__DATA_SPEC__SOURCE_RECONSTRUCTION:
        FILL(data->reconstruction, RECONSTRUCTION_DATA, sampled_fraction, SAMPLED_FRACTION, 0.33);
        FILL(data->reconstruction, RECONSTRUCTION_DATA, center_fraction, CENTER_FRACTION, 0.08);
        FILL(data->reconstruction, RECONSTRUCTION_DATA, noise, NOISE, 0.01);
        break;
    default: break;
    }
    return ST_OK;
}

status_t defaults_model(Trainyard__V1__JobSpec *spec, struct err *e) {
    if (spec->model)
        fill_model(spec->model);
    return spec->data ? fill_data(spec->data, e) : ST_OK;
}
