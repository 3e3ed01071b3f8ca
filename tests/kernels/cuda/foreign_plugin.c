/* A plugin of another build: a source has changed since. */
#include "kernels/plugin.h"

extern const struct kernels_plugin kernels_plugin;
const struct kernels_plugin kernels_plugin = { .sources = "0123456789ab" };
