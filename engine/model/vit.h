/* Vision transformer (Dosovitskiy et al. 2020, arXiv 2010.11929): patches, a class token, learned positions, pre-norm
 * blocks, a head on the class token, GELU by erf. Names and layouts are torchvision's; initial values, and what is not
 * decayed, are timm's (vit.c). */
#ifndef ENGINE_MODEL_VIT_H
#define ENGINE_MODEL_VIT_H

struct vit_shape {
    int layers, heads, width;
    int patch;      /* pixels a side; divides height and width of the image */
    int hidden;     /* of the feed-forward */
    int classes;    /* 0 = the data's */
    double dropout; /* on embedding, probabilities and both branches */
};

#endif
