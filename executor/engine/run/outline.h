/* What a configuration means before any rank exists: the shape of its data, its model's graph, and the layout that is
 * planned. engine_open builds on it; `plan` needs nothing else.
 *
 *     TRY(outline_source(config, progress, ctx, &source, e));    // reads the data
 *     TRY(outline_open(config, source, NULL, &outline, e));      // the model by the data; no device is touched
 *     TRY(outline_resolve(outline, config, e));                  // micro_batch, lanes, recompute that were left open
 *     TRY(outline_build(outline, config->train.micro_batch, &graph, &workspace, e));
 *     struct plan_layout layout = outline_layout(config, workspace);
 *     outline = outline_close(outline);
 *
 * Belongs to one thread. */
#ifndef EXECUTOR_ENGINE_RUN_OUTLINE_H
#define EXECUTOR_ENGINE_RUN_OUTLINE_H

#include "executor/engine/data/source.h"
#include "executor/engine/plan/choose.h"
#include "executor/engine/run/engine.h"
#include "kernels/kernels.h"

struct outline;

/* Opens config->data as the model reads it. progress: as in source_options. Errors: those of the data. */
MUST_CHECK status_t outline_source(const struct engine_config *config, void (*progress)(void *ctx), void *ctx,
                                   struct source **ret, struct err *e);

/* Resolves config->model by the data; the source is borrowed during the call. `open`: the device's table, borrowed
 * until the close, where there is one already; NULL: what ops take on that device is known without it, or, on the CPU,
 * asked of a table that the outline opens. INVALID_ARGUMENT names the field of the spec. */
MUST_CHECK status_t outline_open(struct engine_config *config, const struct source *source, const struct kernels *open,
                                 struct outline **ret, struct err *e);
struct outline *outline_close(struct outline *o);
CLEANUP_DEFINE(struct outline *, outline_close)

/* The table of the device, threads and precision that the configuration asks for; record: as in kernels_config. */
MUST_CHECK status_t outline_kernels(const struct engine_config *config, const char *record, struct kernels **ret,
                                    struct err *e);

/* Graph of this micro-batch, and the most workspace that an op's kernel or a parameter's step asks for. ctx is the
 * outline: this is choose_request.build. */
MUST_CHECK status_t outline_build(void *ctx, int micro_batch, struct graph **ret, size_t *ret_workspace, struct err *e);

/* The most room that an op's kernel or a parameter's step asks of this table. optimizer NULL: no step. */
size_t outline_workspace(const struct kernels *k, const struct graph *g, const struct optimizer_kind *optimizer);

/* The training plan's layout, without rank. Needs micro_batch, lanes and recompute. */
struct plan_layout outline_layout(const struct engine_config *config, size_t workspace_bytes);

/* Fills in what is left to the planner; see engine_resolve. */
MUST_CHECK status_t outline_resolve(struct outline *o, struct engine_config *config, struct err *e);
/* Whether the configuration's batch can be cut so. */
bool outline_cuts(const struct engine_config *config, int micro_batch, int lanes);
/* The largest micro-batch that fits in this many bytes a rank, with lanes, recompute and all else as the resolved
 * configuration says; 0: none does. */
MUST_CHECK status_t outline_largest(struct outline *o, const struct engine_config *config, size_t memory_bytes,
                                    int *ret, struct err *e);

#endif
