/* Both kinds of folder are hidden behind `find`, which looks for a parameter's tensor in three steps: by its exact
 * name; without the prefix "transformer." or "model."; and for the head of a tied Llama, the embedding. Shapes are
 * compared in pretrained_check before anything is read. */
#include "engine/pretrained/pretrained.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/roots.h"
#include "engine/checkpoint/reader.h"
#include "engine/pretrained/config_json.h"
#include "engine/pretrained/weights_folder.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONFIG_BYTES = 1 << 20, READ_ELEMENTS = 1 << 20 };

/* Either reader or folder is set. */
struct pretrained {
    char directory[PATH_MAX];
    struct pretrained_options options;
    struct model_config model;
    struct checkpoint_reader *reader;
    struct weights_folder *folder;
};

/* A tensor in either kind of folder. */
struct found {
    const struct weights_folder_tensor *tensor; /* NULL: of the checkpoint, by name */
    const char *name;
    int n_dims;
    int64_t shape[CHECKPOINT_RANK];
};

struct pretrained *pretrained_close(struct pretrained *p) {
    if (!p)
        return NULL;
    checkpoint_reader_close(p->reader);
    weights_folder_close(p->folder);
    free(p);
    return NULL;
}

const struct model_config *pretrained_model(const struct pretrained *p) { return &p->model; }

static bool has(const struct pretrained *p, const char *file) {
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", p->directory, file);
    return roots_has(p->options.roots, path);
}

static status_t open_checkpoint(struct pretrained *p, struct err *e) {
    const struct checkpoint_reader_options options = { .roots = p->options.roots,
                                                       .progress = p->options.progress,
                                                       .ctx = p->options.ctx };
    TRY(checkpoint_reader_open(p->directory, &options, &p->reader, e));
    return model_from_layout(checkpoint_reader_info(p->reader)->layout_json, &p->model, e);
}

static status_t open_folder(struct pretrained *p, struct err *e) {
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/config.json", p->directory);
    CLEANUP(bytes_done) struct bytes text;
    bytes_init(&text, CONFIG_BYTES);
    TRY(roots_read(p->options.roots, path, &text, e));
    const status_t st = config_json_parse(text.data, text.len, &p->model, e);
    if (st != ST_OK)
        return err_prefix(e, st, "'%s': ", path);
    return weights_folder_open(p->options.roots, p->directory, &p->folder, e);
}

status_t pretrained_open(const char *directory, const struct pretrained_options *options, struct pretrained **ret,
                         struct err *e) {
    CLEANUP(pretrained_closep) struct pretrained *p = alloc_zeroed(1, sizeof *p);
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

/* --- finding a parameter --- */

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
    const struct weights_folder_tensor *t = ret->tensor = weights_folder_find(p->folder, name);
    if (t) {
        ret->n_dims = t->n_dims;
        memcpy(ret->shape, t->shape, sizeof ret->shape);
    }
    return t;
}

/* With or without the prefix. */
static bool find_named(const struct pretrained *p, const char *name, struct found *ret) {
    static const char *const prefixes[] = { "transformer.", "model." };
    if (find_exactly(p, name, ret))
        return true;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0 && find_exactly(p, name + strlen(prefixes[i]), ret))
            return true;
    return false;
}

static bool find(const struct pretrained *p, const char *name, struct found *ret) {
    if (find_named(p, name, ret))
        return true;
    const bool tied = p->model.kind == &model_llama && p->model.llama.tied_embeddings;
    return tied && strcmp(name, "lm_head.weight") == 0 && find_named(p, "model.embed_tokens.weight", ret);
}

/* --- checking --- */

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

/* `theirs` with the fields that may differ taken from `ours`. */
static struct model_config with_allowed_differences(const struct model_config *theirs,
                                                    const struct model_config *ours) {
    struct model_config m = *theirs;
    if (m.kind != ours->kind)
        return m;
    if (m.kind == &model_gpt && m.gpt.context > ours->gpt.context)
        m.gpt.context = ours->gpt.context;
    if (m.kind == &model_llama) {
        m.llama.context = ours->llama.context;
        m.llama.tied_embeddings = ours->llama.tied_embeddings;
    }
    return m;
}

status_t pretrained_fits(const struct model_config *theirs, const struct model_config *model, struct err *e) {
    const struct model_config same = with_allowed_differences(theirs, model);
    return model_takes(model, &same, e);
}

status_t pretrained_check(const struct pretrained *p, const struct model_config *model, const struct graph *graph,
                          struct err *e) {
    struct err why;
    if (pretrained_fits(&p->model, model, &why) != ST_OK)
        return err_set(e, ST_INVALID_ARGUMENT, "'%s': %s", p->directory, why.msg);
    for (int i = 0; i < graph->n_parameters; i++)
        TRY(check_parameter(p, &graph->parameters[i], e));
    return ST_OK;
}

/* --- reading --- */

status_t pretrained_read(struct pretrained *p, const char *parameter, int64_t first, int64_t count, float *data,
                         struct err *e) {
    struct found t;
    if (!find(p, parameter, &t))
        return err_set(e, ST_NOT_FOUND, "'%s' has no tensor %s", p->directory, parameter);
    if (p->reader)
        return checkpoint_reader_read(p->reader, t.name, first, count, data, e);
    const int64_t elements = weights_folder_tensor_elements(t.tensor);
    if (first < 0 || count < 0 || first > elements || count > elements - first)
        return err_set(e, ST_OUT_OF_RANGE, "elements %lld to %lld are outside the tensor %s of %lld", (long long)first,
                       (long long)(first + count), parameter, (long long)elements);
    for (int64_t at = 0, n; at < count; at += n) { /* in steps, so that progress is reported */
        n = count - at < READ_ELEMENTS ? count - at : READ_ELEMENTS;
        TRY(weights_folder_read(p->folder, t.tensor, first + at, n, data + at, e));
        if (p->options.progress)
            p->options.progress(p->options.ctx);
    }
    return ST_OK;
}
