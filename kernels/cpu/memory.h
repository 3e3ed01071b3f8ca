/* The table's memory functions where the device's memory is the host's. */
#ifndef KERNELS_CPU_MEMORY_H
#define KERNELS_CPU_MEMORY_H

#include "kernels/kernels.h"

void memory_table(struct kernels *t);

#endif
