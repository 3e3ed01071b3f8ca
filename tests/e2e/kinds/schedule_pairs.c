/* A pipeline schedule that test_new_kinds.py adds to a copy of the tree: two micro-batches forward, then both
 * backward. */
#include "engine/plan/schedule_kind.h"

static status_t order(const struct schedule_shape *s, struct phase_list *ret, struct err *e) {
    for (int begin = 0; begin < s->micro_batches; begin += 2)
        for (int kind = PHASE_FORWARD; kind <= PHASE_BACKWARD; kind++)
            for (int q = begin; q < begin + 2 && q < s->micro_batches; q++)
                TRY(phase_list_add(ret, (enum phase_kind)kind, 0, q, e));
    return ST_OK;
}

const struct schedule_kind schedule_pairs = { .name = "pairs", .stages_keep_same = true, .order = order };
