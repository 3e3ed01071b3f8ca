/* A perceptron on images: linear layers with GELU and dropout between them, on the pixels as one vector (channel, row,
 * column). Parameters are layers.N.weight (out, in) and layers.N.bias. */
#ifndef EXECUTOR_ENGINE_MODEL_MLP_H
#define EXECUTOR_ENGINE_MODEL_MLP_H

#include "executor/engine/graph/graph.h"

enum { MLP_LAYERS_MOST = 32 };

struct mlp_shape {
    int hidden[MLP_LAYERS_MOST]; /* sizes of the hidden layers */
    int n_hidden;
    int classes; /* 0 = the data's */
    double dropout;
};

/* Adds the model's blocks to a graph whose micro_batch is set. The shape is complete: model_resolve. */
MUST_CHECK status_t mlp_blocks(const struct mlp_shape *shape, int channels, int height, int width, struct graph *g,
                               struct err *e);

#endif
