/* The plain ops, one function for each entry of the table that is not a matrix product; kernels.h says what they do.
 * Pure but for their outputs; the vector side calls the plain embedding too, where vectors have nothing to add. */
#ifndef KERNELS_CPU_PLAIN_OPS_H
#define KERNELS_CPU_PLAIN_OPS_H

#include "kernels/cpu/element.h"

/* --- on fp32 alone -------------------------------------------------------------------------------------------------*/
status_t plain_accumulate(const struct kernels *k, float *a, const float *b, int64_t n, struct err *e);
status_t plain_fill(const struct kernels *k, float *a, float value, int64_t n, struct err *e);
status_t plain_sum_squares(const struct kernels *k, const struct norm_span *spans, int n_spans, struct err *e);
status_t plain_sum(const struct kernels *k, double *ret, const float *a, int64_t n, struct err *e);
status_t plain_decide(const struct kernels *k, struct decision *decision, const double *losses, int64_t n_losses,
                      const double *sums, int64_t n_sums, const struct decide *o, struct err *e);
status_t plain_all_finite(const struct kernels *k, bool *ret, const float *a, int64_t n, struct err *e);

/* --- on elements: PLAIN(add) is plain_fp32_add, plain_bf16_add or plain_fp16_add -----------------------------------*/
#if defined ELEMENT_NAME
#define PLAIN_(name)  plain_##name
#define PLAIN__(name) PLAIN_(name)
#define PLAIN(name)   PLAIN__(ELEMENT_NAME(name))

status_t PLAIN(linear_backward_bias)(const struct kernels *k, float *dbias, element_t *dy, const element_t *pre,
                                     const struct linear_dims *d, bool accumulate, void *workspace, struct err *e);
status_t PLAIN(embedding_forward)(const struct kernels *k, element_t *y, const int32_t *tokens, const element_t *wte,
                                  const element_t *wpe, int64_t batch, int64_t time, int64_t width, int64_t vocabulary,
                                  struct err *e);
status_t PLAIN(embedding_backward)(const struct kernels *k, float *dwte, float *dwpe, const int32_t *tokens,
                                   const element_t *dy, int64_t batch, int64_t time, int64_t width, int64_t vocabulary,
                                   int64_t positions, bool accumulate, void *workspace, struct err *e);
status_t PLAIN(layernorm_forward)(const struct kernels *k, element_t *y, element_t *r, float *mean, float *rstd,
                                  const element_t *x, const element_t *branch, const element_t *gamma,
                                  const element_t *beta, int64_t rows, int64_t width, float epsilon, struct err *e);
status_t PLAIN(layernorm_backward)(const struct kernels *k, element_t *dx, float *dgamma, float *dbeta,
                                   const element_t *dy, const element_t *addend, const element_t *x, const float *mean,
                                   const float *rstd, const element_t *gamma, int64_t rows, int64_t width,
                                   bool accumulate, void *workspace, struct err *e);
status_t PLAIN(rmsnorm_forward)(const struct kernels *k, element_t *y, element_t *r, float *rstd, const element_t *x,
                                const element_t *branch, const element_t *gamma, int64_t rows, int64_t width,
                                float epsilon, struct err *e);
status_t PLAIN(rmsnorm_backward)(const struct kernels *k, element_t *dx, float *dgamma, const element_t *dy,
                                 const element_t *addend, const element_t *x, const float *rstd, const element_t *gamma,
                                 int64_t rows, int64_t width, bool accumulate, void *workspace, struct err *e);
status_t PLAIN(rope)(const struct kernels *k, element_t *to, const element_t *from, const struct attention_dims *d,
                     const struct rope *r, bool inverse, struct err *e);
status_t PLAIN(attention_forward)(const struct kernels *k, element_t *out, float *lse, const element_t *qkv,
                                  const struct attention_dims *d, const struct dropout *dropout, void *workspace,
                                  struct err *e);
status_t PLAIN(attention_backward)(const struct kernels *k, element_t *dqkv, const element_t *dout,
                                   const element_t *qkv, const element_t *out, const float *lse,
                                   const struct attention_dims *d, const struct dropout *dropout, void *workspace,
                                   struct err *e);
status_t PLAIN(correct)(const struct kernels *k, float *correct, const element_t *logits, const int32_t *targets,
                        int64_t rows, int64_t vocabulary, struct err *e);
status_t PLAIN(squared_error)(const struct kernels *k, float *losses, element_t *x, const float *reference,
                              int64_t batch, int64_t n, const float *scale, struct err *e);
status_t PLAIN(psnr)(const struct kernels *k, float *psnr, const element_t *x, const float *reference, int64_t batch,
                     int64_t n, struct err *e);
status_t PLAIN(convolution_forward)(const struct kernels *k, element_t *y, const element_t *x, const element_t *w,
                                    const element_t *bias, const struct convolution_dims *d, void *workspace,
                                    struct err *e);
status_t PLAIN(convolution_backward_input)(const struct kernels *k, element_t *dx, const element_t *dy,
                                           const element_t *w, const struct convolution_dims *d, bool accumulate,
                                           void *workspace, struct err *e);
status_t PLAIN(convolution_backward_weight)(const struct kernels *k, float *dw, const element_t *x, const element_t *dy,
                                            const struct convolution_dims *d, bool accumulate, void *workspace,
                                            struct err *e);
status_t PLAIN(batchnorm_forward)(const struct kernels *k, element_t *y, float *mean, float *variance,
                                  const element_t *x, const element_t *residual, const element_t *gamma,
                                  const element_t *beta, const struct batchnorm_dims *d, void *workspace,
                                  struct err *e);
status_t PLAIN(batchnorm_apply)(const struct kernels *k, element_t *y, const element_t *x, const element_t *residual,
                                const element_t *gamma, const element_t *beta, const element_t *mean,
                                const element_t *variance, const struct batchnorm_dims *d, struct err *e);
status_t PLAIN(batchnorm_backward)(const struct kernels *k, element_t *dx, element_t *d_residual, float *dgamma,
                                   float *dbeta, float *measured_mean, float *measured_variance, const element_t *dy,
                                   const element_t *x, const element_t *y, const float *mean, const float *variance,
                                   const element_t *gamma, const struct batchnorm_dims *d, bool accumulate,
                                   void *workspace, struct err *e);
status_t PLAIN(max_pool_forward)(const struct kernels *k, element_t *y, const element_t *x,
                                 const struct convolution_dims *d, struct err *e);
status_t PLAIN(max_pool_backward)(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *x,
                                  const struct convolution_dims *d, struct err *e);
status_t PLAIN(average_pool_forward)(const struct kernels *k, element_t *y, const element_t *x, int64_t batch,
                                     int64_t pixels, int64_t width, struct err *e);
status_t PLAIN(average_pool_backward)(const struct kernels *k, element_t *dx, const element_t *dy, int64_t batch,
                                      int64_t pixels, int64_t width, struct err *e);
status_t PLAIN(channels_last)(const struct kernels *k, element_t *y, const element_t *x, int64_t batch,
                              int64_t channels, int64_t pixels, struct err *e);
status_t PLAIN(patches)(const struct kernels *k, element_t *y, const element_t *x, int64_t batch, int64_t channels,
                        int64_t height, int64_t width, int64_t patch, struct err *e);
status_t PLAIN(prepend_forward)(const struct kernels *k, element_t *y, const element_t *x, const element_t *token,
                                const element_t *positions, int64_t batch, int64_t time, int64_t width, struct err *e);
status_t PLAIN(prepend_backward)(const struct kernels *k, element_t *dx, float *dtoken, float *dpositions,
                                 const element_t *dy, int64_t batch, int64_t time, int64_t width, bool accumulate,
                                 struct err *e);
status_t PLAIN(first_forward)(const struct kernels *k, element_t *y, const element_t *x, int64_t batch, int64_t time,
                              int64_t width, struct err *e);
status_t PLAIN(first_backward)(const struct kernels *k, element_t *dx, const element_t *dy, int64_t batch, int64_t time,
                               int64_t width, struct err *e);
status_t PLAIN(fourier_adjoint)(const struct kernels *k, element_t *x, const float *measured, const float *mask,
                                const struct fourier_dims *d, void *workspace, struct err *e);
status_t PLAIN(fourier_step_forward)(const struct kernels *k, element_t *y, const element_t *x, const element_t *update,
                                     const element_t *eta, const float *measured, const float *mask,
                                     const struct fourier_dims *d, void *workspace, struct err *e);
status_t PLAIN(fourier_step_backward)(const struct kernels *k, element_t *dx, float *deta, const element_t *dy,
                                      const element_t *x, const element_t *eta, const float *measured,
                                      const float *mask, const struct fourier_dims *d, bool accumulate, void *workspace,
                                      struct err *e);
status_t PLAIN(cross_entropy)(const struct kernels *k, float *losses, element_t *logits, const int32_t *targets,
                              int64_t rows, int64_t vocabulary, const float *scale, struct err *e);
status_t PLAIN(gelu_forward)(const struct kernels *k, element_t *y, const element_t *x, int64_t n, struct err *e);
status_t PLAIN(gelu_backward)(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *x,
                              int64_t n, struct err *e);
status_t PLAIN(swiglu_forward)(const struct kernels *k, element_t *y, const element_t *gate_up, int64_t rows,
                               int64_t width, struct err *e);
status_t PLAIN(swiglu_backward)(const struct kernels *k, element_t *d_gate_up, const element_t *dy,
                                const element_t *gate_up, int64_t rows, int64_t width, struct err *e);
status_t PLAIN(relu_forward)(const struct kernels *k, element_t *y, const element_t *x, int64_t n, struct err *e);
status_t PLAIN(relu_backward)(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *y,
                              int64_t n, struct err *e);
status_t PLAIN(dropout)(const struct kernels *k, element_t *y, const element_t *x, int64_t samples, int64_t n,
                        const struct dropout *dropout, struct err *e);
status_t PLAIN(add)(const struct kernels *k, element_t *y, const element_t *a, const element_t *b, int64_t n,
                    struct err *e);
status_t PLAIN(copy)(const struct kernels *k, element_t *to, const element_t *from, int64_t n, struct err *e);
void PLAIN(convert_row)(element_t *to, const float *from, int64_t n);
void PLAIN(widen_row)(float *to, const element_t *from, int64_t n);
status_t PLAIN(convert)(const struct kernels *k, element_t *to, const float *from, int64_t n, struct err *e);
status_t PLAIN(widen)(const struct kernels *k, float *to, const element_t *from, int64_t n, struct err *e);
status_t PLAIN(elements_finite)(const struct kernels *k, bool *ret, const element_t *a, int64_t n, struct err *e);
#endif

#endif
