/* Every model family behind one entry: a configuration becomes a differentiated graph.
 *
 *     struct model_config config = { .family = MODEL_LLAMA, .llama = { .layers = 4, .heads = 4, .width = 128, ... } };
 *     struct model_data data = model_data_of(source_info(source));
 *     TRY(model_resolve(&config, &data, e));                        // defaults and what the data says
 *     TRY(model_build(&config, &data, micro_batch, DTYPE_F32, &graph, e));
 *
 * A family is one file that reads like the model's page in a textbook; adding one is that file, a row in the enum and
 * the union, and a row in model.c. */
#ifndef EXECUTOR_ENGINE_MODEL_MODEL_H
#define EXECUTOR_ENGINE_MODEL_MODEL_H

#include "executor/engine/model/gpt.h"
#include "executor/engine/model/llama.h"
#include "executor/engine/model/mlp.h"
#include "executor/engine/model/resnet.h"
#include "executor/engine/model/unrolled.h"
#include "executor/engine/model/vit.h"

enum model_family { MODEL_GPT, MODEL_LLAMA, MODEL_RESNET, MODEL_VIT, MODEL_MLP, MODEL_UNROLLED, MODEL_FAMILIES };

/* Pure values, no pointers: it can be copied and compared. In each shape 0 means the default that stands there. */
struct model_config {
    enum model_family family;
    union {
        struct gpt_shape gpt;
        struct llama_shape llama;
        struct resnet_shape resnet;
        struct vit_shape vit;
        struct mlp_shape mlp;
        struct unrolled_shape unrolled;
    };
};

/* What a model must know of its data; 0 where the data has no such thing. */
struct model_data {
    int vocabulary; /* tokens are 0 .. vocabulary - 1 */
    int classes;    /* labels are 0 .. classes - 1 */
    int channels, height, width;
};

struct source_info; /* executor/engine/data/source.h */
struct model_data model_data_of(const struct source_info *info);

/* "gpt", "llama", ...: the field of the spec's model. */
const char *model_family_name(enum model_family family);
/* Tokens a sample; 0 for models that read none: source_options.context. */
int model_context(const struct model_config *config);
/* Of the tokens that the model predicts; 0 for models that predict none, and before model_resolve where the data says.
 */
int model_vocabulary(const struct model_config *config);

/* Fills in what is 0 and checks all against the data: data of another kind, a vocabulary smaller than the tokenizer's,
 * a patch that does not divide the image. INVALID_ARGUMENT names the field of the spec. */
MUST_CHECK status_t model_resolve(struct model_config *config, const struct model_data *data, struct err *e);

/* Graph of one micro-batch of this many samples, differentiated. The configuration is complete (model_resolve).
 * element: DTYPE_F32, DTYPE_BF16 or DTYPE_F16, the type of activations and weights. INVALID_ARGUMENT names the field.
 */
MUST_CHECK status_t model_build(const struct model_config *config, const struct model_data *data, int micro_batch,
                                enum dtype element, struct graph **ret, struct err *e);

/* The whole configuration as one line of JSON, and back: {"gpt":{"layers":4,...}}. What a checkpoint records, so that
 * its model can be built again. Free the text with free(); NULL: no memory. DATA_LOSS for a text that is no such
 * record. */
char *model_to_json(const struct model_config *config);
MUST_CHECK status_t model_from_json(const char *text, struct model_config *ret, struct err *e);
/* The same out of the layout in a checkpoint's manifest, whose "model" it is. */
MUST_CHECK status_t model_from_layout(const char *layout_json, struct model_config *ret, struct err *e);

/* May a model begin with the weights of another? All but dropout must be equal. INVALID_ARGUMENT names the first field
 * that is not, and both values. */
MUST_CHECK status_t model_takes(const struct model_config *model, const struct model_config *theirs, struct err *e);

#endif
