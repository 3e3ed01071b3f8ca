/* Vision transformer (Dosovitskiy et al. 2020, arXiv 2010.11929): patches, a class token, learned positions, pre-norm
 * blocks, a head on the class token. Names and layouts are torchvision's; GELU is taken in its tanh form. */
#ifndef EXECUTOR_ENGINE_MODEL_VIT_H
#define EXECUTOR_ENGINE_MODEL_VIT_H

#include "executor/engine/graph/graph.h"

struct vit_shape {
    int layers, heads, width;
    int patch;      /* pixels a side; divides height and width of the image */
    int hidden;     /* of the feed-forward; 0 = 4 width */
    int classes;    /* 0 = the data's */
    double dropout; /* on embedding, probabilities and both branches */
};

/* Adds the model's blocks to a graph whose micro_batch is set. The shape is complete: model_resolve. */
MUST_CHECK status_t vit_blocks(const struct vit_shape *shape, int channels, int height, int width, struct graph *g,
                               struct err *e);

#endif
