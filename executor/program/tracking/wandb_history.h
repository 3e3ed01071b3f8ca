/* The body of a W&B client's file_stream request: lines of the run's history, each the JSON of one step.
 *
 *     {"files": {"wandb-history.jsonl": {"offset": 0, "content": ["{\"loss\": 1.5, \"_step\": 0}", ...]}}}
 *
 * Lines with a number below run->lines were taken before, unless the line 0 is another one than before. *ret_others
 * grows by the number of values that are no numbers. False: the body is no JSON object. */
#ifndef EXECUTOR_PROGRAM_TRACKING_WANDB_HISTORY_H
#define EXECUTOR_PROGRAM_TRACKING_WANDB_HISTORY_H

#include "executor/program/tracking/points.h"
#include "executor/program/tracking/runs.h"

#include <stdbool.h>

bool wandb_history(const char *body, size_t n, struct run *run, struct points *points, int64_t *ret_others);

#endif
