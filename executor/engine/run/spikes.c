#include "executor/engine/run/spikes.h"

#include <math.h>
#include <string.h>

bool spikes_is_one(const struct spikes *s, double norm) {
    if (s->n < (s->window < SPIKES_LEAST ? s->window : SPIKES_LEAST))
        return false;
    double mean = 0, square = 0;
    for (int i = 0; i < s->n; i++)
        mean += s->norms[i];
    mean /= s->n;
    for (int i = 0; i < s->n; i++)
        square += (s->norms[i] - mean) * (s->norms[i] - mean);
    return norm > mean + s->z_score * sqrt(square / s->n);
}

void spikes_add(struct spikes *s, double norm) {
    if (s->n == s->window)
        memmove(s->norms, s->norms + 1, (size_t)--s->n * sizeof *s->norms);
    s->norms[s->n++] = norm;
}
