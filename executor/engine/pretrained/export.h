/* A checkpoint as a folder that Hugging Face's transformers opens: config.json, model.safetensors (fp32, one file), and
 * tokenizer.json where the model was trained with one.
 *
 *     TRY(pretrained_export(".../step-500", "/tmp/model", false, e));
 *
 * Streams: no more than a MiB of weights is held. Each file appears whole or not at all; config.json comes last, so a
 * folder that has one is complete. */
#ifndef EXECUTOR_ENGINE_PRETRAINED_EXPORT_H
#define EXECUTOR_ENGINE_PRETRAINED_EXPORT_H

#include "base/status.h"

#include <stdbool.h>

/* average: the averaged weights (train.ema) in place of the last ones; FAILED_PRECONDITION where there are none.
 * Errors: those of opening the checkpoint; INVALID_ARGUMENT: a family that transformers does not have; those of writing
 * below `directory`, which is made when missing. */
MUST_CHECK status_t pretrained_export(const char *checkpoint, const char *directory, bool average, struct err *e);

#endif
