#include "executor/worker/plan_device.h"

#include <string.h>

static const char CUDA_ASSUMED[] = "h200";

status_t plan_device_find(const char *name, const struct engine_config *c, struct plan_profile *ret, struct err *e) {
    if (!name)
        name = strcmp(c->device, "cuda") == 0 ? CUDA_ASSUMED : "cpu";
    if (strcmp(name, "cpu") != 0)
        return plan_profile_find(name, ret, e);
    TRY(plan_profile_measure(c->threads, ret, e));
    ret->memory_bytes /= (size_t)engine_ranks(&c->layout); /* they share it */
    return ST_OK;
}

size_t plan_device_memory_bytes(const struct engine_config *c, const struct plan_profile *p) {
    if (c->memory_bytes > 0)
        return (size_t)c->memory_bytes;
    return p->memory_bytes > p->allowance_bytes ? p->memory_bytes - p->allowance_bytes : 0;
}
