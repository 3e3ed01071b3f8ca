/* Which trials of a sweep with `search.asha` continue: asynchronous successive halving.
 *
 * Source: L. Li, K. Jamieson, A. Rostamizadeh, E. Gonina, J. Ben-Tzur, M. Hardt, B. Recht, A. Talwalkar: "A System for
 * Massively Parallel Hyperparameter Tuning", MLSys 2020. There a trial pauses at each rung, and continues when it is
 * among the best 1/eta of the results at that rung. Here a trial runs through a rung at once, or is stopped for good:
 * no trial waits for others, and none needs its checkpoint again.
 *
 * The rule:
 *   - The rungs of a sweep are the steps min_steps, min_steps eta, min_steps eta^2, ... below max_steps.
 *   - The result of a trial at a rung is the first point of the metric at that step or a later one. A value that is not
 *     a number is worse than every number.
 *   - Results are judged in the order in which they are seen; several at once in the order of the trials. With its
 *     result, let a rung have n results, and let r of them be as good or better (the result itself is one of them).
 *     The trial continues if r <= max(1, floor(n / eta)); otherwise it is stopped.
 *
 * So the first result at a rung always continues, and the best result so far does too. Later results never change what
 * was decided. Pure and thread-safe. */
#ifndef SERVICE_SCHEDULER_SWEEP_RUNG_H
#define SERVICE_SCHEDULER_SWEEP_RUNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SWEEP_MAX_RUNGS = 64 };

/* The steps of the rungs, ascending, and their number. min_steps >= 1, eta >= 2. */
int sweep_rung_steps(int64_t min_steps, int64_t max_steps, int eta, int64_t ret[SWEEP_MAX_RUNGS]);

/* The score of a metric: lower is better, and never NaN. */
double sweep_score(double metric, bool maximize);

struct sweep_rung_decision {
    bool continues;
    int rank, n;      /* r and n of the rule */
    char reason[128]; /* of a trial that does not continue: "stopped at step 200: rank 5 of 9 at this rung, ..." */
};
/* scores: [n] the results at the rung so far, in any order, without the one that is judged; step: of its point. */
struct sweep_rung_decision sweep_rung_judge(const double *scores, size_t n, double score, int64_t step, int eta);

#endif
