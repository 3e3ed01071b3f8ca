/* GPT-2 as a graph (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"): embedding, `layers`
 * transformer blocks, head with tied embedding. Parameters carry the names and layouts of Hugging Face's GPT-2
 * (matrices of the blocks are (in, out)), and start as GPT-2's: normal with deviation 0.02, projections into the
 * residual stream scaled by 1 / sqrt(2 layers), biases zero, layer norms one. */
#ifndef ENGINE_MODEL_GPT_H
#define ENGINE_MODEL_GPT_H

struct gpt_shape {
    int layers, heads, width, context;
    int vocabulary; /* 0 = the data's */
    double dropout; /* on the embedding, the attention probabilities and both residual branches, as in GPT-2 */
};

#endif
