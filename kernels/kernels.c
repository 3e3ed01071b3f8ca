#include "kernels/kernels.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cuda/workspace.h"
#include "kernels/plugin.h"

#include <string.h>

/* A table of CUDA's is there only when its plugin is. */
static const struct kernels_plugin *plugin_of(const struct kernels *k) {
    const struct kernels_plugin *plugin = NULL;
    if (strcmp(k->device, "cuda") == 0)
        status_ignore(kernels_plugin_cuda(&plugin, NULL));
    return plugin;
}

status_t kernels_open(const struct kernels_config *config, struct kernels **ret, struct err *e) {
    if (strcmp(config->device, "cpu") == 0)
        return cpu_open(config, ret, e);
    if (strcmp(config->device, "cuda") != 0)
        return err_set(e, ST_INVALID_ARGUMENT, "device '%s' is neither 'cpu' nor 'cuda'", config->device);
    const struct kernels_plugin *plugin = NULL;
    TRY(kernels_plugin_cuda(&plugin, e));
    return plugin->open(config, ret, e);
}

struct kernels *kernels_close(struct kernels *k) {
    if (!k)
        return NULL;
    const struct kernels_plugin *plugin = plugin_of(k);
    return plugin ? plugin->close(k) : cpu_close(k);
}

void kernels_set_threads(struct kernels *k, int threads) {
    if (!plugin_of(k))
        cpu_set_threads(k, threads);
}

const struct kernels *kernels_shape_only(const struct kernels_config *config) {
    return strcmp(config->device, "cuda") == 0 ? cuda_shape_only(config->precision, config->fast) : NULL;
}

void kernels_numerics_id(const struct kernels *k, char *buf, size_t n) {
    const struct kernels_plugin *plugin = plugin_of(k);
    if (plugin)
        plugin->numerics_id(k, buf, n);
    else
        cpu_numerics_id(k, buf, n);
}

const struct kernels_trace *kernels_trace(const struct kernels *k) {
    const struct kernels_plugin *plugin = plugin_of(k);
    return plugin ? plugin->trace : NULL;
}
