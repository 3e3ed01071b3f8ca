/* The named inputs of a batch: the interface between the data of a job and its model.
 *
 * A micro-batch of B samples is one array for each input, with the sample's shape after B, row-major. Tokens, targets,
 * labels and partners are int32_t, all others float; a graph with 16-bit elements converts them when it loads. */
#ifndef ENGINE_DATA_BATCH_H
#define ENGINE_DATA_BATCH_H

#include <stdbool.h>

/* A data source provides some of these inputs. */
enum batch_input {
    BATCH_TOKENS,       /* (B,T) i32 */
    BATCH_TARGETS,      /* (B,T) i32, the next token of each position; -1 = none */
    BATCH_IMAGES,       /* (B,C,H,W), normalised */
    BATCH_LABELS,       /* (B) i32 */
    BATCH_PARTNERS,     /* (B) i32, with mixup: the second label of each sample */
    BATCH_SHARES,       /* (B), with mixup: the weight of the first label, 0 .. 1 */
    BATCH_MEASUREMENTS, /* of an image, real and imaginary parts */
    BATCH_MASK,         /* 1 = measured, else 0 */
    BATCH_REFERENCE,    /* the image itself */
    BATCH_INPUTS,
};

static inline bool batch_input_is_integer(enum batch_input input) {
    return input == BATCH_TOKENS || input == BATCH_TARGETS || input == BATCH_LABELS || input == BATCH_PARTNERS;
}

/* The arrays of one micro-batch; NULL = not requested, or not available. */
struct batch {
    void *of[BATCH_INPUTS];
};

#endif
