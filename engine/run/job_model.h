/* A job's model and layout before any rank exists: the graph of the configured model for the shape of its data, and the
 * layout to plan. engine_open builds on it; the `plan` command needs nothing else. Also the one place that translates a
 * configuration for the kernels and the planner.
 *
 *     TRY(job_model_source(config, progress, ctx, &source, e));    // reads the data
 *     TRY(job_model_open(config, source, NULL, &model, e));      // no device is touched
 *     TRY(job_model_resolve(model, config, e));                  // chooses open micro_batch, lanes, recompute
 *     TRY(job_model_build(model, config->train.micro_batch, &graph, &workspace, e));
 *     struct plan_layout layout = job_model_layout(config, workspace);
 *     model = job_model_close(model);
 *
 * One thread. */
#ifndef ENGINE_RUN_JOB_MODEL_H
#define ENGINE_RUN_JOB_MODEL_H

#include "engine/data/source.h"
#include "engine/plan/build/choose.h"
#include "engine/plan/cost/bucket_choice.h"
#include "engine/run/engine_config.h"
#include "kernels/kernels.h"

struct job_model;

/* Opens config->data in the form that the model reads. progress: as in source_options. Errors: those of the data. */
MUST_CHECK status_t job_model_source(const struct engine_config *config, void (*progress)(void *ctx), void *ctx,
                                     struct source **ret, struct err *e);

/* Fills in what config->model takes from the data (vocabulary, classes, image size); the source is borrowed during the
 * call. `open`: the device's open kernel table, borrowed until job_model_close, or NULL. With NULL, workspace sizes
 * come from a shape-only table of the device, or on the CPU from a table that this call opens. INVALID_ARGUMENT names
 * the field of the spec. */
MUST_CHECK status_t job_model_open(struct engine_config *config, const struct source *source,
                                   const struct kernels *open, struct job_model **ret, struct err *e);
/* The same for data that cannot be opened here, by its shape. */
struct model_data;
MUST_CHECK status_t job_model_open_shaped(struct engine_config *config, const struct model_data *data,
                                          const struct kernels *open, struct job_model **ret, struct err *e);
struct job_model *job_model_close(struct job_model *o);
CLEANUP_DEFINE(struct job_model *, job_model_close)

/* What the ranks of this job take of their hosts beside the arena; lives as long as o. */
const struct host_memory_rule *job_model_host(const struct job_model *o);

/* The number of threads that workspaces are sized for: engine_config.max_threads, or threads if that is larger; at
 * least 1. */
int job_model_max_threads(const struct engine_config *c);

/* Opens the kernel table for the configured device, threads and precision. tuning_cache:
 * kernels_config.tuning_cache. */
MUST_CHECK status_t job_model_kernels(const struct engine_config *config, const char *tuning_cache,
                                      struct kernels **ret, struct err *e);

/* Builds the graph for this micro-batch, and returns the largest workspace that an op's kernel or a parameter's
 * optimizer step needs. ctx is the job_model: this function is a choose_request.build. */
MUST_CHECK status_t job_model_build(void *ctx, int micro_batch, struct graph **ret, size_t *ret_workspace,
                                    struct err *e);

/* The largest workspace of a graph with this table, in bytes. optimizer NULL: without the optimizer step. */
size_t job_model_workspace(const struct kernels *k, const struct graph *g, const struct optimizer_kind *optimizer);

/* The training plan's layout, without rank. micro_batch, lanes and recompute must be resolved. */
struct plan_layout job_model_layout(const struct engine_config *config, size_t workspace_bytes);

/* Sets bucket_bytes, if it is 0, to the size with which a step is the fastest (cost/bucket_choice.h). micro_batch,
 * lanes and recompute must be resolved. The choice follows from the configuration and the graph alone. progress may be
 * NULL. */
MUST_CHECK status_t job_model_choose_buckets(struct engine_config *config, const struct graph *graph,
                                             void (*progress)(void *ctx), void *ctx, struct bucket_choice *ret,
                                             struct err *e);

/* Chooses what the configuration leaves open; see engine_resolve. */
MUST_CHECK status_t job_model_resolve(struct job_model *o, struct engine_config *config, struct err *e);
/* Whether the configured global batch can be divided into micro-batches and lanes of these sizes. */
bool job_model_can_divide(const struct engine_config *config, int micro_batch, int lanes);
/* The largest micro-batch with which every rank fits in memory_bytes, with lanes, recompute and all else as
 * configured; 0: none fits. *ret_larger_exceeds: larger ones exist but need more bytes; false: the global batch has no
 * larger divisor that fits the lanes. */
MUST_CHECK status_t job_model_max_micro_batch(struct job_model *o, const struct engine_config *config,
                                              size_t memory_bytes, int *ret, bool *ret_larger_exceeds, struct err *e);

#endif
