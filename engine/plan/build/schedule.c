#include "engine/plan/build/schedule.h"

#include "base/array.h"

#include <stdlib.h>
#include <string.h>

status_t phase_list_add(struct phase_list *list, enum phase_kind kind, int virtual_stage, int q, struct err *e) {
    TRY(array_grow(&list->items, list->n, e));
    list->items[list->n++] = (struct phase){ .kind = kind, .virtual_stage = virtual_stage, .q = q };
    return ST_OK;
}

void phase_list_done(struct phase_list *list) {
    free(list->items);
    *list = (struct phase_list){ 0 };
}

#define SCHEDULE_ADDRESS(name) &schedule_##name,
const struct schedule_kind *const schedule_kinds[] = { SCHEDULE_KINDS(SCHEDULE_ADDRESS) NULL };

const struct schedule_kind *schedule_kind_find(const char *name) {
    for (int i = 0; schedule_kinds[i]; i++)
        if (strcmp(schedule_kinds[i]->name, name) == 0)
            return schedule_kinds[i];
    return NULL;
}

const struct schedule_kind *schedule_of(const struct schedule_kind *given) { return given ? given : &schedule_1f1b; }

double schedule_bubble(const struct schedule_kind *kind, int stages, int virtual_stages,
                       const struct phase_seconds *seconds) {
    if (kind->bubble)
        return kind->bubble(stages, virtual_stages, seconds);
    return (stages - 1) * (seconds->forward + seconds->backward_input + seconds->backward_weight);
}

/* Groups of P micro-batches go through all virtual stages, so that no stage waits for a group to come round. */
static status_t forward_only(const struct schedule_shape *s, struct phase_list *ret, struct err *e) {
    for (int base = 0; base < s->micro_batches; base += s->stages)
        for (int virtual_stage = 0; virtual_stage < s->virtual_stages; virtual_stage++)
            for (int q = base; q < base + s->stages && q < s->micro_batches; q++)
                TRY(phase_list_add(ret, PHASE_FORWARD, virtual_stage, q, e));
    return ST_OK;
}

status_t schedule_order(const struct plan_layout *l, struct phase_list *ret, struct err *e) {
    struct schedule_shape shape = { .stage = plan_stage(l),
                                    .stages = l->stages,
                                    .virtual_stages = l->virtual_stages,
                                    .micro_batches = plan_own_micro_batches(l) };
    if (l->kind == PLAN_TRAIN)
        return schedule_of(l->schedule)->order(&shape, ret, e);
    return l->kind == PLAN_AVERAGE ? ST_OK : forward_only(&shape, ret, e);
}

int schedule_max_in_flight(const struct phase_list *list, int virtual_stage, enum phase_kind from, enum phase_kind to) {
    int now = 0, max = 0;
    for (int i = 0; i < list->n; i++) {
        const struct phase *p = &list->items[i];
        if (p->virtual_stage != virtual_stage)
            continue;
        now += p->kind == from;
        max = now > max ? now : max;
        now -= p->kind == to;
    }
    return max;
}
