/* The shapes that known models ask kernels for: each distinct attention, convolution and linear layer of their graphs,
 * as the ops tell them when they ask for a workspace. */
#ifndef TESTS_KERNELS_CUDA_PRESETS_H
#define TESTS_KERNELS_CUDA_PRESETS_H

#include "kernels/kernels.h"

enum { PRESET_SHAPES_MOST = 64 };

struct preset_shapes {
    struct attention_dims attention[PRESET_SHAPES_MOST];
    struct convolution_dims convolution[PRESET_SHAPES_MOST];
    struct linear_dims linear[PRESET_SHAPES_MOST];
    int n_attention, n_convolution, n_linear;
};

int preset_count(void);
const char *preset_name(int i);
/* Fails the test where the model cannot be built. */
void preset_shapes(int i, struct preset_shapes *ret);

#endif
