/* How ops that touch each element once are cut for threads. */
#ifndef KERNELS_CPU_VECTOR_BLOCK_H
#define KERNELS_CPU_VECTOR_BLOCK_H

#include <stdint.h>

/* Elements that a thread takes at once; a smaller array is not worth waking the team for. */
enum { BLOCK = 8192 };

static inline int64_t block_end(int64_t begin, int64_t n) { return begin + BLOCK < n ? begin + BLOCK : n; }

#endif
