/* The points of one step of a W&B run, which is a JSON object: {"loss": 1.5, "val": {"loss": 2}, "_step": 0}.
 *
 * Numbers become points; a member of an object is named "object.member". Names that begin with '_' are the client's.
 * Pure. */
#ifndef TRACKING_WANDB_STEP_H
#define TRACKING_WANDB_STEP_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef void wandb_point_add(void *ctx, int64_t step, const char *name, double value);

/* *ret_others grows by the number of values that are no numbers: media, tables, texts. False: the object is none, or
 * has no step. */
bool wandb_step_points(json_t *object, wandb_point_add *add, void *ctx, int64_t *ret_others);

#endif
