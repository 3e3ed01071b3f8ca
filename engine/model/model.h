/* One interface for all model families: builds a differentiated graph from a configuration.
 *
 *     struct model_config config = { .kind = &model_llama, .llama = { .layers = 4, .heads = 4, .width = 128, ... } };
 *     struct model_data data = model_data_of(source_info(source));
 *     TRY(model_resolve(&config, &data, e));                        // sets vocabulary, classes and stem from the data
 *     TRY(model_build(&config, &data, micro_batch, DTYPE_F32, &graph, e));
 *
 * To add a family: one file in this folder with its struct model_kind (kind.h), and its name in MODEL_KINDS. */
#ifndef ENGINE_MODEL_MODEL_H
#define ENGINE_MODEL_MODEL_H

#include "engine/model/gpt.h"
#include "engine/model/kind.h"
#include "engine/model/llama.h"
#include "engine/model/mlp.h"
#include "engine/model/resnet.h"
#include "engine/model/unrolled.h"
#include "engine/model/vit.h"

/* The families: model_NAME is the kind, in NAME.c. */
#define MODEL_KINDS(KIND) KIND(gpt) KIND(llama) KIND(resnet) KIND(vit) KIND(mlp) KIND(unrolled)

#define MODEL_DECLARE(name) extern const struct model_kind model_##name;
MODEL_KINDS(MODEL_DECLARE)
#undef MODEL_DECLARE

/* A value: it can be copied. Members of a shape that the data decides (vocabulary, classes, stem) may be 0 until
 * model_resolve; all others are given, as a resolved spec has them. */
struct model_config {
    const struct model_kind *kind;
    union {
        struct gpt_shape gpt;
        struct llama_shape llama;
        struct resnet_shape resnet;
        struct vit_shape vit;
        struct mlp_shape mlp;
        struct unrolled_shape unrolled;
        double shape[32]; /* for any kind: a shape that is private to its file has at most this size */
    };
};

struct source_info; /* engine/data/source.h */
struct model_data model_data_of(const struct source_info *info);

/* NULL if the name is not in MODEL_KINDS. */
const struct model_kind *model_kind_find(const char *name);
/* An int of the shape by its name; NULL if the kind has none. */
const int *model_int(const struct model_config *config, const char *name);
/* Tokens of a sample; 0 for models that read none: source_options.context. */
int model_context(const struct model_config *config);
/* Size of the vocabulary that the model predicts; 0 for models that predict no tokens, and before model_resolve if the
 * data decides. */
int model_vocabulary(const struct model_config *config);

/* Sets the members that depend on the data, and checks that the model fits the data: INVALID_ARGUMENT for data of
 * another kind or a vocabulary smaller than the tokenizer's; it names the field of the spec. */
MUST_CHECK status_t model_resolve(struct model_config *config, const struct model_data *data, struct err *e);

/* Graph of one micro-batch of this many samples, differentiated. The configuration is complete (model_resolve).
 * element: DTYPE_F32, DTYPE_BF16 or DTYPE_F16, the type of activations and weights. INVALID_ARGUMENT names the field.
 */
MUST_CHECK status_t model_build(const struct model_config *config, const struct model_data *data, int micro_batch,
                                enum dtype element, struct graph **ret, struct err *e);

/* The whole configuration as one line of JSON, and back: {"gpt":{"layers":4,...}}. A checkpoint records it, so that its
 * model can be built again. Free the text with free(). DATA_LOSS if the text is not such a record. */
char *model_to_json(const struct model_config *config);
MUST_CHECK status_t model_from_json(const char *text, struct model_config *ret, struct err *e);
/* Reads the configuration from the layout in a checkpoint's manifest, of which it is the member "model". */
MUST_CHECK status_t model_from_layout(const char *layout_json, struct model_config *ret, struct err *e);

/* Checks whether a model may begin with the weights of another. All fields except dropout must be equal.
 * INVALID_ARGUMENT names the first field that differs, and both values. */
MUST_CHECK status_t model_takes(const struct model_config *model, const struct model_config *theirs, struct err *e);

#endif
