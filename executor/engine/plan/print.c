#include "executor/engine/graph/op.h"
#include "executor/engine/plan/plan.h"

static const char *const FAMILY_NAME[FAMILIES] = {
    [FAMILY_PARAMETERS] = "parameters",       [FAMILY_GRADIENTS] = "gradients", [FAMILY_OPTIMIZER] = "optimizer",
    [FAMILY_ACTIVATIONS] = "activations",     [FAMILY_BATCH] = "batch",         [FAMILY_WORKSPACE] = "workspace",
    [FAMILY_COMMUNICATION] = "communication",
};

static status_t print_memory(const struct plan *p, struct bytes *ret, struct err *e) {
    size_t total = 0;
    for (int f = 0; f < FAMILIES; f++)
        total += p->family_bytes[f];
    TRY(bytes_printf(ret, e, "rank %d of %d: %d of %d micro-batches, %d gradient buffers, %d buckets, %.1f MiB\n",
                     p->layout.rank, p->layout.world_size, p->layout.micro_batches / p->layout.world_size,
                     p->layout.micro_batches, p->gradient_buffers, p->n_buckets, (double)total / (1 << 20)));
    for (int f = 0; f < FAMILIES; f++)
        TRY(bytes_printf(ret, e, "  %-14s %12zu bytes\n", FAMILY_NAME[f], p->family_bytes[f]));
    return ST_OK;
}

static const char *name_of_slot(const struct graph *g, int slot) {
    return g->parameters[g->slots[slot].parameter].name;
}

static status_t print_instruction(const struct plan *p, const struct instruction *i, struct bytes *ret, struct err *e) {
    const struct graph *g = p->graph;
    const char *name = instruction_name(i->kind);
    switch (i->kind) {
    case INSTRUCTION_LOAD: return bytes_printf(ret, e, "%s micro-batch %d\n", name, i->micro_batch);
    case INSTRUCTION_FORWARD:
    case INSTRUCTION_RECOMPUTE:
        return bytes_printf(ret, e, "%s %s micro-batch %d\n", name, g->ops[i->op].name, i->micro_batch);
    case INSTRUCTION_BACKWARD_INPUT:
    case INSTRUCTION_BACKWARD_WEIGHT:
        return bytes_printf(ret, e, "%s %s micro-batch %d buffer %d%s\n", name, g->ops[g->reverse[i->op].op].name,
                            i->micro_batch, i->buffer, i->first ? " first" : "");
    case INSTRUCTION_SEND:
    case INSTRUCTION_RECV: return bytes_printf(ret, e, "%s %s rank %d\n", name, g->tensors[i->entry].name, i->peer);
    case INSTRUCTION_ADD:
        return bytes_printf(ret, e, "%s [%lld, %lld) buffer %d += buffer %d\n", name, (long long)i->begin,
                            (long long)i->end, i->buffer, i->source);
    case INSTRUCTION_ADD_SLOT:
    case INSTRUCTION_STEP: return bytes_printf(ret, e, "%s %s\n", name, name_of_slot(g, i->op));
    case INSTRUCTION_REDUCE:
        return bytes_printf(ret, e, "%s bucket %d [%lld, %lld) buffer %d after %d\n", name, i->entry,
                            (long long)i->begin, (long long)i->end, i->buffer, i->after);
    case INSTRUCTION_EXCHANGE: return bytes_printf(ret, e, "%s after %d\n", name, i->after);
    case INSTRUCTION_WAIT: return bytes_printf(ret, e, "%s entry %d\n", name, i->entry);
    case INSTRUCTION_NORM:
        return bytes_printf(ret, e, "%s [%lld, %lld)\n", name, (long long)i->begin, (long long)i->end);
    default: return bytes_printf(ret, e, "%s\n", name);
    }
}

status_t plan_print(const struct plan *p, bool whole, struct bytes *ret, struct err *e) {
    TRY(print_memory(p, ret, e));
    int skipped = 0, first = p->compute.n ? p->compute.items[0].micro_batch : -1;
    for (int n = 0; n < p->compute.n; n++) {
        const struct instruction *i = &p->compute.items[n];
        if (!whole && i->micro_batch >= 0 && i->micro_batch != first) {
            skipped++;
            continue;
        }
        TRY(bytes_printf(ret, e, "%6d ", n));
        TRY(print_instruction(p, i, ret, e));
    }
    if (skipped)
        TRY(bytes_printf(ret, e, "       and %d instructions of the other micro-batches, alike\n", skipped));
    for (int n = 0; n < p->channel.n; n++) {
        TRY(bytes_printf(ret, e, "channel %d ", n));
        TRY(print_instruction(p, &p->channel.items[n], ret, e));
    }
    return ST_OK;
}
