/* Draws a timeline: one row per rank, compute above, its transfers and collectives below, time to the right.
 *
 *     TRY(timeline_svg(&timeline, "gpt, 4 stages, 1f1b", &bytes, e));   // a whole SVG file
 *     TRY(timeline_text(&timeline, 100, &bytes, e));                    // for a terminal, 100 columns of time
 *
 * In text a column shows what its rank's compute does for most of that time, as a letter, and below it the last digit
 * of the micro-batch's number on the rank: F forward, R recompute, B backward, W backward of the weight, U sums, norms
 * and the optimizer; a dot is idle. */
#ifndef ENGINE_PLAN_COST_TIMELINE_SVG_H
#define ENGINE_PLAN_COST_TIMELINE_SVG_H

#include "base/bytes.h"
#include "engine/plan/cost/timeline.h"

MUST_CHECK status_t timeline_svg(const struct timeline *t, const char *title, struct bytes *ret, struct err *e);
MUST_CHECK status_t timeline_text(const struct timeline *t, int columns, struct bytes *ret, struct err *e);

#endif
