/* The memory functions of a table whose device memory is host memory. */
#ifndef KERNELS_CPU_MEMORY_H
#define KERNELS_CPU_MEMORY_H

#include "kernels/kernels.h"

void memory_table(struct kernels *t);

#endif
