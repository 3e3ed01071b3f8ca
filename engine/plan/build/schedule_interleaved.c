#include "engine/plan/schedule_kind.h"

/* The k-th forward (backward) phase of every stage: groups of P micro-batches go through the virtual stages, upwards
 * (downwards). */
static status_t add(const struct schedule_shape *s, struct phase_list *ret, enum phase_kind kind, int k,
                    struct err *e) {
    int round = s->stages * s->virtual_stages, virtual_stage = k % round / s->stages;
    if (kind == PHASE_BACKWARD)
        virtual_stage = s->virtual_stages - 1 - virtual_stage;
    return phase_list_add(ret, kind, virtual_stage, k / round * s->stages + k % s->stages, e);
}

static status_t order(const struct schedule_shape *s, struct phase_list *ret, struct err *e) {
    if (s->micro_batches % s->stages)
        return err_set(
            e, ST_INVALID_ARGUMENT,
            "parallel.pipeline_schedule: interleaved needs a rank's %d micro-batches to be a multiple of its %d stages",
            s->micro_batches, s->stages);
    int all = s->micro_batches * s->virtual_stages, forward = 0;
    int ahead = 2 * (s->stages - 1 - s->stage) + (s->virtual_stages - 1) * s->stages;
    for (; forward < ahead && forward < all; forward++)
        TRY(add(s, ret, PHASE_FORWARD, forward, e));
    for (int backward = 0; backward < all; backward++) {
        if (forward < all)
            TRY(add(s, ret, PHASE_FORWARD, forward++, e));
        TRY(add(s, ret, PHASE_BACKWARD, backward, e));
    }
    return ST_OK;
}

static double bubble(int stages, int virtual_stages, const struct phase_seconds *s) {
    return (stages - 1) * (s->forward + s->backward_input + s->backward_weight) / virtual_stages;
}

const struct schedule_kind schedule_interleaved = {
    .name = "interleaved", .interleaves = true, .order = order, .bubble = bubble
};
