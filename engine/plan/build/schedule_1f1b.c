#include "engine/plan/schedule_kind.h"

static status_t order(const struct schedule_shape *s, struct phase_list *ret, struct err *e) {
    int ahead = s->stages - 1 - s->stage, forward = 0;
    for (; forward < ahead && forward < s->micro_batches; forward++)
        TRY(phase_list_add(ret, PHASE_FORWARD, 0, forward, e));
    for (int q = 0; q < s->micro_batches; q++) {
        if (forward < s->micro_batches)
            TRY(phase_list_add(ret, PHASE_FORWARD, 0, forward++, e));
        TRY(phase_list_add(ret, PHASE_BACKWARD, 0, q, e));
    }
    return ST_OK;
}

const struct schedule_kind schedule_1f1b = { .name = "1f1b", .order = order };
