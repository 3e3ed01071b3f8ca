/* An iterative reconstruction, unrolled (Hammernik et al. 2018, arXiv 1704.00447; Aggarwal et al. 2019, arXiv
 * 1712.02862): an image x is known by its measurements y = M F x + noise, F the orthonormal two-dimensional Fourier
 * transform, M the mask of what was measured. From x_0 = F* M y each iteration takes a step towards the measurements
 * and adds what a small convolutional network has learned:
 *
 *     x_k+1 = x_k - eta_k Re F* M (F x_k - y) + net_k(x_k)        net: conv 3x3, ReLU, ..., conv 3x3, with biases
 *
 * The loss is the squared error to the reference, averaged over a sample's pixels. An iteration is a block: under block
 * recompute only x_k is kept of it. Images have one channel; sides are powers of two. */
#ifndef EXECUTOR_ENGINE_MODEL_UNROLLED_H
#define EXECUTOR_ENGINE_MODEL_UNROLLED_H

#include "executor/engine/graph/graph.h"

struct unrolled_shape {
    int iterations;
    int channels;        /* of the network's inner convolutions; 0 = 32 */
    int layers;          /* convolutions of the network, at least 2; 0 = 3 */
    bool shared_weights; /* all iterations have one net and one eta */
};

/* Adds the model's blocks to a graph whose micro_batch is set. The shape is complete: model_resolve. */
MUST_CHECK status_t unrolled_blocks(const struct unrolled_shape *shape, int height, int width, struct graph *g,
                                    struct err *e);

#endif
