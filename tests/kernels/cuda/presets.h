/* The shapes with which known models call kernels: each distinct attention, convolution and linear layer of their
 * graphs, as the ops pass them when they ask for a workspace. */
#ifndef TESTS_KERNELS_CUDA_PRESETS_H
#define TESTS_KERNELS_CUDA_PRESETS_H

#include "kernels/kernels.h"

enum { MAX_PRESET_SHAPES = 64 };

struct preset_shapes {
    struct attention_dims attention[MAX_PRESET_SHAPES];
    struct convolution_dims convolution[MAX_PRESET_SHAPES];
    struct linear_dims linear[MAX_PRESET_SHAPES];
    int n_attention, n_convolution, n_linear;
};

int preset_count(void);
const char *preset_name(int i);
/* Fails the test if the model cannot be built. */
void preset_shapes(int i, struct preset_shapes *ret);

#endif
