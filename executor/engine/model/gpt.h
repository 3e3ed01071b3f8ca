/* GPT-2 as a graph (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"): embedding, `layers`
 * transformer blocks, head with tied embedding. Parameters carry the names and layouts of Hugging Face's GPT-2
 * (matrices of the blocks are (in, out)), and start as GPT-2's: normal with deviation 0.02, projections into the
 * residual stream scaled by 1 / sqrt(2 layers), biases zero, layer norms one. */
#ifndef EXECUTOR_ENGINE_MODEL_GPT_H
#define EXECUTOR_ENGINE_MODEL_GPT_H

#include "executor/engine/graph/graph.h"

struct gpt_shape {
    int layers, heads, width, context, vocabulary;
    double dropout; /* on the embedding, the attention probabilities and both residual branches, as in GPT-2 */
};

/* Graph of one micro-batch of this many samples, differentiated. INVALID_ARGUMENT names the field of the spec. */
MUST_CHECK status_t gpt_build(const struct gpt_shape *shape, int micro_batch, struct graph **ret, struct err *e);

#endif
