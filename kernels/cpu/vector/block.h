/* How ops that touch each element once are divided for threads. */
#ifndef KERNELS_CPU_VECTOR_BLOCK_H
#define KERNELS_CPU_VECTOR_BLOCK_H

#include <stdint.h>

/* Elements that a thread processes at once. For a smaller array, waking the team would cost more than it saves. */
enum { BLOCK = 8192 };

static inline int64_t block_end(int64_t begin, int64_t n) { return begin + BLOCK < n ? begin + BLOCK : n; }

#endif
