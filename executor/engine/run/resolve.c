/* What the spec leaves to the planner: rank 0 decides it, for what all ranks have, or takes it from the checkpoint that
 * a run goes on from, and tells the others. */
#include "executor/engine/checkpoint/reader.h"
#include "executor/engine/collective/collective.h"
#include "executor/engine/run/outline.h"

#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In words, because it travels as a union in which all ranks but the first have nothing. */
union told {
    struct {
        status_t status;
        int micro_batch, lanes, recompute;
        struct err why;
    } say;
    uint64_t words[64];
};
static_assert(sizeof(union told) == 64 * sizeof(uint64_t), "a sentence fits");

static int integer_of(const json_t *root, const char *key) {
    json_int_t n = json_integer_value(json_object_get(root, key));
    return n > 0 && n < 1 << 30 ? (int)n : 0;
}

/* How the steps before were cut, which decides the bits: kept whatever memory there is now. Another spec, as a fork
 * has, may have another batch, which it does not cut; then it is chosen anew. */
static status_t keep(struct engine_config *c, struct err *e) {
    CLEANUP(freep) char *layout = NULL;
    status_t st = checkpoint_layout(c->checkpoint.resume_directory, &layout, e);
    TRY(st == ST_NOT_FOUND ? ST_DATA_LOSS : st);
    json_t *root = json_loads(layout, 0, NULL);
    int micro_batch = integer_of(root, "micro_batch"), lanes = integer_of(root, "lanes");
    json_decref(root);
    struct engine_train *t = &c->train;
    lanes = t->lanes ? t->lanes : lanes;
    if (micro_batch == 0 || lanes == 0 || !outline_cuts(c, micro_batch, lanes))
        return ST_OK;
    t->micro_batch = micro_batch;
    t->lanes = lanes;
    return ST_OK;
}

/* One rank's, as it brings it to the meeting. */
struct brought {
    status_t status; /* of opening its data */
    struct err why;
    int threads;
    int64_t memory_bytes;
};

/* What is chosen must fit every rank: with the workspace of the most threads, in the least memory. */
static status_t take_tightest(struct engine_config *c, const struct brought *all, int n, struct err *e) {
    for (int r = 0; r < n; r++) {
        if (all[r].status != ST_OK)
            return err_set(e, all[r].status, "%s", all[r].why.msg);
        if (all[r].threads > c->threads)
            c->threads = all[r].threads;
        if (all[r].memory_bytes > 0 && (c->memory_bytes <= 0 || all[r].memory_bytes < c->memory_bytes))
            c->memory_bytes = all[r].memory_bytes;
    }
    return ST_OK;
}

static status_t decide(struct engine_config *c, const struct source *source, const struct brought *all, int n,
                       struct err *e) {
    CLEANUP(outline_closep) struct outline *outline = NULL;
    struct engine_config tightest = *c;
    TRY(take_tightest(&tightest, all, n, e));
    if (c->train.micro_batch == 0 && c->checkpoint.resume_directory)
        TRY(keep(&tightest, e));
    TRY(outline_open(&tightest, source, NULL, &outline, e));
    TRY(outline_resolve(outline, &tightest, e));
    c->train = tightest.train;
    return ST_OK;
}

status_t engine_resolve(struct engine_config *c, struct collective *collective, const struct engine_hooks *hooks,
                        struct err *e) {
    const struct collective_group world = collective_world(collective);
    CLEANUP(source_closep) struct source *source = NULL;
    CLEANUP(freep) struct brought *all = calloc((size_t)world.count, sizeof *all);
    if (!all)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for what %d ranks have", world.count);
    struct brought *mine = &all[collective_rank(collective)];
    mine->threads = c->threads;
    mine->memory_bytes = c->memory_bytes;
    mine->status = outline_source(c, hooks ? hooks->progress : NULL, hooks ? hooks->ctx : NULL, &source, &mine->why);
    TRY(collective_all_gather(collective, COLLECTIVE_CONTROL, mine, sizeof *mine, all, e));
    union told told;
    memset(&told, 0, sizeof told);
    if (collective_rank(collective) == 0) {
        told.say.status = decide(c, source, all, world.count, &told.say.why);
        told.say.micro_batch = c->train.micro_batch;
        told.say.lanes = c->train.lanes;
        told.say.recompute = (int)c->train.recompute;
    }
    TRY(collective_or(collective, COLLECTIVE_CONTROL, &world, told.words, 64, e));
    if (told.say.status != ST_OK) {
        /* None leaves, which would abort the others, before all have the sentence. */
        status_ignore(collective_barrier(collective, COLLECTIVE_CONTROL, NULL));
        return err_set(e, told.say.status, "%s", told.say.why.msg);
    }
    c->train.micro_batch = told.say.micro_batch;
    c->train.lanes = told.say.lanes;
    c->train.recompute = (enum plan_recompute)told.say.recompute;
    return ST_OK;
}
