/* The vector ops: one declaration for each instruction set and each precision for which this folder is compiled.
 * VECTOR(gelu_forward) is avx2_bf16_gelu_forward, avx512_fp32_gelu_forward ... kernels.h describes the ops, and plain/
 * is their reference. In a file that is compiled for no precision (floats.c) the names are avx2_fill, avx512_fill. */
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

/* Ops on fp32 only. */
#define VECTOR_ISA(name) VECTOR_ISA_(name)
/* Ops on elements. */
#ifdef ELEMENT_NAME
#define VECTOR(name) VECTOR_ISA(ELEMENT_NAME(name))
/* For the lists of ops in this folder's headers, which table.c enters. */
#define VECTOR_DECLARE(op) KERNEL_OP(VECTOR(op), op)
#endif

#endif
