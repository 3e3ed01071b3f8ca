#include "engine/plan/schedule_kind.h"

static status_t order(const struct schedule_shape *s, struct phase_list *ret, struct err *e) {
    for (int q = 0; q < s->micro_batches; q++)
        TRY(phase_list_add(ret, PHASE_FORWARD, 0, q, e));
    for (int q = 0; q < s->micro_batches; q++)
        TRY(phase_list_add(ret, PHASE_BACKWARD, 0, q, e));
    return ST_OK;
}

const struct schedule_kind schedule_gpipe = { .name = "gpipe", .stages_keep_same = true, .order = order };
