/* What a batch holds, by name: the words that the data of a job and its model have in common.
 *
 * A micro-batch of B samples is one array for each input, the sample's shape behind B, row-major. Tokens, targets and
 * labels are int32_t, all others float; a graph whose element is narrower converts while it loads. */
#ifndef EXECUTOR_ENGINE_DATA_BATCH_H
#define EXECUTOR_ENGINE_DATA_BATCH_H

#include <stdbool.h>

/* What a batch input holds; the data source of a job gives some of them. */
enum batch_input {
    BATCH_TOKENS,       /* (B,T) i32 */
    BATCH_TARGETS,      /* (B,T) i32, the tokens that follow; -1 = none */
    BATCH_IMAGES,       /* (B,C,H,W), normalised */
    BATCH_LABELS,       /* (B) i32 */
    BATCH_MEASUREMENTS, /* what was measured of an image */
    BATCH_MASK,         /* where it was measured */
    BATCH_REFERENCE,    /* the image itself */
    BATCH_INPUTS,
};

static inline bool batch_input_is_integer(enum batch_input input) {
    return input == BATCH_TOKENS || input == BATCH_TARGETS || input == BATCH_LABELS;
}

/* The arrays of one micro-batch; NULL = not wanted, or not there. */
struct batch {
    void *of[BATCH_INPUTS];
};

#endif
