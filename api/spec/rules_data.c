#include "api/spec/rules_parts.h"

#include <stdio.h>
#include <string.h>

enum { MOST_FILES = 256, MOST_PATH_BYTES = 4096, MOST_SIDE = SPEC_MOST_PIXELS };

void rules_file(const char *uri, const char *path, struct spec_problems *p) {
    char local[MOST_PATH_BYTES];
    struct err e;
    if (spec_uri_path(uri, local, sizeof local, &e) != ST_OK)
        problem_add(p, "%s: %s", path, e.msg);
}

static void check_files(char *const *files, size_t n, const char *field, bool needed, struct spec_problems *p) {
    if (n == 0 && needed)
        problem_add(p, "%s: must name at least one file", field);
    if (n > MOST_FILES)
        problem_add(p, "%s: %zu files are more than %d", field, n, MOST_FILES);
    for (size_t i = 0; i < n && i < MOST_FILES; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s[%zu]", field, i);
        rules_file(files[i], path, p);
    }
}

static void check_tokenizer(const char *path, const char *tokenizer, struct spec_problems *p) {
    static const char *const tokenizers[] = { "char", "byte", "the file:// URI of a tokenizer", NULL };
    if (strncmp(tokenizer, "file:", 5) == 0)
        rules_file(tokenizer, path, p);
    else
        check_choice(p, path, tokenizer, tokenizers);
}

static void check_text(const Trainyard__V1__TextData *text, struct spec_problems *p) {
    check_files(text->files, text->n_files, "data.text.files", true, p);
    check_tokenizer("data.text.tokenizer", text->tokenizer, p);
    check_real_below(p, "data.text.validation_fraction", text->validation_fraction, 0, 1);
}

static void check_tokens(const Trainyard__V1__TokenData *tokens, struct spec_problems *p) {
    check_files(tokens->train, tokens->n_train, "data.tokens.train", true, p);
    check_files(tokens->validation, tokens->n_validation, "data.tokens.validation", false, p);
    if (*tokens->tokenizer)
        check_tokenizer("data.tokens.tokenizer", tokens->tokenizer, p);
    if (strcmp(tokens->tokenizer, "char") == 0)
        problem_add(p, "data.tokens.tokenizer: char is made from a text, and token files have none");
    if (tokens->token_bytes != 2 && tokens->token_bytes != 4)
        problem_add(p, "data.tokens.token_bytes: %d is not one of: 2, 4", tokens->token_bytes);
}

static void check_needed(const char *uri, const char *path, struct spec_problems *p) {
    if (*uri)
        rules_file(uri, path, p);
    else
        problem_add(p, "%s: must be given", path);
}

static void check_augment(const Trainyard__V1__Augmentation *a, const char *path, struct spec_problems *p) {
    char field[64];
    snprintf(field, sizeof field, "%s.crop_padding", path);
    check_int(p, field, a->crop_padding, 0, MOST_SIDE);
}

static void check_images(const Trainyard__V1__ImageData *images, struct spec_problems *p) {
    check_needed(images->train, "data.images.train", p);
    if (*images->validation)
        rules_file(images->validation, "data.images.validation", p);
    if (images->_size_case)
        check_int(p, "data.images.size", images->size, 1, MOST_SIDE);
    if (images->channels != 1 && images->channels != 3)
        problem_add(p, "data.images.channels: %d is not one of: 1, 3", images->channels);
    check_augment(images->augment, "data.images.augment", p);
}

static void check_idx(const Trainyard__V1__IdxData *idx, struct spec_problems *p) {
    check_needed(idx->train_images, "data.idx.train_images", p);
    check_needed(idx->train_labels, "data.idx.train_labels", p);
    if (*idx->validation_images && !*idx->validation_labels)
        problem_add(p, "data.idx.validation_labels: must be given with validation_images");
    else if (!*idx->validation_images && *idx->validation_labels)
        problem_add(p, "data.idx.validation_images: must be given with validation_labels");
    if (*idx->validation_images)
        rules_file(idx->validation_images, "data.idx.validation_images", p);
    if (*idx->validation_labels)
        rules_file(idx->validation_labels, "data.idx.validation_labels", p);
    check_augment(idx->augment, "data.idx.augment", p);
}

static void check_reconstruction(const Trainyard__V1__ReconstructionData *r, struct spec_problems *p) {
    check_needed(r->train, "data.reconstruction.train", p);
    if (*r->validation)
        rules_file(r->validation, "data.reconstruction.validation", p);
    if (r->_size_case && (r->size < 2 || r->size > MOST_SIDE || (r->size & (r->size - 1)) != 0))
        problem_add(p, "data.reconstruction.size: %d is not a power of two from 2 to %d", r->size, MOST_SIDE);
    bool sampled = check_real(p, "data.reconstruction.sampled_fraction", r->sampled_fraction, 0.001, 1);
    if (sampled)
        check_real(p, "data.reconstruction.center_fraction", r->center_fraction, 0, r->sampled_fraction);
    check_real(p, "data.reconstruction.noise", r->noise, 0, 1e6);
}

void rules_data(const Trainyard__V1__DataSpec *data, struct spec_problems *p) {
    switch (data ? data->source_case : TRAINYARD__V1__DATA_SPEC__SOURCE__NOT_SET) {
    case TRAINYARD__V1__DATA_SPEC__SOURCE_TEXT: check_text(data->text, p); break;
    case TRAINYARD__V1__DATA_SPEC__SOURCE_TOKENS: check_tokens(data->tokens, p); break;
    case TRAINYARD__V1__DATA_SPEC__SOURCE_IMAGES: check_images(data->images, p); break;
    case TRAINYARD__V1__DATA_SPEC__SOURCE_IDX: check_idx(data->idx, p); break;
    case TRAINYARD__V1__DATA_SPEC__SOURCE_RECONSTRUCTION: check_reconstruction(data->reconstruction, p); break;
    default: problem_add(p, "data: give exactly one of text, tokens, images, idx, reconstruction"); break;
    }
}

bool rules_has_validation(const Trainyard__V1__DataSpec *data) {
    switch (data ? data->source_case : TRAINYARD__V1__DATA_SPEC__SOURCE__NOT_SET) {
    case TRAINYARD__V1__DATA_SPEC__SOURCE_TEXT: return data->text->validation_fraction != 0;
    case TRAINYARD__V1__DATA_SPEC__SOURCE_TOKENS: return data->tokens->n_validation > 0;
    case TRAINYARD__V1__DATA_SPEC__SOURCE_IMAGES: return *data->images->validation != '\0';
    case TRAINYARD__V1__DATA_SPEC__SOURCE_IDX: return *data->idx->validation_images != '\0';
    case TRAINYARD__V1__DATA_SPEC__SOURCE_RECONSTRUCTION: return *data->reconstruction->validation != '\0';
    default: return false;
    }
}
