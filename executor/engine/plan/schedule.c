#include "executor/engine/plan/schedule.h"

#include "base/array.h"

#include <stdlib.h>

status_t phase_list_add(struct phase_list *list, enum phase_kind kind, int chunk, int q, struct err *e) {
    TRY(array_grow(&list->items, list->n, e));
    list->items[list->n++] = (struct phase){ .kind = kind, .chunk = chunk, .q = q };
    return ST_OK;
}

void phase_list_done(struct phase_list *list) {
    free(list->items);
    *list = (struct phase_list){ 0 };
}

const struct schedule_kind *schedule_of(enum plan_schedule_kind kind) {
    static const struct schedule_kind *const kinds[SCHEDULES] = {
        [SCHEDULE_GPIPE] = &schedule_gpipe,
        [SCHEDULE_1F1B] = &schedule_1f1b,
        [SCHEDULE_INTERLEAVED] = &schedule_interleaved,
        [SCHEDULE_ZERO_BUBBLE] = &schedule_zero_bubble,
    };
    return kinds[kind];
}

/* Groups of P micro-batches go through all chunks, so that no stage waits for a group to come round. */
static status_t forward_only(const struct schedule_shape *s, struct phase_list *ret, struct err *e) {
    for (int base = 0; base < s->micro_batches; base += s->stages)
        for (int chunk = 0; chunk < s->virtual_stages; chunk++)
            for (int q = base; q < base + s->stages && q < s->micro_batches; q++)
                TRY(phase_list_add(ret, PHASE_FORWARD, chunk, q, e));
    return ST_OK;
}

status_t schedule_order(const struct plan_layout *l, struct phase_list *ret, struct err *e) {
    struct schedule_shape shape = { .stage = plan_stage(l),
                                    .stages = l->stages,
                                    .virtual_stages = l->virtual_stages,
                                    .micro_batches = plan_own_micro_batches(l) };
    if (l->kind == PLAN_TRAIN)
        return schedule_of(l->schedule)->order(&shape, ret, e);
    return forward_only(&shape, ret, e);
}

int schedule_flights(const struct phase_list *list, int chunk, enum phase_kind from, enum phase_kind to) {
    int now = 0, most = 0;
    for (int i = 0; i < list->n; i++) {
        const struct phase *p = &list->items[i];
        if (p->chunk != chunk)
            continue;
        now += p->kind == from;
        most = now > most ? now : most;
        now -= p->kind == to;
    }
    return most;
}
