/* A timeline as a picture: one row a rank, compute above, its transfers and collectives below, time to the right.
 *
 *     TRY(picture_svg(&timeline, "gpt, 4 stages, 1f1b", &bytes, e));    // a whole SVG file
 *     TRY(picture_text(&timeline, 100, &bytes, e));                     // for a terminal, this many columns of time
 *
 * In text a column shows what its rank's compute does most of in that time, by letter, and below it the micro-batch's
 * number on the rank (its last digit): F forward, R recompute, B backward, W the weight's part of it, U sums, norms and
 * the optimizer, a dot for idle. */
#ifndef EXECUTOR_ENGINE_PLAN_PICTURE_H
#define EXECUTOR_ENGINE_PLAN_PICTURE_H

#include "base/bytes.h"
#include "executor/engine/plan/timeline.h"

MUST_CHECK status_t picture_svg(const struct timeline *t, const char *title, struct bytes *ret, struct err *e);
MUST_CHECK status_t picture_text(const struct timeline *t, int columns, struct bytes *ret, struct err *e);

#endif
