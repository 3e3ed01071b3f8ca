#include "kernels/cpu/cpu.h"

#include "kernels/cpu/linear.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/workspace.h"

#include <gnu/libc-version.h>
#include <oneapi/dnnl/dnnl.h>

#include <stdio.h>
#include <stdlib.h>

/* More threads than any host has cores for one rank; a larger number is a mistake. */
enum { THREADS_MOST = 1024 };

static const char *const ISA_NAME[] = {
    [KERNELS_ISA_PLAIN] = "plain", [KERNELS_ISA_AVX2] = "avx2", [KERNELS_ISA_AVX512] = "avx512"
};

static bool isa_present(enum kernels_isa isa) {
    switch (isa) {
#ifdef KERNELS_X86_64
    case KERNELS_ISA_AVX2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
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

static void table_fill(struct cpu *c) {
    struct kernels *t = &c->table;
    plain_table(t);
#ifdef KERNELS_X86_64
    if (c->isa == KERNELS_ISA_AVX2)
        avx2_table(t);
    if (c->isa == KERNELS_ISA_AVX512)
        avx512_table(t);
#endif
    t->linear_forward = linear_forward;
    t->linear_backward_input = linear_backward_input;
    t->linear_backward_weight = linear_backward_weight;
    t->linear_backward_bias_workspace = workspace_linear_backward_bias;
    t->linear_backward_weight_workspace = workspace_linear_backward_weight;
    t->layernorm_backward_workspace = workspace_layernorm_backward;
    t->attention_workspace = workspace_attention;
}

status_t cpu_open(const struct kernels_config *config, struct kernels **ret, struct err *e) {
    if (config->threads < 1 || config->threads > THREADS_MOST)
        return err_set(e, ST_INVALID_ARGUMENT, "%d threads is not between 1 and %d", config->threads, THREADS_MOST);
    enum kernels_isa isa;
    TRY(isa_choose(config->isa, &isa, e));
    CLEANUP(freep) struct cpu *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the table of kernels");
    c->table.device = "cpu";
    c->table.threads = config->threads;
    c->isa = isa;
    TRY(products_new(isa, config->threads, &c->products, e));
    table_fill(c);
    *ret = &take_ptr(&c)->table;
    return ST_OK;
}

struct kernels *cpu_close(struct kernels *k) {
    struct cpu *c = (struct cpu *)k;
    c->products = products_free(c->products);
    free(c);
    return NULL;
}

void cpu_numerics_id(const struct kernels *k, char *buf, size_t n) {
    const struct cpu *c = cpu_of(k);
    const dnnl_version_t *v = dnnl_version();
    snprintf(buf, n, "cpu %s, oneDNN %d.%d.%d %s, %s %s, glibc %s, trainyard %s", ISA_NAME[c->isa], v->major, v->minor,
             v->patch, c->isa == KERNELS_ISA_PLAIN ? "unused" : products_isa_name(),
#ifdef __clang__
             "clang", __clang_version__,
#else
             "gcc", __VERSION__,
#endif
             gnu_get_libc_version(), TRAINYARD_VERSION);
}
