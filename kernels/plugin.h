/* A device whose code comes as a library of its own, loaded when it is asked for: so that one build of the programs
 * runs on hosts with and without that device. libtrainyard_cuda.so is one; kernels/cuda builds it.
 *
 * The library exports one struct kernels_plugin by the name KERNELS_PLUGIN_NAME. It is looked for in ../lib beside the
 * program, then where the loader looks; once loaded it stays until the process ends. */
#ifndef KERNELS_PLUGIN_H
#define KERNELS_PLUGIN_H

#include "kernels/kernels.h"
#include "kernels/trace.h"

#define KERNELS_PLUGIN_NAME "kernels_plugin"

struct kernels_plugin {
    /* KERNELS_SOURCES. A library of other sources is refused: its tables may differ, and the workspace
     * that its ops need (kernels_shape_only). */
    char sources[16];
    MUST_CHECK status_t (*open)(const struct kernels_config *config, struct kernels **ret, struct err *e);
    struct kernels *(*close)(struct kernels *k);
    void (*numerics_id)(const struct kernels *k, char *buf, size_t n);
    const struct kernels_trace *trace;
    /* The error that open would return, as far as it can be known without a device. FAILED_PRECONDITION: something that
     * every job needs is missing. ret_without: what jobs would lack, each with its consequence; "" if nothing. */
    MUST_CHECK status_t (*check)(char *ret_without, size_t n, struct err *e);
};

/* CUDA's. FAILED_PRECONDITION, and a sentence that names the library, when it is missing, cannot be loaded or is of
 * another build. Any thread. */
MUST_CHECK status_t kernels_plugin_cuda(const struct kernels_plugin **ret, struct err *e);
/* What else the same library exports, by its name. FAILED_PRECONDITION when it was built without that. */
MUST_CHECK status_t kernels_plugin_cuda_symbol(const char *name, const void **ret, struct err *e);

#endif
