/* A plugin of another build: one of its sources has changed since. */
#include "kernels/plugin.h"

extern const struct kernels_plugin kernels_plugin;
const struct kernels_plugin kernels_plugin = { .sources = "0123456789ab" };
