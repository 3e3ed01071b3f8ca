/* A plan as text. */
#include "engine/graph/op.h"
#include "engine/optimizer/optimizer.h"
#include "engine/plan/plan.h"

#include <inttypes.h>

static const char *const FAMILY_NAME[FAMILIES] = {
    [FAMILY_PARAMETERS] = "parameters",       [FAMILY_GRADIENTS] = "gradients", [FAMILY_OPTIMIZER] = "optimizer",
    [FAMILY_ACTIVATIONS] = "activations",     [FAMILY_BATCH] = "batch",         [FAMILY_WORKSPACE] = "workspace",
    [FAMILY_COMMUNICATION] = "communication",
};
const char *plan_family_name(enum plan_family family) { return FAMILY_NAME[family]; }

static const char *const QUEUE_NAME[QUEUES] = { [QUEUE_COMPUTE] = "compute",
                                                [QUEUE_DATA] = "data",
                                                [QUEUE_ACTIVATIONS] = "activations",
                                                [QUEUE_GRADIENTS] = "gradients" };

static status_t print_layout(const struct plan *p, struct bytes *ret, struct err *e) {
    const struct plan_layout *l = &p->layout;
    size_t total = 0;
    for (int f = 0; f < FAMILIES; f++)
        total += p->family_bytes[f];
    TRY(bytes_printf(ret, e, "rank %d of %d: data rank %d of %d, stage %d of %d, zero %d, recompute %s", l->rank,
                     l->world_size, plan_data_rank(l), l->data, plan_stage(l), l->stages, l->zero,
                     PLAN_RECOMPUTE_WORDS[l->recompute]));
    if (l->stages > 1)
        TRY(bytes_printf(ret, e, ", %s", l->schedule->name));
    if (l->fast)
        TRY(bytes_printf(ret, e, ", fast"));
    return bytes_printf(ret, e, "\n%d of %d micro-batches, %d gradient buffers%s, %d buckets, %d shards, %.1f MiB\n",
                        plan_own_micro_batches(l), l->micro_batches, p->lane_buffers,
                        p->accumulator >= 0 ? " and an accumulator of own parts" : "", p->n_buckets, p->n_shards,
                        (double)total / (1 << 20));
}

static status_t print_memory(const struct plan *p, struct bytes *ret, struct err *e) {
    for (int f = 0; f < FAMILIES; f++)
        TRY(bytes_printf(ret, e, "  %-14s %12zu bytes\n", FAMILY_NAME[f], p->family_bytes[f]));
    for (int v = 0; p->layout.stages > 1 && v < p->layout.virtual_stages; v++) {
        const struct plan_virtual_stage *c = &p->virtual_stages[v];
        TRY(bytes_printf(ret, e, "  virtual stage %d: %s .. %s, at most %d micro-batches in flight\n", c->number,
                         p->graph->blocks[c->first_block].name, p->graph->blocks[c->first_block + c->n_blocks - 1].name,
                         c->max_in_flight));
    }
    if (!p->layout.optimizer || !p->layout.optimizer->whole_tensor || p->layout.zero == 0)
        return ST_OK;
    /* How even the whole tensors are shared out. */
    TRY(bytes_printf(ret, e, "  elements stepped by data rank:"));
    for (int d = 0; d < p->layout.data; d++) {
        int64_t sum = 0;
        for (int b = 0; b < p->n_buckets; b++) {
            int64_t begin, end;
            plan_own_range(p, b, d, &begin, &end);
            sum += end - begin;
        }
        TRY(bytes_printf(ret, e, " %" PRId64, sum));
    }
    return bytes_printf(ret, e, "\n");
}

static const char *name_of_use(const struct graph *g, int use) { return g->parameters[g->uses[use].parameter].name; }

static const char *name_of_tensor(const struct plan *p, int t) {
    const struct graph *g = p->graph;
    return g->tensors[t < g->n_tensors ? t : g->reverse[p->gradient_copy_of[t - g->n_tensors]].d_out[0]].name;
}

static status_t print_shards(const struct plan *p, const struct instruction *i, const char *name, struct bytes *ret,
                             struct err *e) {
    if (i->begin == i->end)
        return bytes_printf(ret, e, "%s of nothing here\n", name);
    const struct plan_shard *first = &p->shards[i->begin], *last = &p->shards[i->end - 1];
    TRY(bytes_printf(ret, e, "%s %s[%" PRId64 ", %" PRId64 ")", name, name_of_use(p->graph, first->use), first->first,
                     first->first + first->count));
    if (first != last)
        TRY(bytes_printf(ret, e, " .. %s[%" PRId64 ", %" PRId64 ")", name_of_use(p->graph, last->use), last->first,
                         last->first + last->count));
    return bytes_printf(ret, e, " buffer %d\n", i->buffer);
}

static status_t print_transfer(const struct plan *p, const struct instruction *i, const char *name, struct bytes *ret,
                               struct err *e) {
    if (i->payload == PAYLOAD_TENSOR)
        return bytes_printf(ret, e, "%s %s micro-batch %d rank %d after %d\n", name, name_of_tensor(p, i->op),
                            i->micro_batch, i->peer, i->after);
    bool gradient = i->payload == PAYLOAD_GRADIENT;
    return bytes_printf(ret, e, "%s %s of %s[%" PRId64 ", %" PRId64 ") rank %d after %d\n", name,
                        gradient ? "gradient" : "weight",
                        gradient ? name_of_use(p->graph, i->op) : p->graph->parameters[i->op].name, i->begin, i->end,
                        i->peer, i->after);
}

static status_t print_instruction(const struct plan *p, const struct instruction *i, struct bytes *ret, struct err *e) {
    const struct graph *g = p->graph;
    const char *name = instruction_name(i->kind);
    switch (i->kind) {
    case INSTRUCTION_LOAD: return bytes_printf(ret, e, "%s micro-batch %d\n", name, i->micro_batch);
    case INSTRUCTION_FORWARD:
    case INSTRUCTION_RECOMPUTE:
        return bytes_printf(ret, e, "%s %s micro-batch %d\n", name, g->ops[i->op].name, i->micro_batch);
    case INSTRUCTION_COPY_GRADIENT:
        return bytes_printf(ret, e, "%s %s micro-batch %d\n", name, g->ops[g->reverse[i->op].op].name, i->micro_batch);
    case INSTRUCTION_BACKWARD_INPUT:
    case INSTRUCTION_BACKWARD_WEIGHT:
        return bytes_printf(ret, e, "%s %s micro-batch %d buffer %d%s\n", name, g->ops[g->reverse[i->op].op].name,
                            i->micro_batch, i->buffer, i->first ? " first" : "");
    case INSTRUCTION_SEND:
    case INSTRUCTION_RECV: return print_transfer(p, i, name, ret, e);
    case INSTRUCTION_ADD:
        return bytes_printf(ret, e, "%s [%" PRId64 ", %" PRId64 ") buffer %d %s buffer %d\n", name, i->begin, i->end,
                            i->buffer, i->first ? "=" : "+=", i->source);
    case INSTRUCTION_ADD_USE:
    case INSTRUCTION_NORM:
    case INSTRUCTION_STEP:
    case INSTRUCTION_STATISTICS:
    case INSTRUCTION_SWITCH_AVERAGES: return print_shards(p, i, name, ret, e);
    case INSTRUCTION_REDUCE:
        return bytes_printf(ret, e, "%s bucket %d [%" PRId64 ", %" PRId64 ") buffer %d after %d\n", name, i->entry,
                            i->begin, i->end, i->buffer, i->after);
    case INSTRUCTION_GATHER: return bytes_printf(ret, e, "%s bucket %d after %d\n", name, i->entry, i->after);
    case INSTRUCTION_DROP: return bytes_printf(ret, e, "%s bucket %d\n", name, i->entry);
    case INSTRUCTION_EXCHANGE:
    case INSTRUCTION_EXCHANGE_NORMS:
    case INSTRUCTION_EXCHANGE_STATISTICS: return bytes_printf(ret, e, "%s after %d\n", name, i->after);
    case INSTRUCTION_WAIT: return bytes_printf(ret, e, "%s %s entry %d\n", name, QUEUE_NAME[i->queue], i->entry);
    default: return bytes_printf(ret, e, "%s\n", name);
    }
}

status_t plan_print(const struct plan *p, bool whole, struct bytes *ret, struct err *e) {
    TRY(print_layout(p, ret, e));
    TRY(print_memory(p, ret, e));
    int skipped = 0;
    for (int q = 0; q < QUEUES; q++)
        for (int n = 0; n < p->queue[q].n; n++) {
            const struct instruction *i = &p->queue[q].items[n];
            if (!whole && i->in_flight > 0) {
                skipped++;
                continue;
            }
            TRY(bytes_printf(ret, e, "%s %5d ", QUEUE_NAME[q], n));
            TRY(print_instruction(p, i, ret, e));
        }
    if (skipped)
        TRY(bytes_printf(ret, e, "and %d such instructions of the other micro-batches\n", skipped));
    return ST_OK;
}
