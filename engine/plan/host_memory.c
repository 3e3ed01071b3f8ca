#include "engine/plan/host_memory.h"

#include "engine/plan/plan.h"

static const char *const NAME[HOST_FAMILIES] = {
    [HOST_SNAPSHOT] = "snapshot", [HOST_DATA] = "data",   [HOST_BATCHES] = "batches",
    [HOST_KERNELS] = "kernels",   [HOST_PLANS] = "plans", [HOST_COMMUNICATION] = "communication",
    [HOST_PROGRAM] = "program",
};

const char *host_family_name(enum host_family family) { return NAME[family]; }

size_t host_memory_bytes(const struct host_memory *m) {
    size_t sum = 0;
    for (int f = 0; f < HOST_FAMILIES; f++)
        sum += m->bytes[f];
    return sum;
}

size_t host_memory_limited(const struct host_memory_rule *rule, const struct plan *plan) {
    struct host_memory m = { 0 };
    if (rule && rule->limited)
        rule->weigh(rule->ctx, plan, &m);
    return plan_bytes(plan) + host_memory_bytes(&m);
}
