/* Times all ways under equal conditions of the device's clock and caches:
 *
 *   1. Each way runs once. A way that does not run is excluded.
 *   2. The device works for WARM_MS: an idle device has a low clock, and raises it within some milliseconds.
 *   3. ROUNDS times, each way in turn runs for about SAMPLE_MS. The time of a way is the minimum over the rounds.
 *   4. After the first round, a way that took HOPELESS times the minimum is excluded. */
#include "kernels/cuda/lib/autotune.h"

#include "kernels/cuda/cuda.h"

#include <assert.h>
#include <float.h>

enum { ROUNDS = 5, REPEATS_MAX = 8, WARM_RUNS_MAX = 2000 };
static const float WARM_MS = 30, SAMPLE_MS = 0.5F, HOPELESS = 1.25F;

struct timing {
    cudaStream_t stream;
    cudaEvent_t event[2];
    fastest_run *run;
    void *ctx;
    float ms[FASTEST_WAYS_MAX]; /* of one run, the minimum so far; FLT_MAX: the way does not run */
};

/* Milliseconds of one run, as the mean of `repeats` runs; FLT_MAX if the way does not run. */
static float sample(const struct timing *t, int way, int repeats) {
    float ms = 0;
    bool fine = cudaEventRecord(t->event[0], t->stream) == cudaSuccess;
    for (int i = 0; fine && i < repeats; i++)
        fine = t->run(t->ctx, way);
    fine = fine && cudaEventRecord(t->event[1], t->stream) == cudaSuccess &&
           cudaEventSynchronize(t->event[1]) == cudaSuccess &&
           cudaEventElapsedTime(&ms, t->event[0], t->event[1]) == cudaSuccess;
    return fine ? ms / (float)repeats : FLT_MAX;
}

static int minimum_of(const struct timing *t, int n) {
    int best = 0;
    for (int way = 1; way < n; way++)
        if (t->ms[way] < t->ms[best])
            best = way;
    return best;
}

static void warm(const struct timing *t, int way) {
    float done_ms = 0;
    for (int runs = 0; done_ms < WARM_MS && runs < WARM_RUNS_MAX; runs += REPEATS_MAX) {
        const float ms = sample(t, way, REPEATS_MAX);
        if (ms == FLT_MAX)
            return;
        done_ms += ms * REPEATS_MAX;
    }
}

static int repeats_for(float ms) {
    const float n = SAMPLE_MS / ms;
    return n >= REPEATS_MAX ? REPEATS_MAX : n > 1 ? (int)n : 1;
}

static void time_all(struct timing *t, int n) {
    for (int way = 0; way < n; way++)
        t->ms[way] = sample(t, way, 1);
    const int first = minimum_of(t, n);
    if (t->ms[first] == FLT_MAX)
        return;
    const int repeats = repeats_for(t->ms[first]);
    warm(t, first);
    for (int way = 0; way < n; way++) /* the first runs were at a lower clock: they only show which ways run */
        if (t->ms[way] < FLT_MAX)
            t->ms[way] = sample(t, way, repeats);
    const float limit = t->ms[minimum_of(t, n)] * HOPELESS;
    for (int round = 1; round < ROUNDS; round++)
        for (int way = 0; way < n; way++) {
            const float ms = t->ms[way] <= limit ? sample(t, way, repeats) : FLT_MAX;
            if (ms < t->ms[way])
                t->ms[way] = ms;
        }
}

status_t fastest(cudaStream_t stream, int n, fastest_run *run, void *ctx, int *ret, struct err *e) {
    struct timing t = { .stream = stream, .run = run, .ctx = ctx };
    status_t st = ST_OK;
    assert(n >= 1 && n <= FASTEST_WAYS_MAX);
    for (int i = 0; st == ST_OK && i < 2; i++)
        st = cuda_status(cudaEventCreate(&t.event[i]), "making an event", e);
    if (st == ST_OK) {
        time_all(&t, n);
        *ret = minimum_of(&t, n);
    }
    for (int i = 0; i < 2; i++)
        if (t.event[i])
            (void)cudaEventDestroy(t.event[i]);
    return st;
}
