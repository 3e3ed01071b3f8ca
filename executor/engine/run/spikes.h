/* Which steps are not applied because their gradient norm stands out: the norms of the last applied steps are kept, and
 * one that lies more than z standard deviations above their mean is a spike. Nothing is called a spike until the window
 * holds SPIKES_LEAST norms. All ranks see the same norms, so all decide alike; the window is part of a checkpoint.
 *
 *     struct spikes s = { .z_score = 6, .window = 100 };
 *     if (spikes_is_one(&s, norm)) skip; else spikes_add(&s, norm);      */
#ifndef EXECUTOR_ENGINE_RUN_SPIKES_H
#define EXECUTOR_ENGINE_RUN_SPIKES_H

#include "executor/engine/run/engine.h"

enum { SPIKES_LEAST = 8 };

struct spikes {
    double z_score;
    int window;                        /* 2 .. ENGINE_SPIKE_WINDOW */
    int n;                             /* norms held */
    double norms[ENGINE_SPIKE_WINDOW]; /* [n], oldest first */
};

bool spikes_is_one(const struct spikes *s, double norm);
void spikes_add(struct spikes *s, double norm);

#endif
