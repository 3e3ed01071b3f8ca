/* A perceptron on images: linear layers with GELU and dropout between them, on the pixels as one vector (channel, row,
 * column). Parameters are layers.N.weight (out, in) and layers.N.bias. */
#ifndef ENGINE_MODEL_MLP_H
#define ENGINE_MODEL_MLP_H

enum { MLP_LAYERS_MAX = 32 };

struct mlp_shape {
    int hidden[MLP_LAYERS_MAX]; /* sizes of the hidden layers */
    int n_hidden;
    int classes; /* 0 = the data's */
    double dropout;
};

#endif
