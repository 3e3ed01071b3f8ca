/* Ranks that hang are killed. */
#include "base/clock.h"
#include "base/limits.h"
#include "executor/agent/attempt.h"
#include "executor/agent/child.h"

#include <stdio.h>

enum {
    CHECK_MS = 1000,     /* how often progress is looked at */
    CHECK_LATE_MS = 500, /* this process itself was stopped: nobody else may be blamed for the time */
};

static void rank_check(struct rank *r, int64_t now) {
    int silent_ms = r->attempt->owner->agent->options->hang_ms, still_ms = silent_ms + HANG_WAITING_MS;
    char why[120];
    if (child_waiting(r->child)) {
        rank_moved(r);
        return;
    }
    if (now - r->seen_ms >= silent_ms)
        snprintf(why, sizeof why, "gave no sign of life for %d s and was killed", silent_ms / 1000);
    else if (now - r->moved_ms >= still_ms)
        snprintf(why, sizeof why,
                 "made no progress for %d s and was killed; --hang-timeout of its executor allows more",
                 still_ms / 1000);
    else
        return;
    child_end(r->child, 0, 0, why);
}

static void check_fire(void *ctx) {
    struct attempts *a = ctx;
    int64_t now = clock_mono_ms(), late = now - a->checked_ms - CHECK_MS;
    a->checked_ms = now;
    reactor_timer_set(a->agent->loop, &a->check, CHECK_MS);
    for (struct attempt *at = a->first; at; at = at->next)
        for (size_t i = 0; i < at->n_ranks; i++) {
            struct rank *r = &at->ranks[i];
            if (!r->child || r->ended_us)
                continue;
            if (late > CHECK_LATE_MS) {
                r->seen_ms += late;
                r->moved_ms += late;
            }
            rank_check(r, now);
        }
}

void attempts_watch(struct attempts *a) {
    a->check = (struct reactor_timer){ .fire = check_fire, .ctx = a };
    a->checked_ms = clock_mono_ms();
    reactor_timer_set(a->agent->loop, &a->check, CHECK_MS);
}
