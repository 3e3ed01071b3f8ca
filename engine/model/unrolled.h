/* An iterative reconstruction, unrolled (Hammernik et al. 2018, arXiv 1704.00447; Aggarwal et al. 2019, arXiv
 * 1712.02862): an image x is known by its measurements y = M F x + noise, F the orthonormal two-dimensional Fourier
 * transform, M the mask of the measured frequencies. From x_0 = F* M y each iteration takes a step towards the
 * measurements and adds the output of a small convolutional network:
 *
 *     x_k+1 = x_k - eta_k Re F* M (F x_k - y) + net_k(x_k)        net: conv 3x3, ReLU, ..., conv 3x3, with biases
 *
 * The loss is the squared error to the reference, averaged over a sample's pixels. An iteration is a block: under block
 * recompute, only its x_k is kept. Images have one channel; sides are powers of two. */
#ifndef ENGINE_MODEL_UNROLLED_H
#define ENGINE_MODEL_UNROLLED_H

#include <stdbool.h>

struct unrolled_shape {
    int iterations;
    int channels;        /* of the network's inner convolutions */
    int layers;          /* convolutions of the network, at least 2 */
    bool shared_weights; /* all iterations have one net and one eta */
};

#endif
