#include "executor/worker/config.h"

#include "api/codec/text.h"
#include "api/spec/spec.h"
#include "base/limits.h"
#include "executor/engine/plan/profile.h"
#include "executor/worker/config_parts.h"

#include <stdlib.h>
#include <string.h>

enum { SPEC_JSON_MOST_BYTES = 4 * LIMIT_SPEC_BYTES }; /* YAML that was compact becomes longer as JSON */

struct config {
    struct engine_config engine;
    Trainyard__V1__JobSpec *spec; /* a copy, in which `auto` becomes what was chosen */
    struct config_paths paths;
    struct bytes spec_json;
};

struct engine_config *config_engine(struct config *c) {
    return &c->engine;
}

const Trainyard__V1__JobSpec *config_spec(const struct config *c) { return c->spec; }

struct config *config_close(struct config *c) {
    if (!c)
        return NULL;
    config_paths_done(&c->paths);
    bytes_done(&c->spec_json);
    spec_free(c->spec);
    free(c);
    return NULL;
}

static status_t print_spec(struct config *c, struct err *e) {
    c->spec_json.len = 0;
    TRY(codec_print_json(&c->spec->base, 0, &c->spec_json, e));
    c->engine.spec_json = c->spec_json.data;
    return ST_OK;
}

status_t config_init_from(struct config *c, const struct data_roots *roots, struct err *e) {
    const char *from = c->spec->train->init_from;
    if (strncmp(from, "file:", 5) != 0)
        return ST_OK;
    return config_path(&c->paths, "train.init_from", from, CONFIG_FOLDER, roots, &c->engine.train.init_from, e);
}

static status_t fill(struct config *c, const struct data_roots *roots, struct err *e) {
    const Trainyard__V1__JobSpec *spec = c->spec;
    TRY(config_model(&c->engine, spec->model, e));
    TRY(config_train(&c->engine, spec->train, e));
    TRY(config_layout(&c->engine, spec->parallel, e));
    TRY(config_data(&c->engine, spec->data, &c->paths, roots, e));
    c->engine.device = spec->resources->accelerator;
    c->engine.memory_bytes = spec->resources->memory_bytes;
    c->engine.threads = 1;
    c->engine.checkpoint.every = spec->checkpoint->every;
    return print_spec(c, e);
}

status_t config_open(const Trainyard__V1__JobSpec *spec, const struct data_roots *roots, struct config **ret,
                     struct err *e) {
    CLEANUP(config_closep) struct config *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the configuration");
    bytes_init(&c->spec_json, SPEC_JSON_MOST_BYTES);
    TRY(spec_resolve(spec, &c->spec, NULL, e));
    TRY(fill(c, roots, e));
    *ret = take_ptr(&c);
    return ST_OK;
}

static status_t choose(struct config *c, struct collective *collective, const struct engine_hooks *hooks,
                       struct err *e) {
    Trainyard__V1__TrainSpec *t = c->spec->train;
    TRY(engine_resolve(&c->engine, collective, hooks, e));
    const struct engine_train *chosen = &c->engine.train;
    t->micro_batch = chosen->micro_batch;
    t->_micro_batch_case = TRAINYARD__V1__TRAIN_SPEC___MICRO_BATCH_MICRO_BATCH;
    t->lanes = chosen->lanes;
    t->_lanes_case = TRAINYARD__V1__TRAIN_SPEC___LANES_LANES;
    char *recompute = strdup(PLAN_RECOMPUTE_WORDS[chosen->recompute]);
    if (!recompute)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a word of the spec");
    free(t->recompute);
    t->recompute = recompute;
    return print_spec(c, e);
}

status_t config_measure(struct config *c, struct err *e) {
    static const enum dtype types[] = {
        [ENGINE_FP32] = DTYPE_F32, [ENGINE_BF16] = DTYPE_BF16, [ENGINE_FP16] = DTYPE_F16
    };
    struct engine_config *ec = &c->engine;
    if (strcmp(ec->device, "cpu") != 0)
        return ST_OK;
    double flops;
    TRY(plan_profile_measure_products(types[ec->train.precision], ec->threads, &flops, e));
    ec->peak_flops = flops;
    return ST_OK;
}

status_t config_resolve(struct config *c, struct collective *collective, const struct engine_hooks *hooks,
                        bool *ret_chosen, struct err *e) {
    *ret_chosen = spec_has_auto(c->spec);
    return *ret_chosen ? choose(c, collective, hooks, e) : ST_OK;
}
