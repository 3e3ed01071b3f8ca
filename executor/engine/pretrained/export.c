#include "executor/engine/pretrained/export.h"

#include "base/bytes.h"
#include "base/file.h"
#include "executor/engine/checkpoint/durable.h"
#include "executor/engine/checkpoint/reader.h"
#include "executor/engine/checkpoint/safetensors.h"
#include "executor/engine/data/tokenizer.h"
#include "executor/engine/pretrained/config_json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES = 1 << 16, WRITE_ELEMENTS = 1 << 18 };

struct exported {
    struct checkpoint_reader *reader;
    const char *directory;
    bool average;
    struct checkpoint_tensor *tensors; /* weights, by name */
    struct checkpoint_piece *pieces;   /* each whole */
    int n;
};

static status_t write_file(const struct exported *x, const char *name, const void *data, size_t n, struct err *e) {
    CLEANUP(durable_closep) struct durable *file = NULL;
    TRY(durable_open(x->directory, name, &file, e));
    TRY(durable_write(file, data, n, e));
    return durable_commit(file, e);
}

static status_t list_weights(struct exported *x, struct err *e) {
    const struct checkpoint_info *info = checkpoint_reader_info(x->reader);
    x->tensors = calloc((size_t)info->n_tensors + 1, sizeof *x->tensors);
    x->pieces = calloc((size_t)info->n_tensors + 1, sizeof *x->pieces);
    if (!x->tensors || !x->pieces)
        return err_errno(e, "allocate %d tensors", info->n_tensors);
    for (int i = 0; i < info->n_tensors; i++) {
        if (!checkpoint_tensor_is_weight(info->tensors[i].name))
            continue;
        x->tensors[x->n] = info->tensors[i];
        x->pieces[x->n] = (struct checkpoint_piece){ x->n, 0, checkpoint_tensor_elements(&info->tensors[i]) };
        x->n++;
    }
    return ST_OK;
}

static status_t source_name(const struct exported *x, const char *weight, char ret[CHECKPOINT_NAME_BYTES],
                            struct err *e) {
    snprintf(ret, CHECKPOINT_NAME_BYTES, "%s%s", x->average ? CHECKPOINT_AVERAGE_PREFIX : "", weight);
    if (checkpoint_reader_find(x->reader, ret))
        return ST_OK;
    return err_set(e, ST_FAILED_PRECONDITION,
                   "the checkpoint has no averaged weights: it was trained without train.ema");
}

static status_t write_tensor(const struct exported *x, const struct checkpoint_tensor *t, struct durable *file,
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

static status_t write_weights(const struct exported *x, struct err *e) {
    struct bytes header;
    bytes_init(&header, SAFETENSORS_HEADER_BYTES + 8);
    CLEANUP(freep) float *buffer = malloc(WRITE_ELEMENTS * sizeof *buffer);
    CLEANUP(durable_closep) struct durable *file = NULL;
    status_t st = buffer ? ST_OK : err_errno(e, "allocate a buffer");
    if (st == ST_OK)
        st = safetensors_header(x->tensors, x->pieces, x->n, checkpoint_reader_info(x->reader)->step, 0, 1, &header, e);
    if (st == ST_OK)
        st = durable_open(x->directory, "model.safetensors", &file, e);
    if (st == ST_OK)
        st = durable_write(file, header.data, header.len, e);
    bytes_done(&header);
    TRY(st);
    for (int i = 0; i < x->n; i++)
        TRY(write_tensor(x, &x->tensors[i], file, buffer, e));
    return durable_commit(file, e);
}

/* Characters and bytes have no form in tokenizers' files: then there is none. */
static status_t write_tokenizer(const struct exported *x, struct err *e) {
    CLEANUP(tokenizer_freep) struct tokenizer *t = NULL;
    TRY(tokenizer_from_json(checkpoint_reader_info(x->reader)->tokenizer_json, &t, e));
    const char *text = tokenizer_huggingface(t);
    return text ? write_file(x, "tokenizer.json", text, strlen(text), e) : ST_OK;
}

static status_t write_all(struct exported *x, struct err *e) {
    struct model_config model;
    struct bytes config;
    TRY(model_from_layout(checkpoint_reader_info(x->reader)->layout_json, &model, e));
    bytes_init(&config, CONFIG_BYTES);
    status_t st = config_json_write(&model, &config, e);
    if (st == ST_OK)
        st = list_weights(x, e);
    if (st == ST_OK)
        st = dir_make(x->directory, 0755, e);
    if (st == ST_OK)
        st = write_weights(x, e);
    if (st == ST_OK)
        st = write_tokenizer(x, e);
    if (st == ST_OK)
        st = write_file(x, "config.json", config.data, config.len, e);
    bytes_done(&config);
    return st;
}

status_t pretrained_export(const char *checkpoint, const char *directory, bool average, struct err *e) {
    struct exported x = { .directory = directory, .average = average };
    TRY(checkpoint_reader_open(checkpoint, NULL, &x.reader, e));
    status_t st = write_all(&x, e);
    free(x.tensors);
    free(x.pieces);
    checkpoint_reader_close(x.reader);
    return st;
}
