/* The parts that every use of oneDNN needs: conversion of its statuses, its number of threads, and the calls that
 * differ between oneDNN 2 and 3, whose C interfaces are not compatible. No other file checks the version. */
#ifndef KERNELS_CPU_ONEDNN_H
#define KERNELS_CPU_ONEDNN_H

#include "base/cleanup.h"
#include "base/status.h"

#include <oneapi/dnnl/dnnl.h>

#include <stdbool.h>

/* RESOURCE_EXHAUSTED if oneDNN is out of memory, otherwise INTERNAL: "oneDNN could not WHAT (why)". */
MUST_CHECK status_t onednn_check(dnnl_status_t st, const char *what, struct err *e);

/* oneDNN takes its number of threads from the OpenMP setting of the caller, both when a primitive is built and when it
 * runs. Sets that number and returns the previous one, which the caller restores. */
int onednn_threads(int threads);

/* The instruction set that oneDNN uses in this process, such as "avx512_core_amx"; static storage. */
const char *onednn_isa_name(void);

/* True for a product's plan that adds along k in order for any number of threads (see product.h). */
MUST_CHECK status_t onednn_product_in_order(dnnl_primitive_desc_t plan, bool *ret, struct err *e);

/* oneDNN 3 treats an A of one row as transposed, and divides its k by the number of threads, as for every transposed
 * A. */
enum { ONEDNN_ROW_IS_TRANSPOSED = DNNL_VERSION_MAJOR >= 3 };

/* The positions of a tensor's elements in memory. In oneDNN 2 such a description is a value, in oneDNN 3 a handle. */
#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t onednn_desc_t; /* borrowed; NULL = none */
#else
typedef const dnnl_memory_desc_t *onednn_desc_t;
#endif
struct onednn_layout {
    dnnl_memory_desc_t own;
    onednn_desc_t desc; /* refers to `own`; NULL until it is created */
};

/* strides: the distance in elements from one index to the next, for each of n dimensions. */
MUST_CHECK status_t onednn_layout_strided(struct onednn_layout *ret, int n, const dnnl_dims_t dims,
                                          dnnl_data_type_t type, const dnnl_dims_t strides, struct err *e);
/* In the layout that tag names; dnnl_format_tag_any: in the layout that the primitive prefers. */
MUST_CHECK status_t onednn_layout_tagged(struct onednn_layout *ret, int n, const dnnl_dims_t dims,
                                         dnnl_data_type_t type, dnnl_format_tag_t tag, struct err *e);
/* Accepts a zeroed value too. For CLEANUP. */
void onednn_layout_done(struct onednn_layout *l);

/* The tensors that a product or a convolution reads and writes, borrowed for the call. */
struct onednn_product {
    onednn_desc_t a, b, bias, c; /* bias NULL: no bias */
    bool accumulate;             /* C += A B */
};
struct onednn_convolution {
    onednn_desc_t x, w, bias, y;    /* bias NULL: no bias; backward ignores it */
    const dnnl_dim_t *stride, *pad; /* for height and width; pad: on each side */
};

/* Create a plan, which the caller destroys with dnnl_primitive_desc_destroy. The caller also provides the scratch
 * memory of each run. forward: the plan of the forward pass, which oneDNN takes as a hint. */
MUST_CHECK status_t onednn_product_plan(dnnl_engine_t engine, const struct onednn_product *p,
                                        dnnl_primitive_desc_t *ret, struct err *e);
MUST_CHECK status_t onednn_convolution_plan(dnnl_engine_t engine, const struct onednn_convolution *c,
                                            dnnl_primitive_desc_t *ret, struct err *e);
MUST_CHECK status_t onednn_convolution_backward_plan(dnnl_engine_t engine, const struct onednn_convolution *c,
                                                     dnnl_primitive_desc_t forward, dnnl_primitive_desc_t *ret,
                                                     struct err *e);

#endif
