/* Which rank has which GPU. */
#include "executor/agent/core/state.h"

status_t device_take(struct agent_core *c, int *ret, struct err *e) {
    const int n = c->config.n_devices;
    int unhealthy = 0;
    for (int i = 0; i < n; i++) {
        struct agent_device *d = &c->devices[i];
        unhealthy += *d->reason != '\0';
        if (d->in_use || *d->reason)
            continue;
        d->in_use = true;
        *ret = i;
        return ST_OK;
    }
    return err_set(e, ST_RESOURCE_EXHAUSTED, "none of this host's %d GPUs is free, %d are quarantined", n, unhealthy);
}

void device_release(struct agent_core *c, struct agent_rank *r) {
    if (r->device != AGENT_NO_DEVICE)
        c->devices[r->device].in_use = false;
    r->device = AGENT_NO_DEVICE;
}

const char *device_reason(const struct agent_core *c, const struct agent_rank *r) {
    return r->device != AGENT_NO_DEVICE && *c->devices[r->device].reason ? c->devices[r->device].reason : NULL;
}
