#include "base/alloc.h"
#include "service/controller/state.h"
#include "service/store/queue.h"

#include <stdlib.h>

/* The interval of writes of what the queues used. After the death of a leader, this much use is not known. */
#define AVERAGES_WRITE_MS 60000

struct scheduler_queue scheduler_queue_of(const struct store_queue_row *row) {
    const struct store_queue_settings *x = &row->settings;
    struct scheduler_queue q = {
        .name = row->name, .cohort = x->cohort, .weight = x->weight, .max_priority = x->max_priority
    };
    static const int slots[SCHEDULER_SLOT_KINDS] = {
        [SCHEDULER_SLOT_CPU] = STORE_SLOT_CPU, [SCHEDULER_SLOT_CUDA] = STORE_SLOT_CUDA
    };
    for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++) {
        q.quota[k] = x->quota[slots[k]];
        q.borrow[k] = x->borrow[slots[k]];
        q.lend[k] = x->lend[slots[k]];
        q.user_slots[k] = x->user[slots[k]];
    }
    return q;
}

status_t queues_load(struct controller *c, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_queue_row *rows;
    size_t n;
    TRY(store_queue_all(c->store, m, &rows, &n, e));
    for (size_t i = 0; i < n; i++) {
        const struct scheduler_queue queue = scheduler_queue_of(&rows[i]);
        const double average[SCHEDULER_SLOT_KINDS] = { [SCHEDULER_SLOT_CPU] = rows[i].average[STORE_SLOT_CPU],
                                                       [SCHEDULER_SLOT_CUDA] = rows[i].average[STORE_SLOT_CUDA] };
        scheduler_load_queue(c->scheduler, &queue, average, rows[i].average_age_ms, clock_mono_ms());
    }
    return ST_OK;
}

struct averages {
    const char *names[STORE_MAX_QUEUES]; /* of the scheduler */
    double of[SCHEDULER_SLOT_KINDS][STORE_MAX_QUEUES];
    size_t n;
};

static void take_average(void *ctx, const struct scheduler_queue_view *v) {
    struct averages *a = ctx;
    if (!v->has_row || a->n == STORE_MAX_QUEUES)
        return;
    a->names[a->n] = v->name;
    for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++)
        a->of[k][a->n] = v->average[k];
    a->n++;
}

void queues_write_averages(struct controller *c) {
    const int64_t now_ms = clock_mono_ms();
    if (now_ms < c->next_averages_ms)
        return;
    c->next_averages_ms = now_ms + AVERAGES_WRITE_MS;
    CLEANUP(freep) struct averages *a = alloc_zeroed(1, sizeof *a);
    scheduler_each_queue(c->scheduler, now_ms, take_average, a);
    if (a->n > 0)
        status_ignore(store_queue_averages(c->store, c->own_epoch, a->names, a->of[SCHEDULER_SLOT_CPU],
                                           a->of[SCHEDULER_SLOT_CUDA], a->n, NULL));
}
