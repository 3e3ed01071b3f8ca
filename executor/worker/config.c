#include "executor/worker/config.h"

#include "api/codec/text.h"
#include "api/spec/spec.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "engine/plan/cost/profile.h"
#include "executor/worker/config_parts.h"

#include <stdlib.h>
#include <string.h>

/* Measured with tests/host_memory.py. PROGRAM: code and libraries that a rank's process has in memory, 9 to 15 MiB of
 * files, and its heap beside what the engine counts. MEASURING: what config_measure needs, and has freed when the
 * engine is opened. In bf16 it takes 9 MiB on processors that multiply bf16, and 19 where bf16 is converted. */
static const size_t PROGRAM_BYTES = (size_t)15 << 20;
static const size_t MEASURING_BYTES[] = {
    [ENGINE_FP32] = (size_t)10 << 20, [ENGINE_BF16] = (size_t)14 << 20, [ENGINE_FP16] = (size_t)19 << 20
};

enum { SPEC_JSON_MAX_BYTES = 4 * LIMIT_SPEC_BYTES }; /* YAML that was compact becomes longer as JSON */

struct config {
    struct engine_config engine;
    Trainyard__V1__JobSpec *spec; /* a copy; the plan's choices replace `auto` in it */
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

status_t config_init_from(struct config *c, const struct roots *roots, struct err *e) {
    const char *from = c->spec->train->init_from;
    if (strncmp(from, "file:", 5) != 0)
        return ST_OK;
    c->engine.train.init_roots = roots;
    return config_path(&c->paths, "train.init_from", from, MEMBER_FOLDER, roots, &c->engine.train.init_from, e);
}

static status_t fill(struct config *c, const struct roots *roots, struct err *e) {
    const Trainyard__V1__JobSpec *spec = c->spec;
    TRY(config_model(&c->engine, spec->model, e));
    TRY(config_train(&c->engine, spec->train, e));
    TRY(config_layout(&c->engine, spec->parallel, e));
    TRY(config_data(&c->engine, spec->data, &c->paths, roots, e));
    c->engine.device = spec->resources->accelerator;
    c->engine.memory_bytes = spec->resources->memory_bytes;
    c->engine.program_bytes = PROGRAM_BYTES;
    c->engine.opening_bytes = MEASURING_BYTES[c->engine.train.precision];
    c->engine.threads = 1;
    c->engine.checkpoint.every = spec->checkpoint->every;
    return print_spec(c, e);
}

static status_t open_with(const Trainyard__V1__JobSpec *spec, const struct roots *roots,
                          const struct config_copies *copies, struct config_judge *judge, struct config **ret,
                          struct err *e) {
    CLEANUP(config_closep) struct config *c = alloc_zeroed(1, sizeof *c);
    if (spec_is_program(spec))
        return err_set(e, ST_INVALID_ARGUMENT, "program: this command trains a model; submit the job to a controller");
    c->paths.judge = judge;
    c->paths.copies = copies;
    bytes_init(&c->spec_json, SPEC_JSON_MAX_BYTES);
    TRY(spec_copy(spec, &c->spec, e));
    TRY(fill(c, roots, e));
    *ret = take_ptr(&c);
    return ST_OK;
}

status_t config_open_judged(const Trainyard__V1__JobSpec *spec, const struct roots *roots, struct config_judge *judge,
                            struct config **ret, struct err *e) {
    return open_with(spec, roots, NULL, judge, ret, e);
}

status_t config_open(const Trainyard__V1__JobSpec *spec, const struct roots *roots, const struct config_copies *copies,
                     struct config **ret, struct err *e) {
    return open_with(spec, roots, copies, NULL, ret, e);
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
    free(t->recompute);
    t->recompute = alloc_copy_text(PLAN_RECOMPUTE_WORDS[chosen->recompute]);
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
