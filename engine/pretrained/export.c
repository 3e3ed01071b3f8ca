/* In this order: check that the family and the averaged weights exist; remove an earlier export's config and tokenizer;
 * write model.safetensors (header, then the tensors in the checkpoint's order), the tokenizer, and config.json last. A
 * crash at any point leaves a folder without config.json, which transformers does not take for a model. */
#include "engine/pretrained/export.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/roots.h"
#include "engine/checkpoint/durable.h"
#include "engine/checkpoint/reader.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/data/tokenizer_document.h"
#include "engine/pretrained/config_json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONFIG_BYTES = 1 << 16, DOCUMENT_BYTES = 64 << 20, WRITE_ELEMENTS = 1 << 18 };

struct export {
    struct checkpoint_reader *reader;
    const char *directory;
    int folder; /* `directory`, open */
    const struct export_options *options;
    struct export_result result;
    struct checkpoint_tensor *tensors;   /* weights, sorted by name */
    struct checkpoint_segment *segments; /* a whole tensor each */
    int n;
};

static status_t write_file(const struct export *x, const char *name, const void *data, size_t n, struct err *e) {
    CLEANUP(durable_closep) struct durable *file = NULL;
    TRY(durable_open(x->folder, x->directory, name, &file, e));
    TRY(durable_write(file, data, n, e));
    return durable_commit(file, e);
}

static void list_weights(struct export *x) {
    const struct checkpoint_info *info = checkpoint_reader_info(x->reader);
    x->tensors = alloc_zeroed((size_t)info->n_tensors + 1, sizeof *x->tensors);
    x->segments = alloc_zeroed((size_t)info->n_tensors + 1, sizeof *x->segments);
    for (int i = 0; i < info->n_tensors; i++) {
        if (!checkpoint_tensor_is_weight(info->tensors[i].name))
            continue;
        x->tensors[x->n] = info->tensors[i];
        x->segments[x->n] = (struct checkpoint_segment){ x->n, 0, checkpoint_tensor_elements(&info->tensors[i]) };
        x->n++;
    }
}

static status_t source_name(const struct export *x, const char *weight, char ret[CHECKPOINT_NAME_BYTES],
                            struct err *e) {
    snprintf(ret, CHECKPOINT_NAME_BYTES, "%s%s", x->options->average ? CHECKPOINT_AVERAGE_PREFIX : "", weight);
    if (checkpoint_reader_find(x->reader, ret))
        return ST_OK;
    return err_set(e, ST_FAILED_PRECONDITION,
                   "the checkpoint has no averaged weights: it was trained without train.ema");
}

static status_t write_tensor(const struct export *x, const struct checkpoint_tensor *t, struct durable *file,
                             float *buffer, struct err *e) {
    char name[CHECKPOINT_NAME_BYTES];
    TRY(source_name(x, t->name, name, e));
    const int64_t elements = checkpoint_tensor_elements(t);
    for (int64_t at = 0, n; at < elements; at += n) {
        n = elements - at < WRITE_ELEMENTS ? elements - at : WRITE_ELEMENTS;
        TRY(checkpoint_reader_read(x->reader, name, at, n, buffer, e));
        TRY(durable_write(file, buffer, (size_t)n * sizeof *buffer, e));
    }
    return ST_OK;
}

static status_t write_weights(struct export *x, struct err *e) {
    CLEANUP(bytes_done) struct bytes header;
    bytes_init(&header, SAFETENSORS_HEADER_BYTES + 8);
    CLEANUP(freep) float *buffer = alloc_zeroed(WRITE_ELEMENTS, sizeof *buffer);
    CLEANUP(durable_closep) struct durable *file = NULL;
    TRY(safetensors_header(x->tensors, x->segments, x->n, checkpoint_reader_info(x->reader)->step, 0, 1, &header, e));
    TRY(durable_open(x->folder, x->directory, "model.safetensors", &file, e));
    TRY(durable_write(file, header.data, header.len, e));
    for (int i = 0; i < x->n; i++) {
        TRY(write_tensor(x, &x->tensors[i], file, buffer, e));
        x->result.parameters += checkpoint_tensor_elements(&x->tensors[i]);
    }
    x->result.weights_bytes = durable_bytes(file);
    return durable_commit(file, e);
}

static status_t write_text(const struct export *x, const char *name, const struct bytes *text, struct err *e) {
    return text->len ? write_file(x, name, text->data, text->len, e) : ST_OK;
}

/* A model trained on token files may have no tokenizer. */
static status_t write_tokenizer(struct export *x, const struct model_config *model, struct err *e) {
    const char *json = checkpoint_reader_info(x->reader)->tokenizer_json;
    CLEANUP(tokenizer_freep) struct tokenizer *t = NULL;
    CLEANUP(bytes_done) struct bytes document;
    CLEANUP(bytes_done) struct bytes config;
    bytes_init(&document, DOCUMENT_BYTES);
    bytes_init(&config, CONFIG_BYTES);
    if (strcmp(json, "{}") == 0)
        return ST_OK;
    TRY(tokenizer_from_json(json, &t, e));
    x->result.tokenizer = tokenizer_kind_name(t);
    TRY(tokenizer_document(t, &document, e));
    TRY(tokenizer_document_config(t, model_context(model), &config, e));
    TRY(write_text(x, "tokenizer.json", &document, e));
    return write_text(x, "tokenizer_config.json", &config, e);
}

static status_t remove_file(const struct export *x, const char *name, struct err *e) {
    return unlinkat(x->folder, name, 0) == 0 || errno == ENOENT
               ? ST_OK
               : err_errno(e, "remove '%s' from '%s'", name, x->directory);
}

/* Removes what an earlier export would leave behind. */
static status_t prepare_folder(struct export *x, struct err *e) {
    bool empty = false;
    TRY(dir_is_empty(x->directory, &empty, e));
    if (!empty && !x->options->overwrite)
        return err_set(e, ST_ALREADY_EXISTS, "'%s' is not empty: give another folder, or --overwrite", x->directory);
    TRY(roots_make(NULL, x->directory, 0777, &x->folder, e));
    TRY(remove_file(x, "config.json", e));
    TRY(remove_file(x, "tokenizer_config.json", e));
    return remove_file(x, "tokenizer.json", e);
}

static status_t check_average(const struct export *x, struct err *e) {
    char name[CHECKPOINT_NAME_BYTES];
    return x->n > 0 ? source_name(x, x->tensors[0].name, name, e) : ST_OK;
}

static status_t write_all(struct export *x, struct err *e) {
    struct model_config model;
    CLEANUP(bytes_done) struct bytes config;
    bytes_init(&config, CONFIG_BYTES);
    list_weights(x);
    TRY(model_from_layout(checkpoint_reader_info(x->reader)->layout_json, &model, e));
    TRY(config_json_write(&model, &config, e));
    TRY(check_average(x, e));
    TRY(prepare_folder(x, e));
    TRY(write_weights(x, e));
    TRY(write_tokenizer(x, &model, e));
    return write_file(x, "config.json", config.data, config.len, e);
}

status_t pretrained_export(const char *checkpoint, const char *directory, const struct export_options *options,
                           struct export_result *ret, struct err *e) {
    struct export x = { .directory = directory, .folder = -1, .options = options };
    TRY(checkpoint_reader_open(checkpoint, NULL, &x.reader, e));
    status_t st = write_all(&x, e);
    free(x.tensors);
    free(x.segments);
    closep(&x.folder);
    checkpoint_reader_close(x.reader);
    *ret = x.result;
    return st;
}
