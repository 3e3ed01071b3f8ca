#include "service/scheduler/sweep_rung.h"

#include <math.h>
#include <stdio.h>

int sweep_rung_steps(int64_t min_steps, int64_t max_steps, int eta, int64_t ret[SWEEP_MAX_RUNGS]) {
    int n = 0;
    for (int64_t step = min_steps; step < max_steps && n < SWEEP_MAX_RUNGS; step *= eta) {
        ret[n++] = step;
        if (step > INT64_MAX / eta)
            break;
    }
    return n;
}

double sweep_score(double metric, bool maximize) {
    if (isnan(metric))
        return INFINITY;
    return maximize ? -metric : metric;
}

static const char *share_of(int eta, char ret[32]) {
    static const char *const names[] = { NULL, NULL, "half", "third", "quarter", "fifth" };
    if (eta < (int)(sizeof names / sizeof *names))
        return names[eta];
    snprintf(ret, 32, "1/%d", eta);
    return ret;
}

struct sweep_rung_decision sweep_rung_judge(const double *scores, size_t n, double score, int64_t step, int eta) {
    struct sweep_rung_decision v = { .rank = 1, .n = (int)n + 1 };
    char share[32];
    for (size_t i = 0; i < n; i++)
        v.rank += scores[i] <= score;
    const int keep = v.n / eta > 1 ? v.n / eta : 1;
    v.continues = v.rank <= keep;
    if (!v.continues)
        snprintf(v.reason, sizeof v.reason, "stopped at step %lld: rank %d of %d at this rung, the best %s continues",
                 (long long)step, v.rank, v.n, share_of(eta, share));
    return v;
}
