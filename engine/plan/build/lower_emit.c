/* Appends instructions to queues. */
#include "engine/plan/build/lower.h"

struct instruction plan_instruction(enum instruction_kind kind) {
    return (struct instruction){
        .kind = kind, .op = -1, .micro_batch = -1, .in_flight = -1, .virtual_stage = -1, .entry = -1, .peer = -1
    };
}

status_t plan_emit(struct instruction_list *list, struct instruction i, struct err *e) {
    TRY(array_grow(&list->items, list->n, e));
    list->items[list->n++] = i;
    return ST_OK;
}

status_t lower_wait(struct lowering *l, enum plan_queue queue, int entry, struct err *e) {
    if (queue == QUEUE_DATA) {
        if (entry < l->data_waited)
            return ST_OK;
        l->data_waited = entry + 1;
    }
    struct instruction i = plan_instruction(INSTRUCTION_WAIT);
    i.queue = queue;
    i.entry = entry;
    return plan_emit(&l->p->queue[QUEUE_COMPUTE], i, e);
}

status_t lower_post(struct lowering *l, enum plan_queue queue, struct instruction i, struct err *e) {
    i.after = l->p->queue[QUEUE_COMPUTE].n;
    return plan_emit(&l->p->queue[queue], i, e);
}

status_t lower_gather(struct lowering *l, int bucket, struct err *e) {
    struct instruction i = plan_instruction(INSTRUCTION_GATHER);
    i.entry = bucket;
    i.begin = l->p->buckets[bucket].begin;
    i.end = l->p->buckets[bucket].end;
    i.group = GROUP_DATA;
    return lower_post(l, QUEUE_DATA, i, e);
}

void lower_alive(struct lowering *l, int object) {
    l->b->alive[(size_t)object * (size_t)l->b->words + (size_t)(l->at / 64)] |= UINT64_C(1) << (l->at % 64);
}
