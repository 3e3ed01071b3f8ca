/* The vector ops: one declaration for each instruction set and each precision that this folder is compiled for.
 * VECTOR(gelu_forward) is avx2_bf16_gelu_forward, avx512_fp32_gelu_forward ...; kernels.h says what they do, plain/ is
 * their reference. In a file that is compiled for no precision (floats.c) it is avx2_fill, avx512_fill. */
#ifndef KERNELS_CPU_VECTOR_OPS_H
#define KERNELS_CPU_VECTOR_OPS_H

#include "kernels/cpu/element.h"

#if defined __AVX512F__
#define VECTOR_ISA_(name) avx512_##name
#elif defined __AVX2__
#define VECTOR_ISA_(name) avx2_##name
#else
#error "compile this folder with the flags of one instruction set (kernels/CMakeLists.txt)"
#endif

/* On fp32 alone. */
#define VECTOR_ISA(name) VECTOR_ISA_(name)
/* On elements. */
#ifdef ELEMENT_NAME
#define VECTOR(name) VECTOR_ISA(ELEMENT_NAME(name))
#endif

#endif
