/* Chooses the size of the buckets in which gradients are reduced, by the timeline of a step. Larger buckets take fewer
 * messages, smaller ones begin earlier, and which is faster depends on the ranks, the links and the model. The size
 * changes no bits.
 *
 *     TRY(bucket_choose(graph, &layout, &profile, NULL, NULL, &choice, e));
 *     layout.bucket_bytes = choice.bytes;
 *
 * All ranks of a gang need the same size, and a plan the same as the run: the profile must not be a measured one. */
#ifndef ENGINE_PLAN_COST_BUCKET_CHOICE_H
#define ENGINE_PLAN_COST_BUCKET_CHOICE_H

#include "engine/plan/cost/profile.h"
#include "engine/plan/plan.h"

/* Of fp32 gradients: what is tried first, and the limits of the search. */
enum { BUCKET_BYTES_DEFAULT = 4 << 20, BUCKET_BYTES_MIN = 1 << 20, BUCKET_BYTES_MAX = 256 << 20 };

struct bucket_choice {
    int64_t bytes;
    double seconds, default_seconds; /* of a step with this size, and with BUCKET_BYTES_DEFAULT; 0: not simulated */
};

/* layout: rank and bucket_bytes are not read. Another size than the default is chosen only if the step is at least a
 * hundredth faster and the arena of no stage larger by more than a sixteenth, or, unless may_grow, larger at all.
 * progress may be NULL; it is called after each plan. Errors: those of plan_build and timeline_simulate. */
MUST_CHECK status_t bucket_choose(const struct graph *graph, const struct plan_layout *layout,
                                  const struct plan_profile *profile, bool may_grow, void (*progress)(void *ctx),
                                  void *ctx, struct bucket_choice *ret, struct err *e);

#endif
