/* The functions that enter the table, one for each of its entries; kernels.h says what they do. C files define them as
 * they stand, .cu files too: the names are C's. */
#ifndef KERNELS_CUDA_OPS_H
#define KERNELS_CUDA_OPS_H

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/workspace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Enters all that is made of this folder's .cu files but attention and convolutions. */
void cuda_table(struct kernels *t);

/* --- library_table.c: what NVIDIA's libraries compute, at least in part --------------------------------------------*/
void cuda_library_table(struct kernels *t);

/* --- memory.c ------------------------------------------------------------------------------------------------------*/
status_t cuda_memory_new(const struct kernels *k, size_t bytes, void **ret, struct err *e);
void cuda_memory_free(const struct kernels *k, void *p);
status_t cuda_upload(const struct kernels *k, void *to, const void *from_host, size_t bytes, struct err *e);
status_t cuda_download(const struct kernels *k, void *to_host, const void *from, size_t bytes, struct err *e);
status_t cuda_upload_elements(const struct kernels *k, element_t *to, const float *from_host, int64_t n, struct err *e);
status_t cuda_upload_ahead(const struct kernels *k, void *to, const void *from_host, size_t bytes, struct err *e);
status_t cuda_ahead_await(const struct kernels *k, struct err *e);
status_t cuda_ahead_release(const struct kernels *k, struct err *e);
status_t cuda_move(const struct kernels *k, void *to, const void *from, size_t bytes, struct err *e);
status_t cuda_finish(const struct kernels *k, struct err *e);
/* What kernels have found, told once. */
status_t cuda_faults_take(const struct cuda *c, struct err *e);
status_t cuda_copy(const struct kernels *k, element_t *to, const element_t *from, int64_t n, struct err *e);

/* --- queue.c: events, pinned memory, capture -----------------------------------------------------------------------*/
void cuda_queue_table(struct kernels *t);

/* --- watch.c: timers, ranges ---------------------------------------------------------------------------------------*/
void cuda_watch_table(struct kernels *t);

/* --- linear.c ------------------------------------------------------------------------------------------------------*/
status_t cuda_linear_forward(const struct kernels *k, element_t *y, element_t *pre, const element_t *x,
                             const element_t *w, const element_t *bias, const struct linear_dims *d, struct err *e);
status_t cuda_linear_backward_input(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *w,
                                    const struct linear_dims *d, bool accumulate, struct err *e);
status_t cuda_linear_backward_weight(const struct kernels *k, float *dw, const element_t *x, const element_t *dy,
                                     const struct linear_dims *d, bool accumulate, void *workspace, struct err *e);
status_t cuda_record(const struct kernels *k, char **ret, struct err *e);

/* --- attention.c ---------------------------------------------------------------------------------------------------*/
/* cuda_attention_workspace; and cuDNN makes its plans for the shape. */
size_t cuda_attention_prepare(const struct kernels *k, const struct attention_dims *d);
status_t cuda_attention_forward(const struct kernels *k, element_t *out, float *lse, const element_t *qkv,
                                const struct attention_dims *d, const struct dropout *dropout, void *workspace,
                                struct err *e);
status_t cuda_attention_backward(const struct kernels *k, element_t *dqkv, const element_t *dout, const element_t *qkv,
                                 const element_t *out, const float *lse, const struct attention_dims *d,
                                 const struct dropout *dropout, void *workspace, struct err *e);

/* --- convolution.c -------------------------------------------------------------------------------------------------*/
/* cuda_convolution_workspace; and cuDNN makes its plans for the shape. */
size_t cuda_convolution_prepare(const struct kernels *k, const struct convolution_dims *d);
status_t cuda_convolution_forward(const struct kernels *k, element_t *y, const element_t *x, const element_t *w,
                                  const element_t *bias, const struct convolution_dims *d, void *workspace,
                                  struct err *e);
status_t cuda_convolution_backward_input(const struct kernels *k, element_t *dx, const element_t *dy,
                                         const element_t *w, const struct convolution_dims *d, bool accumulate,
                                         void *workspace, struct err *e);
status_t cuda_convolution_backward_weight(const struct kernels *k, float *dw, const element_t *x, const element_t *dy,
                                          const struct convolution_dims *d, bool accumulate, void *workspace,
                                          struct err *e);

/* --- linear_bias.cu ------------------------------------------------------------------------------------------------*/
status_t cuda_linear_backward_bias(const struct kernels *k, float *dbias, element_t *dy, const element_t *pre,
                                   const struct linear_dims *d, bool accumulate, void *workspace, struct err *e);

/* --- embedding.cu --------------------------------------------------------------------------------------------------*/
status_t cuda_embedding_forward(const struct kernels *k, element_t *y, const int32_t *tokens, const element_t *wte,
                                const element_t *wpe, int64_t batch, int64_t time, int64_t width, int64_t vocabulary,
                                struct err *e);
status_t cuda_embedding_backward(const struct kernels *k, float *dwte, float *dwpe, const int32_t *tokens,
                                 const element_t *dy, int64_t batch, int64_t time, int64_t width, int64_t vocabulary,
                                 int64_t positions, bool accumulate, void *workspace, struct err *e);

/* --- norm.cu -------------------------------------------------------------------------------------------------------*/
status_t cuda_layernorm_forward(const struct kernels *k, element_t *y, element_t *r, float *mean, float *rstd,
                                const element_t *x, const element_t *branch, const element_t *gamma,
                                const element_t *beta, int64_t rows, int64_t width, float epsilon, struct err *e);
status_t cuda_layernorm_backward(const struct kernels *k, element_t *dx, float *dgamma, float *dbeta,
                                 const element_t *dy, const element_t *addend, const element_t *x, const float *mean,
                                 const float *rstd, const element_t *gamma, int64_t rows, int64_t width,
                                 bool accumulate, void *workspace, struct err *e);
status_t cuda_rmsnorm_forward(const struct kernels *k, element_t *y, element_t *r, float *rstd, const element_t *x,
                              const element_t *branch, const element_t *gamma, int64_t rows, int64_t width,
                              float epsilon, struct err *e);
status_t cuda_rmsnorm_backward(const struct kernels *k, element_t *dx, float *dgamma, const element_t *dy,
                               const element_t *addend, const element_t *x, const float *rstd, const element_t *gamma,
                               int64_t rows, int64_t width, bool accumulate, void *workspace, struct err *e);

/* --- rope.cu -------------------------------------------------------------------------------------------------------*/
status_t cuda_rope(const struct kernels *k, element_t *to, const element_t *from, const struct attention_dims *d,
                   const struct rope *r, bool inverse, struct err *e);

/* --- batchnorm.cu --------------------------------------------------------------------------------------------------*/
status_t cuda_batchnorm_forward(const struct kernels *k, element_t *y, float *mean, float *variance, const element_t *x,
                                const element_t *residual, const element_t *gamma, const element_t *beta,
                                const struct batchnorm_dims *d, void *workspace, struct err *e);
status_t cuda_batchnorm_apply(const struct kernels *k, element_t *y, const element_t *x, const element_t *residual,
                              const element_t *gamma, const element_t *beta, const element_t *mean,
                              const element_t *variance, const struct batchnorm_dims *d, struct err *e);
status_t cuda_batchnorm_backward(const struct kernels *k, element_t *dx, element_t *d_residual, float *dgamma,
                                 float *dbeta, float *measured_mean, float *measured_variance, const element_t *dy,
                                 const element_t *x, const element_t *y, const float *mean, const float *variance,
                                 const element_t *gamma, const struct batchnorm_dims *d, bool accumulate,
                                 void *workspace, struct err *e);

/* --- pooling.cu ----------------------------------------------------------------------------------------------------*/
status_t cuda_max_pool_forward(const struct kernels *k, element_t *y, const element_t *x,
                               const struct convolution_dims *d, struct err *e);
status_t cuda_max_pool_backward(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *x,
                                const struct convolution_dims *d, struct err *e);
status_t cuda_average_pool_forward(const struct kernels *k, element_t *y, const element_t *x, int64_t batch,
                                   int64_t pixels, int64_t width, struct err *e);
status_t cuda_average_pool_backward(const struct kernels *k, element_t *dx, const element_t *dy, int64_t batch,
                                    int64_t pixels, int64_t width, struct err *e);

/* --- patches.cu ----------------------------------------------------------------------------------------------------*/
status_t cuda_channels_last(const struct kernels *k, element_t *y, const element_t *x, int64_t batch, int64_t channels,
                            int64_t pixels, struct err *e);
status_t cuda_patches(const struct kernels *k, element_t *y, const element_t *x, int64_t batch, int64_t channels,
                      int64_t height, int64_t width, int64_t patch, struct err *e);
status_t cuda_prepend_forward(const struct kernels *k, element_t *y, const element_t *x, const element_t *token,
                              const element_t *positions, int64_t batch, int64_t time, int64_t width, struct err *e);
status_t cuda_prepend_backward(const struct kernels *k, element_t *dx, float *dtoken, float *dpositions,
                               const element_t *dy, int64_t batch, int64_t time, int64_t width, bool accumulate,
                               struct err *e);
status_t cuda_first_forward(const struct kernels *k, element_t *y, const element_t *x, int64_t batch, int64_t time,
                            int64_t width, struct err *e);
status_t cuda_first_backward(const struct kernels *k, element_t *dx, const element_t *dy, int64_t batch, int64_t time,
                             int64_t width, struct err *e);

/* --- fourier.cu ----------------------------------------------------------------------------------------------------*/
status_t cuda_fourier_adjoint(const struct kernels *k, element_t *x, const float *measured, const float *mask,
                              const struct fourier_dims *d, void *workspace, struct err *e);
status_t cuda_fourier_step_forward(const struct kernels *k, element_t *y, const element_t *x, const element_t *update,
                                   const element_t *eta, const float *measured, const float *mask,
                                   const struct fourier_dims *d, void *workspace, struct err *e);
status_t cuda_fourier_step_backward(const struct kernels *k, element_t *dx, float *deta, const element_t *dy,
                                    const element_t *x, const element_t *eta, const float *measured, const float *mask,
                                    const struct fourier_dims *d, bool accumulate, void *workspace, struct err *e);

/* --- cross_entropy.cu ----------------------------------------------------------------------------------------------*/
status_t cuda_cross_entropy(const struct kernels *k, float *losses, element_t *logits, const int32_t *targets,
                            int64_t rows, int64_t vocabulary, const float *scale, struct err *e);
status_t cuda_correct(const struct kernels *k, float *correct, const element_t *logits, const int32_t *targets,
                      int64_t rows, int64_t vocabulary, struct err *e);

/* --- squared_error.cu ----------------------------------------------------------------------------------------------*/
status_t cuda_squared_error(const struct kernels *k, float *losses, element_t *x, const float *reference, int64_t batch,
                            int64_t n, const float *scale, struct err *e);
status_t cuda_psnr(const struct kernels *k, float *psnr, const element_t *x, const float *reference, int64_t batch,
                   int64_t n, struct err *e);

/* --- elementwise.cu ------------------------------------------------------------------------------------------------*/
status_t cuda_gelu_forward(const struct kernels *k, element_t *y, const element_t *x, int64_t n, struct err *e);
status_t cuda_gelu_backward(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *x, int64_t n,
                            struct err *e);
status_t cuda_swiglu_forward(const struct kernels *k, element_t *y, const element_t *gate_up, int64_t rows,
                             int64_t width, struct err *e);
status_t cuda_swiglu_backward(const struct kernels *k, element_t *d_gate_up, const element_t *dy,
                              const element_t *gate_up, int64_t rows, int64_t width, struct err *e);
status_t cuda_relu_forward(const struct kernels *k, element_t *y, const element_t *x, int64_t n, struct err *e);
status_t cuda_relu_backward(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *y, int64_t n,
                            struct err *e);
status_t cuda_dropout(const struct kernels *k, element_t *y, const element_t *x, int64_t samples, int64_t n,
                      const struct dropout *dropout, struct err *e);
status_t cuda_add(const struct kernels *k, element_t *y, const element_t *a, const element_t *b, int64_t n,
                  struct err *e);
status_t cuda_convert(const struct kernels *k, element_t *to, const float *from, int64_t n, struct err *e);
status_t cuda_widen(const struct kernels *k, float *to, const element_t *from, int64_t n, struct err *e);
status_t cuda_accumulate(const struct kernels *k, float *a, const float *b, int64_t n, struct err *e);
status_t cuda_fill(const struct kernels *k, float *a, float value, int64_t n, struct err *e);

/* --- floats.cu -----------------------------------------------------------------------------------------------------*/
status_t cuda_decide(const struct kernels *k, struct decision *decision, const double *losses, int64_t n_losses,
                     const double *sums, int64_t n_sums, const struct decide *o, struct err *e);
status_t cuda_sum_squares(const struct kernels *k, const struct norm_span *all, int n_all, struct err *e);
status_t cuda_sum(const struct kernels *k, double *ret, const float *a, int64_t n, struct err *e);
status_t cuda_all_finite(const struct kernels *k, bool *ret, const float *a, int64_t n, struct err *e);
status_t cuda_elements_finite(const struct kernels *k, bool *ret, const element_t *a, int64_t n, struct err *e);

/* --- optimizer.cu --------------------------------------------------------------------------------------------------*/
status_t cuda_adamw(const struct kernels *k, const struct span *all, int n_all, const struct adamw *o, struct err *e);
status_t cuda_sgd(const struct kernels *k, const struct span *all, int n_all, const struct sgd *o, struct err *e);
status_t cuda_lion(const struct kernels *k, const struct span *all, int n_all, const struct lion *o, struct err *e);
status_t cuda_momentum(const struct kernels *k, float *u, float *m, const float *g, int64_t n, const struct momentum *o,
                       struct err *e);
status_t cuda_descend(const struct kernels *k, float *p, element_t *weight, const float *x, int64_t n,
                      const struct descent *o, struct err *e);
status_t cuda_scale_add(const struct kernels *k, const struct span *all, int n_all, double keep, double by,
                        const struct update *update, struct err *e);
status_t cuda_running_mean(const struct kernels *k, const struct span *all, int n_all, double momentum, int64_t parts,
                           const struct update *update, struct err *e);
status_t cuda_normalise(const struct kernels *k, float *x, int64_t n, double least, double *workspace, struct err *e);

/* --- adafactor.cu --------------------------------------------------------------------------------------------------*/
status_t cuda_adafactor(const struct kernels *k, float *p, element_t *weight, float *row, float *column, const float *g,
                        int64_t rows, int64_t columns, const struct adafactor *o, void *workspace, struct err *e);

#ifdef __cplusplus
}
#endif

#endif
