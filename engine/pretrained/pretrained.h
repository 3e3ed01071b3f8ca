/* Weights to start from, by the parameters' names: from a checkpoint's step folder (manifest.json), or from a folder of
 * Hugging Face's transformers (config.json with model.safetensors, or several files with model.safetensors.index.json),
 * of GPT-2 or Llama.
 *
 *     TRY(pretrained_open(directory, &options, &p, e));
 *     TRY(pretrained_check(p, &model, graph, e));                        // same model, same parameters
 *     TRY(pretrained_read(p, "transformer.wte.weight", first, count, data, e));
 *
 * Only headers are held in memory, and 1 MiB while 16-bit numbers are converted. F32, BF16 and F16 are supported. Names
 * are matched with and without their prefix ("transformer.", "model."), which files of the bare model lack. A learned
 * table of positions may have more rows than the model: the first ones are used. If the head is tied there and untied
 * in the model, it starts as the embedding. Tensors that the model does not have (buffers) are ignored.
 *
 * A checkpoint is verified by its digests when it is opened. Other folders have no digests: an invalid header is
 * detected, a flipped bit in a weight is not. Not thread-safe. */
#ifndef ENGINE_PRETRAINED_PRETRAINED_H
#define ENGINE_PRETRAINED_PRETRAINED_H

#include "base/cleanup.h"
#include "base/status.h"
#include "engine/model/model.h"

struct pretrained;
struct roots;

/* May be NULL in open. progress is called after every few MiB. */
struct pretrained_options {
    const struct roots *roots; /* that the folder must lie below (base/roots.h); NULL: anywhere */
    void (*progress)(void *ctx);
    void *ctx;
};

/* NOT_FOUND: no folder, or neither kind of file in it. INVALID_ARGUMENT: an unsupported model or dtype. DATA_LOSS: an
 * invalid file. */
MUST_CHECK status_t pretrained_open(const char *directory, const struct pretrained_options *options,
                                    struct pretrained **ret, struct err *e);
struct pretrained *pretrained_close(struct pretrained *p);
CLEANUP_DEFINE(struct pretrained *, pretrained_close)

/* The model of these weights. Lives as long as p. */
const struct model_config *pretrained_model(const struct pretrained *p);

/* The model may differ in context (a learned table of positions: only downwards), dropout, and whether a head is tied;
 * all of the graph's parameters must exist with their shapes. INVALID_ARGUMENT says what does not fit. */
MUST_CHECK status_t pretrained_check(const struct pretrained *p, const struct model_config *model,
                                     const struct graph *graph, struct err *e);

/* Compares the models only, without opening weights. */
MUST_CHECK status_t pretrained_fits(const struct model_config *theirs, const struct model_config *model, struct err *e);

/* data (count) = elements [first, first + count) of this parameter, row-major. NOT_FOUND: no such tensor; OUT_OF_RANGE:
 * outside it; DATA_LOSS: the file has become shorter. */
MUST_CHECK status_t pretrained_read(struct pretrained *p, const char *parameter, int64_t first, int64_t count,
                                    float *data, struct err *e);

#endif
