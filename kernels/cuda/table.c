#include "kernels/cuda/ops.h"

#define ENTER(op) t->op = cuda_##op

void cuda_table(struct kernels *t) {
    CUDA_OPS(ENTER);
    t->linear_backward_bias_workspace = cuda_linear_backward_bias_workspace;
    t->embedding_backward_workspace = cuda_embedding_backward_workspace;
    t->layernorm_backward_workspace = cuda_norm_workspace;
    t->rmsnorm_backward_workspace = cuda_norm_workspace;
    t->batchnorm_workspace = cuda_batchnorm_workspace;
    t->fourier_workspace = cuda_fourier_workspace;
    t->adafactor_workspace = cuda_adafactor_workspace;
}
