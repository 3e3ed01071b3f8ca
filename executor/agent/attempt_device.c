/* What devices have to do with the ranks that are on them. */
#include "executor/agent/attempt.h"
#include "executor/agent/child.h"

#include <stdio.h>

static struct rank *rank_on(const struct attempts *a, int device) {
    for (const struct attempt *at = a->first; at; at = at->next)
        for (size_t i = 0; i < at->n_ranks; i++)
            if (at->ranks[i].device == device && at->ranks[i].child)
                return &at->ranks[i];
    return NULL;
}

int64_t attempts_device_step(const struct attempts *a, int device) {
    const struct rank *r = rank_on(a, device);
    return r ? child_step(r->child) : -1;
}

void attempts_device_sample(struct attempts *a, int device, const Trainyard__V1__MetricRow *row) {
    struct rank *r = rank_on(a, device);
    if (r)
        child_sample(r->child, row);
}

void attempts_device_lost(struct attempts *a, int device, const char *reason) {
    struct rank *r = rank_on(a, device);
    char why[120];
    snprintf(why, sizeof why, "was killed because its GPU is quarantined: %s", reason);
    if (r && !r->end)
        child_end(r->child, 0, 0, why);
    if (r)
        rank_looked(r);
}

void attempts_device_looked(struct attempts *a, int device) {
    struct rank *r = rank_on(a, device);
    if (r)
        rank_looked(r);
}
