/* Llama as a graph (Touvron et al. 2023, arXiv 2302.13971 and 2307.09288): embedding, `layers` blocks of RMS norm,
 * grouped-query attention with rotary positions and SwiGLU feed-forward, head. Parameters carry the names and layouts
 * of Hugging Face's Llama: every matrix is (out, in). All are initially normal with standard deviation 0.02 (Hugging
 * Face's initializer_range), norms one; there are no biases. */
#ifndef ENGINE_MODEL_LLAMA_H
#define ENGINE_MODEL_LLAMA_H

#include <stdbool.h>

struct llama_shape {
    int layers, heads, width, context;
    int kv_heads;      /* divides heads */
    int hidden;        /* of the feed-forward */
    int vocabulary;    /* 0 = the data's */
    double rope_theta; /* base of the rotary positions */
    /* Slower rotation, for longer contexts than those the model was first trained on, as in Llama 3.1 (struct rope in
     * kernels.h); factor 0 = no scaling. */
    struct llama_rope_scaling {
        double factor, low_freq_factor, high_freq_factor;
        int original_max_position_embeddings;
    } rope_scaling;
    double norm_eps;
    bool tied_embeddings; /* the head is the embedding's matrix, else lm_head.weight */
};

#endif
