#include "kernels/cuda/lib/product_layout.h"

status_t product_status(cublasStatus_t st, const char *what, struct err *e) {
    switch (st) {
    case CUBLAS_STATUS_SUCCESS: return ST_OK;
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return err_set(e, ST_UNIMPLEMENTED, "cuBLASLt, %s: %s", what, cublasLtGetStatusString(st));
    case CUBLAS_STATUS_ALLOC_FAILED:
        return err_set(e, ST_RESOURCE_EXHAUSTED, "cuBLASLt, %s: %s", what, cublasLtGetStatusString(st));
    default: return err_set(e, ST_INTERNAL, "cuBLASLt, %s: %s", what, cublasLtGetStatusString(st));
    }
}

static status_t set(struct product_layout *l, cublasLtMatmulDescAttributes_t name, const void *value, size_t bytes,
                    struct err *e) {
    return product_status(cublasLtMatmulDescSetAttribute(l->operation, name, value, bytes), "describing a product", e);
}

static status_t matrix(cublasLtMatrixLayout_t *ret, cudaDataType_t type, int64_t rows, int64_t columns, int64_t stride,
                       bool transposed, struct err *e) {
    const uint64_t across = (uint64_t)(transposed ? rows : columns), down = (uint64_t)(transposed ? columns : rows);
    return product_status(cublasLtMatrixLayoutCreate(ret, type, across, down, stride), "describing a matrix", e);
}

static cublasLtEpilogue_t epilogue(unsigned flags) {
    const bool bias = flags & GEMM_BIAS;
    if (flags & GEMM_GELU)
        return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

static status_t describe(struct product_layout *l, const struct gemm *p, cudaDataType_t type, struct err *e) {
    const cublasOperation_t first = p->flags & GEMM_B_TRANSPOSED ? CUBLAS_OP_T : CUBLAS_OP_N,
                            second = p->flags & GEMM_A_TRANSPOSED ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t last = epilogue(p->flags);
    TRY(product_status(cublasLtMatmulDescCreate(&l->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product",
                       e));
    TRY(set(l, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first, e));
    TRY(set(l, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second, e));
    TRY(set(l, CUBLASLT_MATMUL_DESC_EPILOGUE, &last, sizeof last, e));
    if (p->flags & GEMM_BIAS)
        TRY(set(l, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type, e));
    if (p->flags & GEMM_GELU) {
        TRY(set(l, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p->ldc, sizeof p->ldc, e));
        TRY(set(l, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, &type, sizeof type, e));
    }
    return ST_OK;
}

status_t product_layout_new(const struct gemm *p, struct product_layout *ret, struct err *e) {
    const cudaDataType_t type = p->precision == KERNELS_FP32   ? CUDA_R_32F
                                : p->precision == KERNELS_BF16 ? CUDA_R_16BF
                                                               : CUDA_R_16F;
    struct product_layout l = { 0 };
    status_t st = describe(&l, p, type, e);
    if (st == ST_OK)
        st = matrix(&l.first, type, p->k, p->n, p->ldb, p->flags & GEMM_B_TRANSPOSED, e);
    if (st == ST_OK)
        st = matrix(&l.second, type, p->m, p->k, p->lda, p->flags & GEMM_A_TRANSPOSED, e);
    if (st == ST_OK)
        st = matrix(&l.c, p->flags & GEMM_C_FP32 ? CUDA_R_32F : type, p->m, p->n, p->ldc, false, e);
    if (st != ST_OK) {
        product_layout_done(&l);
        return st;
    }
    *ret = l;
    return ST_OK;
}

void product_layout_done(struct product_layout *l) {
    if (l->operation)
        (void)cublasLtMatmulDescDestroy(l->operation);
    if (l->first)
        (void)cublasLtMatrixLayoutDestroy(l->first);
    if (l->second)
        (void)cublasLtMatrixLayoutDestroy(l->second);
    if (l->c)
        (void)cublasLtMatrixLayoutDestroy(l->c);
    *l = (struct product_layout){ 0 };
}
