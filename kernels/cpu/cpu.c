/* Opening the table on a CPU.
 *
 * The instruction set is the best one of the processor or the requested one. The functions of the plain table for the
 * precision are filled in first; the vector table of the instruction set then replaces those that it has. For bf16 and
 * fp16 a second table in fp32 is opened beside the first. The numerics id names everything that bits depend on. */
#include "kernels/cpu/cpu.h"

#include "base/alloc.h"

#include "kernels/cpu/batchnorm.h"
#include "kernels/cpu/convolution.h"
#include "kernels/cpu/fourier.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/workspace.h"
#include "kernels/sources.h" /* generated: KERNELS_SOURCES */

#ifdef KERNELS_X86_64
#include <cpuid.h>
#endif
#include <gnu/libc-version.h>

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No host has this many cores for one rank, so that a larger number is a mistake. */
enum { MAX_THREADS = 1024 };

static const char *const ISA_NAME[] = {
    [KERNELS_ISA_PLAIN] = "plain", [KERNELS_ISA_AVX2] = "avx2", [KERNELS_ISA_AVX512] = "avx512"
};

#ifdef KERNELS_X86_64
/* clang 14 does not know F16C in __builtin_cpu_supports. */
static bool f16c_present(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

static bool isa_present(enum kernels_isa isa) {
    switch (isa) {
#ifdef KERNELS_X86_64
    case KERNELS_ISA_AVX2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c_present();
    case KERNELS_ISA_AVX512:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#endif
    case KERNELS_ISA_PLAIN: return true;
    default: return false;
    }
}

static status_t isa_choose(enum kernels_isa wanted, enum kernels_isa *ret, struct err *e) {
    if (wanted == KERNELS_ISA_BEST) {
        *ret = isa_present(KERNELS_ISA_AVX512) ? KERNELS_ISA_AVX512
               : isa_present(KERNELS_ISA_AVX2) ? KERNELS_ISA_AVX2
                                               : KERNELS_ISA_PLAIN;
        return ST_OK;
    }
    if (!isa_present(wanted))
        return err_set(e, ST_FAILED_PRECONDITION, "instruction set %d is not available on this processor", (int)wanted);
    *ret = wanted;
    return ST_OK;
}

static cpu_table_fn *const TABLES[][3] = {
    [KERNELS_ISA_PLAIN] = { plain_fp32_table, plain_bf16_table, plain_fp16_table },
#ifdef KERNELS_X86_64
    [KERNELS_ISA_AVX2] = { avx2_fp32_table, avx2_bf16_table, avx2_fp16_table },
    [KERNELS_ISA_AVX512] = { avx512_fp32_table, avx512_bf16_table, avx512_fp16_table },
#endif
};

/* Returns an empty text: on the CPU the shape alone selects the algorithm of a product. */
static char *tuning_cache(const struct kernels *k) {
    (void)k;
    return alloc_copy_text("");
}

static void table_fill(struct cpu *c) {
    struct kernels *t = &c->table;
    TABLES[KERNELS_ISA_PLAIN][t->precision](c);
    if (c->isa != KERNELS_ISA_PLAIN)
        TABLES[c->isa][t->precision](c);
#ifdef KERNELS_X86_64
    if (t->precision == KERNELS_BF16 && products_by_onednn(c->products))
        avx512_bf16_pairs_table(c);
#endif
    t->tuning_cache = tuning_cache;
    t->upload_elements = t->convert; /* device memory is host memory */
    memory_table(t);
    t->linear_forward = linear_forward;
    t->linear_backward_input = linear_backward_input;
    t->linear_backward_weight = linear_backward_weight;
    t->linear_memory = linear_memory;
    t->linear_backward_bias_workspace = workspace_linear_backward_bias;
    t->linear_backward_weight_workspace = workspace_linear_backward_weight;
    t->embedding_backward_workspace = workspace_embedding_backward;
    t->layernorm_backward_workspace = workspace_norm_backward;
    t->rmsnorm_backward_workspace = workspace_norm_backward;
    t->attention_workspace = workspace_attention;
    t->batchnorm_workspace = batchnorm_workspace;
    t->fourier_workspace = fourier_workspace;
    t->convolution_workspace = convolution_workspace;
    if (c->isa == KERNELS_ISA_PLAIN)
        return;
    t->convolution_forward = convolution_forward;
    t->convolution_backward_input = convolution_backward_input;
}

static struct cpu *cpu_free(struct cpu *c) {
    if (!c)
        return NULL;
    c->products = products_free(c->products);
    c->convolutions = convolutions_free(c->convolutions);
    c->rope = rope_table_free(c->rope);
    c->fp32 = kernels_close(c->fp32);
    free(c);
    return NULL;
}
CLEANUP_DEFINE(struct cpu *, cpu_free)

static status_t check_threads(const struct kernels_config *config, struct err *e) {
    const int limit = config->max_threads;
    if (config->threads < 1 || config->threads > MAX_THREADS)
        return err_set(e, ST_INVALID_ARGUMENT, "%d threads is not between 1 and %d", config->threads, MAX_THREADS);
    if (limit != 0 && (limit < config->threads || limit > MAX_THREADS))
        return err_set(e, ST_INVALID_ARGUMENT, "at most %d threads is not between the %d of now and %d", limit,
                       config->threads, MAX_THREADS);
    return ST_OK;
}

status_t cpu_open(const struct kernels_config *config, struct kernels **ret, struct err *e) {
    TRY(check_threads(config, e));
    if (config->precision < KERNELS_FP32 || config->precision > KERNELS_FP16)
        return err_set(e, ST_INVALID_ARGUMENT, "precision %d is none of fp32, bf16 and fp16", (int)config->precision);
    enum kernels_isa isa = KERNELS_ISA_PLAIN;
    TRY(isa_choose(config->isa, &isa, e));
    CLEANUP(cpu_freep) struct cpu *c = alloc_zeroed(1, sizeof *c);
    c->rope = rope_table_new();
    c->table.device = "cpu";
    c->table.threads = config->threads;
    c->table.max_threads = config->max_threads ? config->max_threads : config->threads;
    c->table.precision = config->precision;
    c->table.fast = config->fast;
    c->isa = isa;
    TRY(products_new(isa, config->precision, config->threads, &c->products, e));
    TRY(convolutions_new(config->precision, products_direct(c->products), config->threads, &c->convolutions, e));
    table_fill(c);
    c->table.fp32 = &c->table;
    if (config->precision != KERNELS_FP32) {
        struct kernels_config fp32 = *config;
        fp32.precision = KERNELS_FP32;
        TRY(cpu_open(&fp32, &c->fp32, e));
        c->table.fp32 = c->fp32;
    }
    *ret = &take_ptr(&c)->table;
    return ST_OK;
}

struct kernels *cpu_close(struct kernels *k) {
    (void)cpu_free((struct cpu *)k);
    return NULL;
}

/* Drops all cached products and convolutions, because they are built for the size of the team. */
void cpu_set_threads(struct kernels *k, int threads) {
    struct cpu *c = (struct cpu *)k;
    assert(threads >= 1 && threads <= k->max_threads);
    if (threads == k->threads)
        return;
    k->threads = threads;
    products_set_threads(c->products, threads);
    convolutions_set_threads(c->convolutions, threads);
    if (c->fp32)
        cpu_set_threads(c->fp32, threads);
}

void cpu_numerics_id(const struct kernels *k, char *buf, size_t n) {
    const struct cpu *c = cpu_of(k);
    const dnnl_version_t *v = dnnl_version();
    snprintf(buf, n, "cpu %s, %s, oneDNN %d.%d.%d %s, %s %s, glibc %s, trainyard %s %s", ISA_NAME[c->isa],
             products_precision_name(c->products), v->major, v->minor, v->patch,
             c->isa == KERNELS_ISA_PLAIN ? "unused" : onednn_isa_name(),
#ifdef __clang__
             "clang", __clang_version__,
#else
             "gcc", __VERSION__,
#endif
             gnu_get_libc_version(), TRAINYARD_VERSION, KERNELS_SOURCES);
}
