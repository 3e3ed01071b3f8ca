#include "engine/model/model.h"

#include "engine/data/source.h"

#include <stdio.h>
#include <string.h>

#define MODEL_ADDRESS(name) &model_##name,
static const struct model_kind *const KINDS[] = { MODEL_KINDS(MODEL_ADDRESS) NULL };

const struct model_kind *model_kind_find(const char *name) {
    for (int i = 0; KINDS[i]; i++)
        if (strcmp(KINDS[i]->name, name) == 0)
            return KINDS[i];
    return NULL;
}

struct model_data model_data_of(const struct source_info *info) {
    struct model_data d = { .vocabulary = info->vocabulary, .classes = info->classes };
    for (int i = 0; i < info->n_inputs; i++) {
        const struct source_input *in = &info->inputs[i];
        d.mixup |= in->input == BATCH_PARTNERS;
        if ((in->input == BATCH_IMAGES || in->input == BATCH_REFERENCE) && in->n_dims == 3) {
            d.channels = (int)in->dim[0];
            d.height = (int)in->dim[1];
            d.width = (int)in->dim[2];
        }
    }
    return d;
}

const int *model_int(const struct model_config *c, const char *name) {
    return c->kind ? member_int(c->kind->members, c->kind->n_members, c->shape, name) : NULL;
}

int model_context(const struct model_config *config) {
    const int *context = model_int(config, "context");
    return context ? *context : 0;
}

int model_vocabulary(const struct model_config *config) {
    const int *vocabulary = model_int(config, "vocabulary");
    return vocabulary ? *vocabulary : 0;
}

/* If the shape's number is 0, it becomes the data's number; otherwise it must be at least the data's number. */
static status_t fill_or_check_size(struct model_config *c, const char *field, int data, const char *whose,
                                   struct err *e) {
    int *n = (int *)(uintptr_t)model_int(c, field);
    if (n && *n == 0)
        *n = data;
    if (n && *n < data)
        return err_set(e, ST_INVALID_ARGUMENT, "model.%s.%s: %d is less than the %s's %d", c->kind->name, field, *n,
                       whose, data);
    return ST_OK;
}

static status_t check_samples(const struct model_kind *kind, const struct model_data *data, struct err *e) {
    static const char *const names[] = {
        [MODEL_TOKENS] = "tokens", [MODEL_LABELLED_IMAGES] = "labelled images", [MODEL_MEASUREMENTS] = "measurements"
    };
    const bool images = data->height != 0, labels = data->classes != 0;
    const bool fits = kind->samples == MODEL_TOKENS            ? data->vocabulary != 0
                      : kind->samples == MODEL_LABELLED_IMAGES ? images && labels
                                                               : images && !labels;
    return fits ? ST_OK
                : err_set(e, ST_INVALID_ARGUMENT, "model.%s: reads %s, but the data has none", kind->name,
                          names[kind->samples]);
}

status_t model_resolve(struct model_config *config, const struct model_data *data, struct err *e) {
    if (!config->kind)
        return err_set(e, ST_INVALID_ARGUMENT, "model: no family is given");
    TRY(check_samples(config->kind, data, e));
    TRY(fill_or_check_size(config, "vocabulary", data->vocabulary, "tokenizer", e));
    TRY(fill_or_check_size(config, "classes", data->classes, "data", e));
    if (config->kind->resolve)
        config->kind->resolve(config->shape, data);
    return ST_OK;
}

/* A family that reads a sample's own label alone would be trained on wrong ones. */
static status_t check_mixup(const struct model_kind *kind, const struct model_data *data, const struct graph *g,
                            struct err *e) {
    for (int i = 0; i < g->n_batch; i++)
        if (g->tensors[g->batch[i]].input == BATCH_PARTNERS)
            return ST_OK;
    return !data->mixup ? ST_OK
                        : err_set(e, ST_INVALID_ARGUMENT,
                                  "model.%s: does not read the second labels of mixed images: leave out "
                                  "`augment.mixup` of the data",
                                  kind->name);
}

status_t model_build(const struct model_config *config, const struct model_data *data, int micro_batch,
                     enum dtype element, struct graph **ret, struct err *e) {
    if (!config->kind)
        return err_set(e, ST_INVALID_ARGUMENT, "model: no family is given");
    if (micro_batch < 1)
        return err_set(e, ST_INVALID_ARGUMENT, "train.micro_batch: %d is less than 1", micro_batch);
    CLEANUP(graph_freep) struct graph *g = graph_new(element);
    g->micro_batch = micro_batch;
    TRY(config->kind->build(config->shape, data, g, e));
    TRY(check_mixup(config->kind, data, g, e));
    TRY(graph_differentiate(g, e));
    *ret = take_ptr(&g);
    return ST_OK;
}
