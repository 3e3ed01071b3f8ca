/* The second half of a reduction over rows: adds the sums of the pieces in their order. See cpu/piece.h. */
#ifndef KERNELS_CPU_VECTOR_ADD_PIECES_H
#define KERNELS_CPU_VECTOR_ADD_PIECES_H

#include "kernels/cpu/vector/vector.h"

/* sum (width) = or += the `pieces` rows of partial, which are `stride` floats apart. */
static inline void add_pieces(float *sum, const float *partial, int64_t pieces, int64_t stride, int64_t width,
                              bool accumulate) {
    for (int64_t c = 0; c < width; c += LANES) {
        const int64_t lanes = lanes_at(c, width);
        vf s = vf_load_first(partial + c, lanes);
        for (int64_t i = 1; i < pieces; i++)
            s = vf_add(s, vf_load_first(partial + i * stride + c, lanes));
        vf_store_first(sum + c, accumulate ? vf_add(vf_load_first(sum + c, lanes), s) : s, lanes);
    }
}

#endif
