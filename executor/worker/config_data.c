#include "executor/worker/config_parts.h"

#include <string.h>

/* A name, or the path of a tokenizer.json or of a folder with one. */
static status_t fill_tokenizer(struct config_paths *p, const char *field, const char *tokenizer,
                               const struct data_roots *roots, const char **ret, struct err *e) {
    *ret = tokenizer;
    return strncmp(tokenizer, "file:", 5) == 0 ? config_path(p, field, tokenizer, CONFIG_FILE_OR_FOLDER, roots, ret, e)
                                               : ST_OK;
}

static status_t fill_text(struct data_text *to, const Trainyard__V1__TextData *text, struct config_paths *p,
                          const struct data_roots *roots, struct err *e) {
    to->validation_fraction = text->validation_fraction;
    to->n_files = (int)text->n_files;
    TRY(fill_tokenizer(p, "data.text.tokenizer", text->tokenizer, roots, &to->tokenizer, e));
    return config_path_list(p, "data.text.files", text->files, text->n_files, roots, &to->files, e);
}

static status_t fill_tokens(struct data_tokens *to, const Trainyard__V1__TokenData *tokens, struct config_paths *p,
                            const struct data_roots *roots, struct err *e) {
    to->token_bytes = tokens->token_bytes;
    to->n_train = (int)tokens->n_train;
    to->n_validation = (int)tokens->n_validation;
    TRY(fill_tokenizer(p, "data.tokens.tokenizer", tokens->tokenizer, roots, &to->tokenizer, e));
    TRY(config_path_list(p, "data.tokens.train", tokens->train, tokens->n_train, roots, &to->train, e));
    return config_path_list(p, "data.tokens.validation", tokens->validation, tokens->n_validation, roots,
                            &to->validation, e);
}

/* "" stays: there is none. */
static status_t fill_optional(struct config_paths *p, const char *field, const char *uri, enum config_path_kind kind,
                              const struct data_roots *roots, const char **ret, struct err *e) {
    *ret = "";
    return *uri ? config_path(p, field, uri, kind, roots, ret, e) : ST_OK;
}

static void fill_augment(struct data_augmentation *to, const Trainyard__V1__Augmentation *a) {
    to->crop_padding = a ? a->crop_padding : 0;
    to->flip = a && a->flip;
}

static status_t fill_images(struct data_images *to, const Trainyard__V1__ImageData *images, struct config_paths *p,
                            const struct data_roots *roots, struct err *e) {
    to->size = images->_size_case ? images->size : 0;
    to->channels = images->channels;
    fill_augment(&to->augment, images->augment);
    TRY(config_path(p, "data.images.train", images->train, CONFIG_FOLDER, roots, &to->train, e));
    return fill_optional(p, "data.images.validation", images->validation, CONFIG_FOLDER, roots, &to->validation, e);
}

static status_t fill_idx(struct data_idx *to, const Trainyard__V1__IdxData *idx, struct config_paths *p,
                         const struct data_roots *roots, struct err *e) {
    fill_augment(&to->augment, idx->augment);
    TRY(config_path(p, "data.idx.train_images", idx->train_images, CONFIG_FILE, roots, &to->train_images, e));
    TRY(config_path(p, "data.idx.train_labels", idx->train_labels, CONFIG_FILE, roots, &to->train_labels, e));
    TRY(fill_optional(p, "data.idx.validation_images", idx->validation_images, CONFIG_FILE, roots,
                      &to->validation_images, e));
    return fill_optional(p, "data.idx.validation_labels", idx->validation_labels, CONFIG_FILE, roots,
                         &to->validation_labels, e);
}

static status_t fill_reconstruction(struct data_reconstruction *to, const Trainyard__V1__ReconstructionData *r,
                                    struct config_paths *p, const struct data_roots *roots, struct err *e) {
    to->size = r->_size_case ? r->size : 0;
    to->sampled_fraction = r->sampled_fraction;
    to->center_fraction = r->center_fraction;
    to->noise = r->noise;
    TRY(config_path(p, "data.reconstruction.train", r->train, CONFIG_FOLDER, roots, &to->train, e));
    return fill_optional(p, "data.reconstruction.validation", r->validation, CONFIG_FOLDER, roots, &to->validation, e);
}

status_t config_data(struct engine_config *c, const Trainyard__V1__DataSpec *data, struct config_paths *p,
                     const struct data_roots *roots, struct err *e) {
    switch (data ? data->source_case : TRAINYARD__V1__DATA_SPEC__SOURCE__NOT_SET) {
    case TRAINYARD__V1__DATA_SPEC__SOURCE_TEXT:
        c->data.kind = DATA_TEXT;
        return fill_text(&c->data.text, data->text, p, roots, e);
    case TRAINYARD__V1__DATA_SPEC__SOURCE_TOKENS:
        c->data.kind = DATA_TOKENS;
        return fill_tokens(&c->data.tokens, data->tokens, p, roots, e);
    case TRAINYARD__V1__DATA_SPEC__SOURCE_IMAGES:
        c->data.kind = DATA_IMAGES;
        return fill_images(&c->data.images, data->images, p, roots, e);
    case TRAINYARD__V1__DATA_SPEC__SOURCE_IDX:
        c->data.kind = DATA_IDX;
        return fill_idx(&c->data.idx, data->idx, p, roots, e);
    case TRAINYARD__V1__DATA_SPEC__SOURCE_RECONSTRUCTION:
        c->data.kind = DATA_RECONSTRUCTION;
        return fill_reconstruction(&c->data.reconstruction, data->reconstruction, p, roots, e);
    default: return err_set(e, ST_INVALID_ARGUMENT, "data: no source is given");
    }
}
