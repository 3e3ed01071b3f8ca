#include "engine/run/thread_count.h"

#include "base/limits.h"

/* An op runs three times: forward, backward for its input, backward for its weight. */
enum { PASSES = 3 };

int thread_count_useful(const struct graph *g) {
    const double threads = graph_flops(g) / ((double)PASSES * g->n_ops * THREAD_FLOPS);
    return threads < 1 ? 1 : threads > LIMIT_CORES ? LIMIT_CORES : (int)threads;
}
