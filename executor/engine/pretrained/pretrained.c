#include "executor/engine/pretrained/pretrained.h"

#include "base/file.h"
#include "executor/engine/checkpoint/reader.h"
#include "executor/engine/pretrained/config_json.h"
#include "executor/engine/pretrained/folder.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONFIG_BYTES = 1 << 20, READ_ELEMENTS = 1 << 20 };

/* One of reader and folder is there. */
struct pretrained {
    char directory[PATH_MAX];
    struct pretrained_options options;
    struct model_config model;
    struct checkpoint_reader *reader;
    struct folder *folder;
};

/* A tensor of either kind of folder. */
struct found {
    const struct folder_tensor *tensor; /* NULL: of the checkpoint, by name */
    const char *name;
    int n_dims;
    int64_t shape[CHECKPOINT_RANK];
};

struct pretrained *pretrained_close(struct pretrained *p) {
    if (!p)
        return NULL;
    checkpoint_reader_close(p->reader);
    folder_close(p->folder);
    free(p);
    return NULL;
}

const struct model_config *pretrained_model(const struct pretrained *p) { return &p->model; }

static bool has(const struct pretrained *p, const char *file) {
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", p->directory, file);
    return access(path, F_OK) == 0;
}

static status_t open_checkpoint(struct pretrained *p, struct err *e) {
    const struct checkpoint_reader_options options = { .progress = p->options.progress, .ctx = p->options.ctx };
    TRY(checkpoint_reader_open(p->directory, &options, &p->reader, e));
    return model_from_layout(checkpoint_reader_info(p->reader)->layout_json, &p->model, e);
}

static status_t open_folder(struct pretrained *p, struct err *e) {
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/config.json", p->directory);
    struct bytes text;
    bytes_init(&text, CONFIG_BYTES);
    status_t st = file_read(path, &text, e);
    if (st == ST_OK && (st = config_json_parse(text.data, text.len, &p->model, e)) != ST_OK)
        st = err_prefix(e, st, "'%s': ", path);
    bytes_done(&text);
    TRY(st);
    return folder_open(p->directory, &p->folder, e);
}

status_t pretrained_open(const char *directory, const struct pretrained_options *options, struct pretrained **ret,
                         struct err *e) {
    CLEANUP(pretrained_closep) struct pretrained *p = calloc(1, sizeof *p);
    if (!p)
        return err_errno(e, "allocate a folder of weights");
    if (snprintf(p->directory, sizeof p->directory, "%s", directory) >= (int)sizeof p->directory)
        return err_set(e, ST_INVALID_ARGUMENT, "the path '%.80s...' is too long", directory);
    if (options)
        p->options = *options;
    if (has(p, "manifest.json"))
        TRY(open_checkpoint(p, e));
    else if (has(p, "config.json"))
        TRY(open_folder(p, e));
    else
        return err_set(e, ST_NOT_FOUND,
                       "'%s' is neither a checkpoint (manifest.json) nor a folder of transformers (config.json)",
                       directory);
    *ret = take_ptr(&p);
    return ST_OK;
}

/* --- finding a parameter ---*/

static bool find_exactly(const struct pretrained *p, const char *name, struct found *ret) {
    *ret = (struct found){ .name = name };
    if (p->reader) {
        const struct checkpoint_tensor *t = checkpoint_reader_find(p->reader, name);
        if (t) {
            ret->n_dims = t->n_dims;
            memcpy(ret->shape, t->shape, sizeof ret->shape);
        }
        return t;
    }
    const struct folder_tensor *t = ret->tensor = folder_find(p->folder, name);
    if (t) {
        ret->n_dims = t->n_dims;
        memcpy(ret->shape, t->shape, sizeof ret->shape);
    }
    return t;
}

/* With its first part, or without it. */
static bool find_named(const struct pretrained *p, const char *name, struct found *ret) {
    static const char *const roots[] = { "transformer.", "model." };
    if (find_exactly(p, name, ret))
        return true;
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++)
        if (strncmp(name, roots[i], strlen(roots[i])) == 0 && find_exactly(p, name + strlen(roots[i]), ret))
            return true;
    return false;
}

static bool find(const struct pretrained *p, const char *name, struct found *ret) {
    if (find_named(p, name, ret))
        return true;
    const bool tied = p->model.family == MODEL_LLAMA && p->model.llama.tied_embeddings;
    return tied && strcmp(name, "lm_head.weight") == 0 && find_named(p, "model.embed_tokens.weight", ret);
}

/* --- does it fit ---*/

static bool is_position_table(const char *name) {
    const char *end = strstr(name, "wpe.weight");
    return end && strcmp(end, "wpe.weight") == 0;
}

static status_t check_parameter(const struct pretrained *p, const struct parameter *parameter, struct err *e) {
    struct found t;
    if (!find(p, parameter->name, &t))
        return err_set(e, ST_INVALID_ARGUMENT, "'%s' has no tensor %s", p->directory, parameter->name);
    const struct shape *s = &parameter->shape;
    bool same = t.n_dims == s->n;
    for (int i = 0; same && i < s->n; i++)
        same = t.shape[i] == s->dim[i] || (i == 0 && is_position_table(parameter->name) && t.shape[0] > s->dim[0]);
    return same ? ST_OK
                : err_set(e, ST_INVALID_ARGUMENT, "the tensor %s of '%s' has another shape than the model's",
                          parameter->name, p->directory);
}

/* Their model with what may differ taken from ours. */
static struct model_config as_ours(const struct model_config *theirs, const struct model_config *ours) {
    struct model_config m = *theirs;
    if (m.family != ours->family)
        return m;
    switch (m.family) {
    case MODEL_GPT:
        if (m.gpt.context > ours->gpt.context)
            m.gpt.context = ours->gpt.context;
        break;
    case MODEL_LLAMA:
        m.llama.context = ours->llama.context;
        m.llama.tied_embeddings = ours->llama.tied_embeddings;
        break;
    default: break;
    }
    return m;
}

status_t pretrained_check(const struct pretrained *p, const struct model_config *model, const struct graph *graph,
                          struct err *e) {
    const struct model_config theirs = as_ours(&p->model, model);
    struct err why;
    if (model_takes(model, &theirs, &why) != ST_OK)
        return err_set(e, ST_INVALID_ARGUMENT, "'%s': %s", p->directory, why.msg);
    for (int i = 0; i < graph->n_parameters; i++)
        TRY(check_parameter(p, &graph->parameters[i], e));
    return ST_OK;
}

/* --- reading ---*/

status_t pretrained_read(struct pretrained *p, const char *parameter, int64_t first, int64_t count, float *data,
                         struct err *e) {
    struct found t;
    if (!find(p, parameter, &t))
        return err_set(e, ST_NOT_FOUND, "'%s' has no tensor %s", p->directory, parameter);
    if (p->reader)
        return checkpoint_reader_read(p->reader, t.name, first, count, data, e);
    const int64_t elements = folder_tensor_elements(t.tensor);
    if (first < 0 || count < 0 || first > elements || count > elements - first)
        return err_set(e, ST_OUT_OF_RANGE, "elements %lld to %lld are outside the tensor %s of %lld", (long long)first,
                       (long long)(first + count), parameter, (long long)elements);
    for (int64_t at = 0, n; at < count; at += n) { /* in steps, so that progress is told */
        n = count - at < READ_ELEMENTS ? count - at : READ_ELEMENTS;
        TRY(folder_read(p->folder, t.tensor, first + at, n, data + at, e));
        if (p->options.progress)
            p->options.progress(p->options.ctx);
    }
    return ST_OK;
}
