/* Weights to start from, by the parameters' names, wherever they lie: a checkpoint's step folder (manifest.json), or a
 * folder as Hugging Face's transformers has them (config.json with model.safetensors, or its parts with
 * model.safetensors.index.json), of GPT-2 or Llama.
 *
 *     TRY(pretrained_open(directory, &options, &p, e));
 *     TRY(pretrained_check(p, &model, graph, e));                        // it is this model, with these parameters
 *     TRY(pretrained_read(p, "transformer.wte.weight", first, count, data, e));
 *
 * Reading streams: nothing is held but headers, and one MiB while 16-bit numbers are widened. Accepted are F32, BF16
 * and F16. Names are matched with and without their first part ("transformer.", "model."), as files of the bare model
 * have them. A learned table of positions may have more rows than the model: the first ones are taken. A tied head that
 * the model has untied starts as the embedding. Tensors that the model does not know (buffers) are passed over.
 *
 * A checkpoint is proved by its digests when it is opened; other folders have none: what is wrong with their headers is
 * found, a flipped bit in a weight is not. Threads: one at a time. */
#ifndef EXECUTOR_ENGINE_PRETRAINED_PRETRAINED_H
#define EXECUTOR_ENGINE_PRETRAINED_PRETRAINED_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/engine/model/model.h"

struct pretrained;

/* May be NULL in open. progress is called after every few MiB. */
struct pretrained_options {
    void (*progress)(void *ctx);
    void *ctx;
};

/* NOT_FOUND: no folder, or neither kind of file in it. INVALID_ARGUMENT: a model or a type of numbers that this build
 * does not know. DATA_LOSS: a file that is not what it should be. */
MUST_CHECK status_t pretrained_open(const char *directory, const struct pretrained_options *options,
                                    struct pretrained **ret, struct err *e);
struct pretrained *pretrained_close(struct pretrained *p);
CLEANUP_DEFINE(struct pretrained *, pretrained_close)

/* The model that the weights are of. Lives as long as p. */
const struct model_config *pretrained_model(const struct pretrained *p);

/* The model may differ in context (a learned table of positions: only downwards), dropout, and whether a head is tied;
 * all of the graph's parameters must be there in their shapes. INVALID_ARGUMENT says what does not fit. */
MUST_CHECK status_t pretrained_check(const struct pretrained *p, const struct model_config *model,
                                     const struct graph *graph, struct err *e);

/* data (count) = elements [first, first + count) of this parameter, row-major. NOT_FOUND: no such tensor; OUT_OF_RANGE:
 * outside it; DATA_LOSS: the file became shorter. */
MUST_CHECK status_t pretrained_read(struct pretrained *p, const char *parameter, int64_t first, int64_t count,
                                    float *data, struct err *e);

#endif
