/* Residual networks (He et al. 2015, arXiv 1512.03385) of basic blocks (18 and 34 layers) or bottlenecks (50, with the
 * stride in the 3x3 convolution) as graphs. Names and layouts are torchvision's. Convolutions are initially normal with
 * variance 2 / (out kh kw) (He et al. 2015, arXiv 1502.01852), norms have weights one and biases zero, and the head's
 * weight and bias are uniform between -1 / sqrt(inputs) and 1 / sqrt(inputs), all as in torchvision. */
#ifndef ENGINE_MODEL_RESNET_H
#define ENGINE_MODEL_RESNET_H

enum resnet_stem {
    RESNET_STEM_AUTO,     /* small up to 64 pixels a side, else imagenet */
    RESNET_STEM_IMAGENET, /* 7x7 with stride 2, then 3x3 max pooling with stride 2 */
    RESNET_STEM_SMALL,    /* 3x3 with stride 1 */
};

struct resnet_shape {
    int layers;  /* 18, 34 or 50 */
    int classes; /* 0 = the data's */
    enum resnet_stem stem;
    int width; /* channels of the first stage */
};

#endif
