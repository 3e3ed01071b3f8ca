#include "kernels/kernels.h"

#include "kernels/cpu/cpu.h"

#include <string.h>

status_t kernels_open(const struct kernels_config *config, struct kernels **ret, struct err *e) {
    if (strcmp(config->device, "cpu") == 0)
        return cpu_open(config, ret, e);
    return err_set(e, ST_INVALID_ARGUMENT, "device '%s' is not known to this build (it has: cpu)", config->device);
}

struct kernels *kernels_close(struct kernels *k) {
    return k ? cpu_close(k) : NULL;
}

void kernels_numerics_id(const struct kernels *k, char *buf, size_t n) { cpu_numerics_id(k, buf, n); }
