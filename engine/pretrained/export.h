/* Exports a checkpoint as a folder that Hugging Face's transformers opens: config.json, model.safetensors (fp32, one
 * file), and tokenizer.json if the model was trained with a tokenizer, with tokenizer_config.json for char and byte.
 *
 *     TRY(pretrained_export(".../step-500", "/tmp/model", &(struct export_options){ 0 }, &done, e));
 *
 * It holds at most 1 MiB of weights. Each file is complete or absent. config.json is written last, so a folder with a
 * config.json is complete. */
#ifndef ENGINE_PRETRAINED_EXPORT_H
#define ENGINE_PRETRAINED_EXPORT_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct export_options {
    bool average;   /* the averaged weights (train.ema) instead of the last ones */
    bool overwrite; /* replace files of an earlier export and keep others; false: the folder must be empty */
};

/* What was written. */
struct export_result {
    int64_t parameters;    /* numbers, each in fp32 */
    int64_t weights_bytes; /* of model.safetensors */
    const char *tokenizer; /* "char", "byte", "bpe"; NULL: none. Static */
};

/* Errors: those of opening the checkpoint; INVALID_ARGUMENT: a family that transformers does not have;
 * FAILED_PRECONDITION: it has no averaged weights; ALREADY_EXISTS: `directory` is not empty; those of writing below
 * `directory`, which is created if it is missing. */
MUST_CHECK status_t pretrained_export(const char *checkpoint, const char *directory,
                                      const struct export_options *options, struct export_result *ret, struct err *e);

#endif
