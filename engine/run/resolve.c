/* Chooses what the spec leaves open (`auto`), so that all ranks get the same values:
 *
 *   1. every rank opens its data, and all gather each rank's result, thread count and memory
 *   2. rank 0 chooses for the largest thread count and the smallest memory; a resumed run keeps the micro_batch and
 *   lanes
 *      of its checkpoint, because they determine the bits
 *   3. rank 0 sends the choice, or the error, to all: a union with words of which all other ranks' are zero
 *
 * An error that is the fault of one rank's host keeps its status on that rank; the others return UNAVAILABLE. */
#include "base/alloc.h"
#include "engine/checkpoint/reader.h"
#include "engine/collective/collective.h"
#include "engine/run/engine.h"
#include "engine/run/job_model.h"
#include "engine/run/snapshot.h"

#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rank 0's choice, as words for collective_or. */
union choice_words {
    struct {
        status_t status;
        int micro_batch, lanes, recompute;
        struct err why;
    } choice;
    uint64_t words[64];
};
static_assert(sizeof(union choice_words) == 64 * sizeof(uint64_t), "a sentence fits");

static int integer_of(const json_t *root, const char *key) {
    json_int_t n = json_integer_value(json_object_get(root, key));
    return n > 0 && n < 1 << 30 ? (int)n : 0;
}

/* Takes micro_batch and lanes from the checkpoint, even if the memory has changed. A fork may have another global
 * batch that they do not divide; then they are chosen anew. */
static status_t keep_of_checkpoint(struct engine_config *c, struct err *e) {
    CLEANUP(freep) char *layout = NULL;
    const struct engine_checkpoints *from = &c->checkpoint;
    TRY(snapshot_read_status(checkpoint_layout(from->roots, from->resume_directory, &layout, NULL, e)));
    json_t *root = json_loads(layout, 0, NULL);
    int micro_batch = integer_of(root, "micro_batch"), lanes = integer_of(root, "lanes");
    json_decref(root);
    struct engine_train *t = &c->train;
    lanes = t->lanes ? t->lanes : lanes;
    if (micro_batch == 0 || lanes == 0 || !job_model_can_divide(c, micro_batch, lanes))
        return ST_OK;
    t->micro_batch = micro_batch;
    t->lanes = lanes;
    return ST_OK;
}

/* What one rank has. */
struct rank_resources {
    status_t status; /* of opening its data */
    struct err why;
    int max_threads;
    int64_t memory_bytes;
};

/* The choice must fit every rank: workspace for the most threads, in the smallest memory. */
static status_t take_tightest(struct engine_config *c, const struct rank_resources *all, int n, struct err *e) {
    for (int r = 0; r < n; r++) {
        if (all[r].status != ST_OK)
            return err_set(e, all[r].status, "%s", all[r].why.msg);
        if (all[r].max_threads > c->max_threads)
            c->max_threads = all[r].max_threads;
        if (all[r].memory_bytes > 0 && (c->memory_bytes <= 0 || all[r].memory_bytes < c->memory_bytes))
            c->memory_bytes = all[r].memory_bytes;
    }
    return ST_OK;
}

static status_t choose(struct engine_config *c, const struct source *source, const struct rank_resources *all, int n,
                       struct err *e) {
    CLEANUP(job_model_closep) struct job_model *model = NULL;
    struct engine_config tightest = *c;
    TRY(take_tightest(&tightest, all, n, e));
    if (c->train.micro_batch == 0 && c->checkpoint.resume_directory)
        TRY(keep_of_checkpoint(&tightest, e));
    TRY(job_model_open(&tightest, source, NULL, &model, e));
    TRY(job_model_resolve(model, &tightest, e));
    c->train = tightest.train;
    return ST_OK;
}

/* The status of an error on this rank. The rank whose host is at fault is the first whose data failed, else rank 0,
 * which reads the checkpoint. */
static status_t status_of_rank(status_t st, const struct rank_resources *all, int n, int rank) {
    const enum engine_outcome outcome = engine_outcome_of(st);
    int failed = 0;
    while (failed < n && all[failed].status == ST_OK)
        failed++;
    failed = failed < n ? failed : 0;
    const bool of_host = outcome == ENGINE_HOST_FAULT || outcome == ENGINE_CHECKPOINT_UNREADABLE;
    return of_host && rank != failed ? ST_UNAVAILABLE : st;
}

status_t engine_resolve(struct engine_config *c, struct collective *collective, const struct engine_hooks *hooks,
                        struct err *e) {
    const struct collective_group world = collective_world(collective);
    CLEANUP(source_closep) struct source *source = NULL;
    CLEANUP(freep) struct rank_resources *all = alloc_zeroed((size_t)world.count, sizeof *all);
    struct rank_resources *mine = &all[collective_rank(collective)];
    mine->max_threads = job_model_max_threads(c);
    mine->memory_bytes = c->memory_bytes;
    mine->status = job_model_source(c, hooks ? hooks->progress : NULL, hooks ? hooks->ctx : NULL, &source, &mine->why);
    TRY(collective_all_gather(collective, COLLECTIVE_CONTROL, mine, sizeof *mine, all, e));
    union choice_words sent;
    memset(&sent, 0, sizeof sent);
    if (collective_rank(collective) == 0) {
        sent.choice.status = choose(c, source, all, world.count, &sent.choice.why);
        sent.choice.micro_batch = c->train.micro_batch;
        sent.choice.lanes = c->train.lanes;
        sent.choice.recompute = (int)c->train.recompute;
    }
    TRY(collective_or(collective, COLLECTIVE_CONTROL, &world, sent.words, 64, e));
    if (sent.choice.status != ST_OK) {
        /* Keeps a rank from disconnecting, which would abort the others, before all have the sentence. */
        status_ignore(collective_barrier(collective, COLLECTIVE_CONTROL, NULL));
        return err_set(e, status_of_rank(sent.choice.status, all, world.count, collective_rank(collective)), "%s",
                       sent.choice.why.msg);
    }
    c->train.micro_batch = sent.choice.micro_batch;
    c->train.lanes = sent.choice.lanes;
    c->train.recompute = (enum plan_recompute)sent.choice.recompute;
    return ST_OK;
}
