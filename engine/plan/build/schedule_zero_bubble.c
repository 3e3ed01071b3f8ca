#include "engine/plan/schedule_kind.h"

/* ZB-H1: stage s is s weight passes late, which is what its backward passes need to follow each other without 1F1B's
 * gaps; the rest of them fill the end. At most P micro-batches are between forward and weight pass on any stage. */
static status_t order(const struct schedule_shape *s, struct phase_list *ret, struct err *e) {
    int forward = 0, weight = 0;
    for (; forward < s->stages - s->stage && forward < s->micro_batches; forward++)
        TRY(phase_list_add(ret, PHASE_FORWARD, 0, forward, e));
    for (int q = 0; q < s->micro_batches; q++) {
        TRY(phase_list_add(ret, PHASE_BACKWARD, 0, q, e));
        if (q + 1 - weight > s->stage)
            TRY(phase_list_add(ret, PHASE_WEIGHT, 0, weight++, e));
        if (forward < s->micro_batches)
            TRY(phase_list_add(ret, PHASE_FORWARD, 0, forward++, e));
    }
    while (weight < s->micro_batches)
        TRY(phase_list_add(ret, PHASE_WEIGHT, 0, weight++, e));
    return ST_OK;
}

static double bubble(int stages, int virtual_stages, const struct phase_seconds *s) {
    (void)virtual_stages;
    const double left = s->forward + s->backward_input - s->backward_weight;
    return (stages - 1) * (left > 0 ? left : 0);
}

const struct schedule_kind schedule_zero_bubble = {
    .name = "zero_bubble", .splits_weight = true, .stages_keep_same = true, .order = order, .bubble = bubble
};
