#include "engine/run/throttle.h"

#include "kernels/kernels.h"

status_t throttle_open(struct throttle *t, const struct kernels *kernels, struct err *e) {
    *t = (struct throttle){ .kernels = kernels };
    for (int i = 0; kernels->deferred && i < THROTTLE_AHEAD; i++)
        TRY(kernels->event_new(kernels, &t->events[i], e));
    return ST_OK;
}

void throttle_close(struct throttle *t) {
    for (int i = 0; i < THROTTLE_AHEAD; i++)
        if (t->events[i])
            t->kernels->event_free(t->kernels, t->events[i]);
}

static status_t wait_until_passed(struct throttle *t, int64_t marks, throttle_progress_fn *progress, void *ctx,
                                  struct err *e) {
    for (; t->passed < marks; t->passed++) {
        TRY(t->kernels->event_wait(t->kernels, t->events[t->passed % THROTTLE_AHEAD], e));
        if (progress)
            progress(ctx);
    }
    return ST_OK;
}

status_t throttle_mark(struct throttle *t, throttle_progress_fn *progress, void *ctx, struct err *e) {
    TRY(wait_until_passed(t, t->marked + 1 - THROTTLE_AHEAD, progress, ctx, e));
    return t->kernels->event_record(t->kernels, t->events[t->marked++ % THROTTLE_AHEAD], e);
}

status_t throttle_drain(struct throttle *t, throttle_progress_fn *progress, void *ctx, struct err *e) {
    return wait_until_passed(t, t->marked, progress, ctx, e);
}
