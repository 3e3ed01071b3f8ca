#include "engine/run/wait_clock.h"

#include "base/alloc.h"
#include "engine/run/step_control.h"

#include <assert.h>
#include <stdlib.h>

struct wait_clock {
    const struct kernels *kernels;
    int max_waits;
    struct {
        void **timers; /* [2 max_waits]: before and after each */
        int waits;
    } steps[CONTROL_STEPS];
    int64_t begun, taken;
};

static int waits_of(const struct plan *plan) {
    const struct instruction_list *compute = &plan->queue[QUEUE_COMPUTE];
    int n = 0;
    for (int i = 0; i < compute->n; i++)
        n += compute->items[i].kind == INSTRUCTION_WAIT;
    return n;
}

status_t wait_clock_open(const struct kernels *k, const struct plan *const *plans, int n, struct wait_clock **ret,
                         struct err *e) {
    CLEANUP(wait_clock_closep) struct wait_clock *w = alloc_zeroed(1, sizeof *w);
    w->kernels = k;
    for (int p = 0; p < n; p++)
        w->max_waits = waits_of(plans[p]) > w->max_waits ? waits_of(plans[p]) : w->max_waits;
    for (int s = 0; s < CONTROL_STEPS; s++) {
        w->steps[s].timers = alloc_zeroed(2 * (size_t)w->max_waits + 1, sizeof(void *));
        for (int i = 0; i < 2 * w->max_waits; i++)
            TRY(k->timer_new(k, &w->steps[s].timers[i], e));
    }
    *ret = take_ptr(&w);
    return ST_OK;
}

struct wait_clock *wait_clock_close(struct wait_clock *w) {
    if (!w)
        return NULL;
    for (int s = 0; s < CONTROL_STEPS; s++) {
        for (int i = 0; w->steps[s].timers && i < 2 * w->max_waits; i++)
            w->kernels->timer_free(w->kernels, w->steps[s].timers[i]);
        free(w->steps[s].timers);
    }
    free(w);
    return NULL;
}

void wait_clock_begin(struct wait_clock *w) {
    assert(w->begun - w->taken < CONTROL_STEPS);
    w->steps[w->begun++ % CONTROL_STEPS].waits = 0;
}

status_t wait_clock_enter(struct wait_clock *w, struct err *e) {
    const int64_t s = (w->begun - 1) % CONTROL_STEPS;
    assert(w->steps[s].waits < w->max_waits);
    return w->kernels->timer_record(w->kernels, w->steps[s].timers[2 * w->steps[s].waits], e);
}

status_t wait_clock_leave(struct wait_clock *w, struct err *e) {
    const int64_t s = (w->begun - 1) % CONTROL_STEPS;
    return w->kernels->timer_record(w->kernels, w->steps[s].timers[2 * w->steps[s].waits++ + 1], e);
}

status_t wait_clock_take(struct wait_clock *w, int64_t *ret_ns, struct err *e) {
    assert(w->taken < w->begun);
    const int64_t s = w->taken++ % CONTROL_STEPS;
    *ret_ns = 0;
    for (int i = 0; i < w->steps[s].waits; i++) {
        void **timers = &w->steps[s].timers[2 * i];
        int64_t ns = 0;
        TRY(w->kernels->timer_between(w->kernels, timers[0], timers[1], &ns, e));
        *ret_ns += ns;
    }
    return ST_OK;
}
