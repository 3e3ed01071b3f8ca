/* The gangs that the broken_*.c files break, and the tools for it.
 *
 * SETTINGS lists layouts that together use every part of the verifier: each ZeRO stage, schedule, recompute mode, way
 * of reduction and some of their combinations. make_gang builds the plans of all ranks of one layout for a GPT of 4
 * blocks. A test breaks a new gang for each pair of a mistake and a layout, so a break need not restore anything.
 *
 * The tools find, insert, remove and exchange entries of queues. They keep the references between entries valid, so
 * that the verifier meets the intended mistake and not an accidental one. */
#include "tests/engine/broken_plans.h"

#include "engine/graph/op.h"
#include "engine/optimizer/optimizer.h"
#include "engine/plan/build/plan_build.h"
#include "engine/plan/plan.h"
#include "engine/plan/verify/verify.h"
#include "tests/engine/gpt_graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* --- layouts ---*/

#define STEPS(...)                                                                                                     \
    { .kind = PLAN_TRAIN, .bucket_bytes = 8192, .workspace_bytes = 100, __VA_ARGS__ }

const struct setting SETTINGS[] = {
    { "one rank", STEPS(.lanes = 1, .micro_batches = 1) },
    { "one rank, lanes", STEPS(.uploads_ahead = true, .lanes = 4, .micro_batches = 8, .ema = true) },
    { "one rank, lanes, micro_batch", STEPS(.lanes = 4, .micro_batches = 8, .reduce = PLAN_REDUCE_MICRO_BATCH) },
    { "data 2", STEPS(.data = 2, .lanes = 4, .micro_batches = 8) },
    { "data 4, micro_batch", STEPS(.data = 4, .lanes = 4, .micro_batches = 8, .reduce = PLAN_REDUCE_MICRO_BATCH) },
    { "zero 1", STEPS(.uploads_ahead = true, .data = 4, .zero = 1, .lanes = 4, .micro_batches = 4) },
    { "zero 1, muon", STEPS(.data = 2, .zero = 1, .lanes = 2, .micro_batches = 2, .optimizer = &optimizer_muon) },
    { "zero 2", STEPS(.data = 2, .zero = 2, .lanes = 2, .micro_batches = 6, .reduce = PLAN_REDUCE_MICRO_BATCH) },
    { "zero 2, lanes", STEPS(.data = 2, .zero = 2, .lanes = 4, .micro_batches = 8, .reduce = PLAN_REDUCE_MICRO_BATCH) },
    { "zero 3", STEPS(.data = 4, .zero = 3, .lanes = 4, .micro_batches = 8, .reduce = PLAN_REDUCE_MICRO_BATCH) },
    { "zero 3, block", STEPS(.data = 2, .zero = 3, .lanes = 2, .micro_batches = 4, .reduce = PLAN_REDUCE_MICRO_BATCH,
                             .recompute = RECOMPUTE_BLOCK) },
    { "block", STEPS(.lanes = 1, .micro_batches = 2, .recompute = RECOMPUTE_BLOCK) },
    { "selective", STEPS(.uploads_ahead = true, .lanes = 2, .micro_batches = 2, .recompute = RECOMPUTE_SELECTIVE) },
    { "gpipe", STEPS(.stages = 2, .schedule = &schedule_gpipe, .lanes = 2, .micro_batches = 4) },
    { "1f1b", STEPS(.uploads_ahead = true, .stages = 4, .schedule = &schedule_1f1b, .lanes = 1, .micro_batches = 8) },
    { "1f1b, block",
      STEPS(.stages = 2, .schedule = &schedule_1f1b, .lanes = 4, .micro_batches = 4, .recompute = RECOMPUTE_BLOCK) },
    { "interleaved",
      STEPS(.stages = 2, .virtual_stages = 2, .schedule = &schedule_interleaved, .lanes = 2, .micro_batches = 4) },
    { "zero bubble", STEPS(.stages = 2, .schedule = &schedule_zero_bubble, .lanes = 2, .micro_batches = 6) },
    { "zero bubble, selective", STEPS(.stages = 4, .schedule = &schedule_zero_bubble, .lanes = 1, .micro_batches = 6,
                                      .recompute = RECOMPUTE_SELECTIVE) },
    { "data x stages", STEPS(.data = 2, .stages = 2, .lanes = 4, .micro_batches = 8) },
    { "data x stages, zero 1", STEPS(.data = 2, .stages = 2, .zero = 1, .lanes = 2, .micro_batches = 6) },
    { "data x interleaved, zero 1, micro_batch",
      STEPS(.data = 2, .stages = 2, .virtual_stages = 2, .schedule = &schedule_interleaved, .zero = 1, .lanes = 4,
            .micro_batches = 8, .reduce = PLAN_REDUCE_MICRO_BATCH) },
    { "data x zero bubble",
      STEPS(.data = 2, .stages = 2, .schedule = &schedule_zero_bubble, .lanes = 2, .micro_batches = 8) },
};
const int N_SETTINGS = sizeof SETTINGS / sizeof *SETTINGS;

static const struct gpt_shape SHAPE_OF_TEST = {
    .layers = 4, .heads = 2, .width = 32, .context = 8, .vocabulary = 65, .dropout = 0.1
};

static int or_one(int n) { return n ? n : 1; }

struct gang make_gang_of(const struct setting *s, struct graph *graph) {
    struct gang g = { .name = s->name, .graph = graph, .n = or_one(s->layout.data) * or_one(s->layout.stages) };
    struct err e = { "" };
    for (int r = 0; r < g.n; r++) {
        struct plan_layout layout = s->layout;
        layout.rank = r;
        if (layout.kind != PLAN_EVALUATE && !layout.optimizer)
            layout.optimizer = &optimizer_adamw;
        if (plan_build(g.graph, &layout, &g.plans[r], &e) != ST_OK)
            fail_msg("%s, rank %d: %s", s->name, r, e.msg);
    }
    return g;
}

struct gang make_gang(const struct setting *s) {
    struct gpt_shape shape = SHAPE_OF_TEST;
    struct graph *graph = NULL;
    struct err e;
    if (s->layout.schedule == &schedule_zero_bubble) /* only this schedule lets gradients share bytes that must stay */
        shape.dropout = 0;
    assert_int_equal(gpt_graph(&shape, 3, &graph, &e), ST_OK);
    return make_gang_of(s, graph);
}

void free_gang(struct gang *g) {
    for (int r = 0; r < g->n; r++)
        plan_free(g->plans[r]);
    graph_free(g->graph);
}

status_t verify_gang(const struct gang *g, struct err *e) {
    return plan_verify((const struct plan *const *)g->plans, g->n, e);
}

/* --- tools to break a plan with ---*/

/* The n-th instruction of a kind in a queue, or NULL. */
struct instruction *find(struct plan *p, enum plan_queue queue, enum instruction_kind kind, int n) {
    struct instruction_list *list = &p->queue[queue];
    for (int i = 0; i < list->n; i++)
        if (list->items[i].kind == kind && n-- == 0)
            return &list->items[i];
    return NULL;
}

struct instruction *find_compute(struct plan *p, enum instruction_kind kind, int n) {
    return find(p, QUEUE_COMPUTE, kind, n);
}

/* The n-th instruction whose range is not empty. */
struct instruction *find_range(struct plan *p, enum instruction_kind kind, int n) {
    for (int i = 0;; i++) {
        struct instruction *x = find_compute(p, kind, i);
        if (!x || (x->begin < x->end && n-- == 0))
            return x;
    }
}

struct instruction *find_what(struct plan *p, enum plan_queue queue, enum instruction_kind kind,
                              enum plan_payload what) {
    for (int i = 0;; i++) {
        struct instruction *x = find(p, queue, kind, i);
        if (!x || x->payload == what)
            return x;
    }
}

static void move_after(struct plan *p, int from, int by) {
    for (enum plan_queue q = QUEUE_DATA; q < QUEUES; q++)
        for (int i = 0; i < p->queue[q].n; i++)
            if (p->queue[q].items[i].after > from)
                p->queue[q].items[i].after += by;
}

/* An `after` that names a later instruction still names it. */
void drop(struct plan *p, struct instruction *i) {
    struct instruction_list *list = &p->queue[QUEUE_COMPUTE];
    int at = (int)(i - list->items);
    memmove(i, i + 1, (size_t)(list->n - at - 1) * sizeof *i);
    list->n--;
    move_after(p, at, -1);
}

/* Removes an entry from another queue. WAITs for it are removed too, or wait for the data queue's entry before it. */
void drop_entry(struct plan *p, enum plan_queue queue, int entry) {
    struct instruction_list *list = &p->queue[queue], *compute = &p->queue[QUEUE_COMPUTE];
    memmove(&list->items[entry], &list->items[entry + 1], (size_t)(list->n - entry - 1) * sizeof *list->items);
    list->n--;
    for (int i = 0; i < compute->n; i++) {
        struct instruction *w = &compute->items[i];
        if (w->kind != INSTRUCTION_WAIT || w->queue != queue || w->entry < entry)
            continue;
        if (w->entry == entry && (queue != QUEUE_DATA || entry == 0))
            drop(p, &compute->items[i--]);
        else
            w->entry--;
    }
}

struct instruction *insert(struct plan *p, int at, struct instruction what) {
    struct instruction_list *list = &p->queue[QUEUE_COMPUTE];
    list->items = realloc(list->items, ((size_t)list->n + 1) * sizeof what);
    assert_non_null(list->items);
    memmove(&list->items[at + 1], &list->items[at], (size_t)(list->n - at) * sizeof what);
    list->items[at] = what;
    list->n++;
    move_after(p, at, 1);
    return &list->items[at];
}

void swap(struct instruction *a, struct instruction *b) {
    struct instruction t = *a;
    *a = *b;
    *b = t;
}
