#include "base/histogram.h"

const double histogram_call_bounds[HISTOGRAM_CALL_BOUNDS] = { 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                                              0.1,     0.25,   0.5,   1,      5,     10,   30 };
const double histogram_wait_bounds[HISTOGRAM_WAIT_BOUNDS] = { 1,    5,    15,    60,    300,   900,
                                                              3600, 7200, 21600, 43200, 86400, 604800 };

void histogram_add(struct histogram *h, int64_t ns) {
    ns = ns < 0 ? 0 : ns;
    int i = 0;
    while (i < h->n_bounds && (double)ns > h->bounds[i] * 1e9)
        i++;
    atomic_fetch_add(&h->counts[i], 1);
    atomic_fetch_add(&h->sum_ns, ns);
}
