/* The angles of rotary positions, computed in double at the first use of a shape and kept. All paths share them. See
 * struct rope in kernels.h. */
#ifndef KERNELS_CPU_ROPE_H
#define KERNELS_CPU_ROPE_H

#include "kernels/kernels.h"

struct rope_table;

struct rope_table *rope_table_new(void); /* never NULL */
struct rope_table *rope_table_free(struct rope_table *t);

/* cosine, sine (time, head / 2) of pair i at position t, valid until the next call. RESOURCE_EXHAUSTED. */
MUST_CHECK status_t rope_angles(const struct kernels *k, const struct rope *r, int64_t time, int64_t head,
                                const float **cosine, const float **sine, struct err *e);

#endif
