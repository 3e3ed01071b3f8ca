/* A plugin of another build: struct kernels has changed since. */
#include "kernels/plugin.h"

extern const struct kernels_plugin kernels_plugin;
const struct kernels_plugin kernels_plugin = { .abi = KERNELS_PLUGIN_ABI + 1, .table_bytes = sizeof(struct kernels) };
