/* The vector ops: one declaration for each instruction set that this folder is compiled for. VECTOR(gelu_forward) is
 * avx2_gelu_forward or avx512_gelu_forward; kernels.h says what they do, plain/ is their reference. */
#ifndef KERNELS_CPU_VECTOR_OPS_H
#define KERNELS_CPU_VECTOR_OPS_H

#include "kernels/kernels.h"

#if defined __AVX512F__
#define VECTOR(name) avx512_##name
#elif defined __AVX2__
#define VECTOR(name) avx2_##name
#else
#error "compile this folder with the flags of one instruction set (kernels/CMakeLists.txt)"
#endif

#endif
