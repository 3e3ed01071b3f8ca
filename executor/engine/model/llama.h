/* Llama as a graph (Touvron et al. 2023, arXiv 2302.13971 and 2307.09288): embedding, `layers` blocks of RMS norm,
 * grouped-query attention with rotary positions and SwiGLU feed-forward, head. Parameters carry the names and layouts
 * of Hugging Face's Llama: every matrix is (out, in). All start normal with deviation 0.02 (Hugging Face's
 * initializer_range), norms at one; there are no biases. */
#ifndef EXECUTOR_ENGINE_MODEL_LLAMA_H
#define EXECUTOR_ENGINE_MODEL_LLAMA_H

#include "executor/engine/graph/graph.h"

struct llama_shape {
    int layers, heads, width, context;
    int kv_heads;      /* divides heads; 0 = heads */
    int hidden;        /* of the feed-forward; 0 = 8/3 of width, up to a multiple of 32 */
    int vocabulary;    /* 0 = the data's */
    double rope_theta; /* 0 = 10,000 */
    /* Slower turns for longer contexts than the model was first trained on, as Llama 3.1 has them (struct rope in
     * kernels.h); factor 0 = none. */
    struct llama_rope_scaling {
        double factor, low_freq_factor, high_freq_factor;
        int original_max_position_embeddings;
    } rope_scaling;
    double norm_eps;      /* 0 = 1e-5 */
    bool tied_embeddings; /* the head is the embedding's matrix, else lm_head.weight */
};

/* Adds the model's blocks to a graph whose micro_batch is set. The shape is complete: model_resolve. */
MUST_CHECK status_t llama_blocks(const struct llama_shape *shape, struct graph *g, struct err *e);

#endif
