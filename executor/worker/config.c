#include "executor/worker/config.h"

#include "api/codec/text.h"
#include "api/spec/spec.h"
#include "base/limits.h"
#include "executor/engine/run/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SPEC_JSON_MOST_BYTES = 4 * LIMIT_SPEC_BYTES }; /* YAML that was compact becomes longer as JSON */

struct config {
    struct engine_config engine;
    char **files;
    struct bytes spec_json;
};

struct engine_config *config_engine(struct config *c) {
    return &c->engine;
}

struct config *config_close(struct config *c) {
    if (!c)
        return NULL;
    for (int i = 0; i < c->engine.data.n_files; i++)
        free(c->files[i]);
    free(c->files);
    bytes_done(&c->spec_json);
    free(c);
    return NULL;
}

/* The index of a resolved spec's word in a list of choices. */
static status_t choice_of(const char *field, const char *word, const char *const *choices, int n, int *ret,
                          struct err *e) {
    for (int i = 0; i < n; i++)
        if (word && strcmp(word, choices[i]) == 0) {
            *ret = i;
            return ST_OK;
        }
    return err_set(e, ST_INVALID_ARGUMENT, "%s: '%s' is not a choice", field, word ? word : "");
}

/* ---- data files ---- */

/* The path of an open descriptor without symbolic links. */
static status_t fd_path(int fd, char ret[PATH_MAX], struct err *e) {
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, ret, PATH_MAX - 1);
    if (n < 0)
        return err_errno(e, "resolve descriptor %d", fd);
    ret[n] = '\0';
    return ST_OK;
}

static bool path_below(const char *path, const char *root) {
    size_t n = strlen(root);
    while (n > 1 && root[n - 1] == '/')
        n--;
    return n == 1 || (strncmp(path, root, n) == 0 && path[n] == '/');
}

static bool roots_admit(const struct data_roots *roots, const char *path) {
    char root[PATH_MAX];
    for (size_t i = 0; i < roots->n; i++)
        if (realpath(roots->paths[i], root) && path_below(path, root))
            return true;
    return false;
}

/* O_NONBLOCK: a named pipe is refused, not waited for. */
static status_t file_admit(const char *path, const struct data_roots *roots, char **ret, struct err *e) {
    CLEANUP(closep) int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(e, "open '%s'", path);
    struct stat info;
    char resolved[PATH_MAX];
    if (fstat(fd, &info) < 0)
        return err_errno(e, "stat '%s'", path);
    TRY(fd_path(fd, resolved, e));
    if (roots && roots->n && !roots_admit(roots, resolved))
        return err_set(e, ST_PERMISSION_DENIED, "'%s' is outside of the folders that this executor may read data from",
                       path);
    if (!S_ISREG(info.st_mode))
        return err_set(e, ST_INVALID_ARGUMENT, "'%s' is not a regular file", path);
    *ret = strdup(resolved);
    return *ret ? ST_OK : err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a path");
}

static status_t files_fill(struct config *c, const Trainyard__V1__TextData *text, const struct data_roots *roots,
                           struct err *e) {
    c->files = calloc(text->n_files + 1, sizeof *c->files);
    if (!c->files)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the data's paths");
    for (size_t i = 0; i < text->n_files; i++) {
        char path[PATH_MAX];
        struct err why;
        status_t st = spec_uri_path(text->files[i], path, sizeof path, &why);
        if (st == ST_OK)
            st = file_admit(path, roots, &c->files[i], &why);
        if (st != ST_OK)
            return err_set(e, st == ST_RESOURCE_EXHAUSTED ? st : ST_INVALID_ARGUMENT, "data.text.files[%zu]: %s", i,
                           why.msg);
        c->engine.data.n_files++;
    }
    c->engine.data.files = (const char *const *)c->files;
    return ST_OK;
}

static status_t data_fill(struct config *c, const Trainyard__V1__DataSpec *data, const struct data_roots *roots,
                          struct err *e) {
    static const char *const tokenizers[] = { [ENGINE_TOKENIZER_CHAR] = "char", [ENGINE_TOKENIZER_BYTE] = "byte" };
    if (!data || data->source_case != TRAINYARD__V1__DATA_SPEC__SOURCE_TEXT)
        return err_set(e, ST_INVALID_ARGUMENT, "data: text is the only source");
    const Trainyard__V1__TextData *text = data->text;
    c->engine.data.validation_fraction = text->validation_fraction;
    int choice = 0;
    TRY(choice_of("data.text.tokenizer", text->tokenizer, tokenizers, 2, &choice, e));
    c->engine.data.tokenizer = (enum engine_tokenizer)choice;
    return files_fill(c, text, roots, e);
}

/* ---- the rest, field by field ---- */

static status_t model_fill(struct engine_model *m, const Trainyard__V1__ModelSpec *model, struct err *e) {
    if (!model || model->family_case != TRAINYARD__V1__MODEL_SPEC__FAMILY_GPT)
        return err_set(e, ST_INVALID_ARGUMENT, "model: gpt is the only family");
    const Trainyard__V1__GptModel *gpt = model->gpt;
    *m = (struct engine_model){ .layers = gpt->layers,
                                .heads = gpt->heads,
                                .width = gpt->width,
                                .context = gpt->context,
                                .vocabulary = gpt->vocabulary,
                                .dropout = gpt->dropout };
    return ST_OK;
}

static void schedule_fill(struct engine_train *t, const Trainyard__V1__ScheduleSpec *s) {
    t->schedule.kind = ENGINE_SCHEDULE_CONSTANT;
    if (s && s->kind_case == TRAINYARD__V1__SCHEDULE_SPEC__KIND_COSINE) {
        t->schedule.kind = ENGINE_SCHEDULE_COSINE;
        t->schedule.warmup_steps = s->cosine->warmup_steps;
        t->schedule.min_lr = s->cosine->min_lr;
    } else if (s && s->kind_case == TRAINYARD__V1__SCHEDULE_SPEC__KIND_LINEAR) {
        t->schedule.kind = ENGINE_SCHEDULE_LINEAR;
        t->schedule.warmup_steps = s->linear->warmup_steps;
        t->schedule.min_lr = s->linear->min_lr;
    } else if (s && s->kind_case == TRAINYARD__V1__SCHEDULE_SPEC__KIND_CONSTANT) {
        t->schedule.warmup_steps = s->constant->warmup_steps;
    }
}

static status_t train_fill(struct engine_train *t, const Trainyard__V1__TrainSpec *spec, struct err *e) {
    static const char *const reduces[] = { [ENGINE_REDUCE_STEP] = "step", [ENGINE_REDUCE_MICRO_BATCH] = "micro_batch" };
    static const char *const numerics[] = { [ENGINE_NUMERICS_REPRODUCIBLE] = "reproducible",
                                            [ENGINE_NUMERICS_STRICT] = "strict",
                                            [ENGINE_NUMERICS_FAST] = "fast" };
    if (!spec || !spec->optimizer || spec->optimizer->kind_case != TRAINYARD__V1__OPTIMIZER_SPEC__KIND_ADAMW)
        return err_set(e, ST_INVALID_ARGUMENT, "train.optimizer: adamw is the only one");
    const Trainyard__V1__AdamW *adamw = spec->optimizer->adamw;
    int choice = 0;
    TRY(choice_of("train.reduce", spec->reduce, reduces, 2, &choice, e));
    t->reduce = (enum engine_reduce)choice;
    TRY(choice_of("train.numerics", spec->numerics, numerics, 3, &choice, e));
    t->numerics = (enum engine_numerics)choice;
    t->steps = spec->steps;
    t->global_batch = spec->global_batch;
    t->micro_batch = spec->micro_batch;
    t->lanes = spec->lanes;
    t->seed = spec->seed;
    t->clip_norm = spec->clip_norm;
    t->adamw.lr = adamw->lr;
    t->adamw.beta1 = adamw->beta1;
    t->adamw.beta2 = adamw->beta2;
    t->adamw.eps = adamw->eps;
    t->adamw.weight_decay = adamw->weight_decay;
    t->eval.every = spec->eval ? spec->eval->every : 0;
    t->eval.batches = spec->eval ? spec->eval->batches : 0;
    schedule_fill(t, spec->learning_rate_schedule);
    return ST_OK;
}

status_t config_open(const Trainyard__V1__JobSpec *spec, const struct data_roots *roots, struct config **ret,
                     struct err *e) {
    CLEANUP(config_closep) struct config *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the configuration");
    bytes_init(&c->spec_json, SPEC_JSON_MOST_BYTES);
    TRY(model_fill(&c->engine.model, spec->model, e));
    TRY(train_fill(&c->engine.train, spec->train, e));
    TRY(data_fill(c, spec->data, roots, e));
    TRY(codec_print_json(&spec->base, 0, &c->spec_json, e));
    c->engine.spec_json = c->spec_json.data;
    c->engine.device = spec->resources ? spec->resources->accelerator : "cpu";
    c->engine.threads = 1;
    c->engine.data_degree = spec->parallel ? spec->parallel->data : 1;
    c->engine.checkpoint.every = spec->checkpoint ? spec->checkpoint->every : 0;
    *ret = take_ptr(&c);
    return ST_OK;
}
