/* Residual networks (He et al. 2015, arXiv 1512.03385) of basic blocks (18 and 34 layers) or bottlenecks (50, with the
 * stride in the 3x3 convolution) as graphs. Names and layouts are torchvision's. Convolutions start normal with
 * variance 2 / (out kh kw) (He et al. 2015, arXiv 1502.01852), norms at one and zero. */
#ifndef EXECUTOR_ENGINE_MODEL_RESNET_H
#define EXECUTOR_ENGINE_MODEL_RESNET_H

#include "executor/engine/graph/graph.h"

enum resnet_stem {
    RESNET_STEM_AUTO,     /* small up to 64 pixels a side, else imagenet */
    RESNET_STEM_IMAGENET, /* 7x7 with stride 2, then 3x3 max pooling with stride 2 */
    RESNET_STEM_SMALL,    /* 3x3 with stride 1 */
};

struct resnet_shape {
    int layers;  /* 18, 34 or 50; 0 = 18 */
    int classes; /* 0 = the data's */
    enum resnet_stem stem;
    int width; /* channels of the first stage; 0 = 64 */
};

/* Adds the model's blocks to a graph whose micro_batch is set. The shape is complete: model_resolve. Images are (B,
 * channels, height, width). */
MUST_CHECK status_t resnet_blocks(const struct resnet_shape *shape, int channels, int height, int width,
                                  struct graph *g, struct err *e);

#endif
