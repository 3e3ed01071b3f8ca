#include "engine/plan/plan_digest.h"

#include <string.h>

void plan_instruction_words(const struct plan *plan, const struct instruction *i, int64_t ret[PLAN_INSTRUCTION_WORDS]) {
    const struct plan_layout *l = &plan->layout;
    const int d = plan_data_rank(l);
    const int moved = i->micro_batch - d * (l->lanes / l->data);
    const int64_t words[PLAN_INSTRUCTION_WORDS] = { (int64_t)i->kind,
                                                    (int64_t)i->queue,
                                                    (int64_t)i->group,
                                                    (int64_t)i->payload,
                                                    i->op,
                                                    i->micro_batch < 0      ? -1
                                                    : l->kind == PLAN_TRAIN ? moved
                                                                            : 0,
                                                    i->in_flight,
                                                    i->virtual_stage,
                                                    i->buffer,
                                                    i->source,
                                                    i->entry,
                                                    i->peer < 0 ? -1 : i->peer - d,
                                                    i->after,
                                                    i->first };
    memcpy(ret, words, sizeof words);
}

static void add_words(struct sha256 *s, const int64_t *words, size_t n) { sha256_update(s, words, n * sizeof *words); }

static void add_ints(struct sha256 *s, const int *x, int n) {
    if (x)
        sha256_update(s, x, (size_t)n * sizeof *x);
}

static void add_layout(struct sha256 *s, const struct plan *p) {
    const struct plan_layout *l = &p->layout;
    const int64_t words[] = {
        (int64_t)l->kind,      plan_stage(l),   l->data,          l->stages,          l->virtual_stages, l->zero,
        (int64_t)l->recompute, l->lanes,        l->micro_batches, (int64_t)l->reduce, l->fast,           l->ema,
        p->gradient_elements,  p->lane_buffers, p->accumulator,   p->result,          p->staged,         p->norm_chunks,
        p->n_own_uses,         p->n_buckets
    };
    add_words(s, words, sizeof words / sizeof *words);
    sha256_update(s, l->schedule->name, strlen(l->schedule->name) + 1);
}

static void add_places(struct sha256 *s, const struct plan *p) {
    const struct graph *g = p->graph;
    add_ints(s, p->block_stage, g->n_blocks);
    add_ints(s, p->use_stage, g->n_uses);
    add_ints(s, p->use_order, p->n_own_uses);
    add_ints(s, p->parameter_stage, g->n_parameters);
    add_words(s, p->use_begin, (size_t)g->n_uses);
    add_words(s, p->use_end, (size_t)g->n_uses);
    add_words(s, p->parameter_norm, (size_t)g->n_parameters);
    for (int b = 0; b < p->n_buckets; b++) {
        const struct plan_bucket *x = &p->buckets[b];
        const int64_t words[] = { x->begin, x->end,   x->parameter,    x->virtual_stage,
                                  x->block, x->ready, x->ready_weight, x->rotation };
        add_words(s, words, sizeof words / sizeof *words);
        add_ints(s, x->part_begin, p->layout.data + 1);
    }
}

static void add_queues(struct sha256 *s, const struct plan *p) {
    for (int q = 0; q < QUEUES; q++) {
        const int64_t n = p->queue[q].n;
        add_words(s, &n, 1);
        for (int i = 0; i < p->queue[q].n; i++) {
            int64_t words[PLAN_INSTRUCTION_WORDS];
            plan_instruction_words(p, &p->queue[q].items[i], words);
            add_words(s, words, PLAN_INSTRUCTION_WORDS);
        }
    }
}

void plan_digest(const struct plan *const *plans, int n, uint8_t ret[SHA256_BYTES]) {
    struct sha256 s;
    sha256_begin(&s);
    for (int i = 0; i < n; i++) {
        add_layout(&s, plans[i]);
        add_places(&s, plans[i]);
        add_queues(&s, plans[i]);
    }
    sha256_final(&s, ret);
}
