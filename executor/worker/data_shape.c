#include "executor/worker/data_shape.h"

#include <string.h>

enum { BYTE_VOCABULARY = 256, ASSUMED_SIDE = 32, ASSUMED_PATCHES = 8 };

static bool is_byte(const struct data_config *data) {
    const char *tokenizer = data->kind == data_kind_find("text")     ? data->text.tokenizer
                            : data->kind == data_kind_find("tokens") ? data->tokens.tokenizer
                                                                     : NULL;
    return tokenizer && strcmp(tokenizer, "byte") == 0;
}

/* The sources of a mixture have one tokenizer. */
static bool reads_bytes(const struct engine_config *c) {
    const bool mixture = c->data.kind == data_kind_find("mixture");
    return is_byte(mixture ? &c->data.mixture.sources[0].data : &c->data);
}

struct model_data data_shape_assumed(const struct engine_config *c) {
    const enum model_samples samples = c->model.kind->samples;
    const int vocabulary = model_vocabulary(&c->model), *patch = model_int(&c->model, "patch");
    const int *size = data_int(&c->data, "size"), *channels = data_int(&c->data, "channels");
    if (samples == MODEL_TOKENS)
        return (struct model_data){ .vocabulary = vocabulary && !reads_bytes(c) ? vocabulary : BYTE_VOCABULARY };
    const int side = size && *size ? *size : patch ? ASSUMED_PATCHES * *patch : ASSUMED_SIDE;
    return (struct model_data){
        .classes = samples == MODEL_LABELLED_IMAGES, .channels = channels ? *channels : 1, .height = side, .width = side
    };
}

bool data_shape_is_known(const struct engine_config *c) {
    return c->model.kind->samples == MODEL_TOKENS && (model_vocabulary(&c->model) > 0 || reads_bytes(c));
}
