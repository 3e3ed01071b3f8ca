/* Mistakes in a rank's plan about bytes and numbers: families, gradient space, and indices or addresses of nothing.
 * Each function changes one field of a valid plan and returns whether the layout has that field. BREAKS_OF_PLACES at
 * the end names the functions and the message that the verifier must give. */
#include "tests/engine/broken_plans.h"

#include "engine/graph/op.h"
#include "engine/model/gpt.h"
#include "engine/optimizer/optimizer.h"
#include "engine/plan/plan.h"
#include "engine/plan/verify/verify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* --- families ---*/

static bool weights_in_one_place(struct gang *g) {
    struct plan *p = g->plans[0];
    int before = -1;
    for (int i = 0; i < g->graph->n_parameters && p->layout.zero < 3; i++) {
        if (p->parameter_begin[i] < 0)
            continue;
        if (before >= 0) {
            p->parameter_begin[i] = p->parameter_begin[before];
            return true;
        }
        before = i;
    }
    return false;
}

static bool weights_outside(struct gang *g) {
    g->plans[0]->family_bytes[FAMILY_PARAMETERS] /= 2;
    return true;
}

static bool states_in_one_place(struct gang *g) {
    struct plan *p = g->plans[0];
    for (int i = 0; i < p->n_shards; i++)
        if (p->shards[i].state[0] != SIZE_MAX && p->shards[i].state[1] != SIZE_MAX) {
            p->shards[i].state[1] = p->shards[i].state[0];
            return true;
        }
    return false;
}

static bool states_outside(struct gang *g) {
    g->plans[0]->family_bytes[FAMILY_OPTIMIZER] /= 2;
    return true;
}

static bool no_state(struct gang *g) {
    if (!g->plans[0]->n_shards)
        return false;
    g->plans[0]->shards[0].state[0] = SIZE_MAX;
    return true;
}

static bool average_missing(struct gang *g) {
    if (!g->plans[0]->layout.ema)
        return false;
    g->plans[0]->shards[0].ema = SIZE_MAX;
    return true;
}

static bool gradients_outside(struct gang *g) {
    if (!g->plans[0]->family_bytes[FAMILY_GRADIENTS])
        return false;
    g->plans[0]->family_bytes[FAMILY_GRADIENTS] /= 2;
    return true;
}

static bool small_workspace(struct gang *g) {
    g->plans[0]->family_bytes[FAMILY_WORKSPACE] -= PLAN_ALIGN;
    g->plans[0]->layout.workspace_bytes += PLAN_ALIGN;
    return true;
}

static bool communication_outside(struct gang *g) {
    struct plan *p = g->plans[0];
    if (p->layout.zero < 3 && !p->staged)
        return false;
    p->family_bytes[FAMILY_COMMUNICATION] /= 4;
    return true;
}

static bool chunk_sums_in_one_place(struct gang *g) {
    for (int r = 0; r < g->n; r++)
        g->plans[r]->parameter_norm[1] = g->plans[r]->parameter_norm[0];
    return true;
}

/* A batch input with an upload buffer, on the first rank, or -1. */
static int uploaded_input(const struct plan *p) {
    for (int b = 0; b < p->graph->n_batch; b++)
        if (plan_upload_place(p, p->graph->batch[b]).offset != SIZE_MAX)
            return p->graph->batch[b];
    return -1;
}

static bool upload_buffer_without_a_place(struct gang *g) {
    struct plan *p = g->plans[0];
    const int t = uploaded_input(p);
    if (t >= 0)
        p->upload_offset[t] = SIZE_MAX;
    return t >= 0;
}

static bool upload_buffer_outside(struct gang *g) {
    struct plan *p = g->plans[0];
    const int t = uploaded_input(p);
    if (t >= 0)
        p->upload_offset[t] = p->family_bytes[FAMILY_BATCH] - 1;
    return t >= 0;
}

/* The upload buffer overlaps some micro-batch's copy of the input. */
static bool upload_buffer_on_a_tensor(struct gang *g) {
    struct plan *p = g->plans[0];
    const int t = uploaded_input(p);
    if (t < 0)
        return false;
    const struct tensor_place *place = &p->tensors[LIFETIME_FORWARD][t];
    p->upload_offset[t] = place->offset + (size_t)(place->copies - 1) * place->stride;
    return true;
}

static bool use_misplaced(struct gang *g) {
    struct plan *p = g->plans[0];
    p->use_begin[p->use_order[1]] += PLAN_CHUNK;
    return true;
}

static bool bucket_misplaced(struct gang *g) {
    g->plans[0]->buckets[0].end += PLAN_CHUNK;
    return true;
}

static bool ranks_that_disagree(struct gang *g) {
    if (g->n < 2)
        return false;
    g->plans[1]->layout.reduce = g->plans[1]->layout.reduce == PLAN_REDUCE_STEP ? PLAN_REDUCE_MICRO_BATCH
                                                                                : PLAN_REDUCE_STEP;
    return true;
}

static bool ranks_swapped(struct gang *g) {
    if (g->n < 2)
        return false;
    struct plan *p = g->plans[0];
    g->plans[0] = g->plans[1];
    g->plans[1] = p;
    return true;
}

/* --- numbers and addresses of nothing --- */

static struct instruction *first_forward(struct plan *p) { return find_compute(p, INSTRUCTION_FORWARD, 0); }

static bool missing_op(struct gang *g) {
    first_forward(g->plans[0])->op = g->graph->n_ops;
    return true;
}

static bool op_of_another_stage(struct gang *g) {
    struct plan *p = g->plans[0];
    for (int o = 0; o < g->graph->n_ops; o++)
        if (p->block_virtual_stage[g->graph->ops[o].block] < 0) {
            first_forward(p)->op = o;
            return true;
        }
    return false;
}

static bool reverse_op_of_another_stage(struct gang *g) {
    struct plan *p = g->plans[0];
    for (int r = 0; r < g->graph->n_reverse; r++)
        if (p->block_virtual_stage[g->graph->ops[g->graph->reverse[r].op].block] < 0) {
            find_compute(p, INSTRUCTION_BACKWARD_INPUT, 0)->op = r;
            return true;
        }
    return false;
}

static bool transfer_in_the_compute_queue(struct gang *g) {
    first_forward(g->plans[0])->kind = INSTRUCTION_SEND;
    return true;
}

static bool compute_in_the_data_queue(struct gang *g) {
    for (int r = 0; r < g->n; r++) {
        if (!g->plans[r]->queue[QUEUE_DATA].n)
            return false;
        g->plans[r]->queue[QUEUE_DATA].items[0].kind = INSTRUCTION_DECIDE;
    }
    return true;
}

static bool losses_not_exchanged(struct gang *g) {
    for (int r = 0; r < g->n; r++) {
        struct instruction *i = find(g->plans[r], QUEUE_DATA, INSTRUCTION_EXCHANGE, 0);
        if (!i)
            return false;
        drop_entry(g->plans[r], QUEUE_DATA, (int)(i - g->plans[r]->queue[QUEUE_DATA].items));
    }
    return true;
}

static bool tensor_without_a_place(struct gang *g) {
    struct plan *p = g->plans[0];
    p->tensors[LIFETIME_FORWARD][g->graph->ops[first_forward(p)->op].out[0]].offset = SIZE_MAX;
    return true;
}

/* Both outputs of an op get one address. */
static bool two_outputs_in_one_place(struct gang *g) {
    struct plan *p = g->plans[0];
    for (int o = 0; o < g->graph->n_ops; o++) {
        const struct op *op = &g->graph->ops[o];
        if (op->kind != &op_attention || p->block_virtual_stage[op->block] < 0)
            continue;
        for (int l = 0; l < LIFETIMES; l++)
            if (p->tensors[l][op->out[1]].offset != SIZE_MAX)
                p->tensors[l][op->out[1]].offset = p->tensors[l][op->out[0]].offset;
        return true;
    }
    return false;
}

static bool view_of_nothing(struct gang *g) {
    struct plan *p = g->plans[0];
    for (int n = 0;; n++) {
        struct instruction *i = find_compute(p, INSTRUCTION_BACKWARD_INPUT, n);
        struct tensor_access a;
        if (!i)
            return false;
        plan_access(p, i, &a);
        if (!a.n_views)
            continue;
        struct tensor_place *place = &p->tensors[instruction_lifetime(p, i)][a.views[0]];
        place->offset = p->family_bytes[FAMILY_ACTIVATIONS];
        p->family_bytes[FAMILY_ACTIVATIONS] += plan_tensor_bytes(p, a.views[0]) + (size_t)place->copies * place->stride;
        return true;
    }
}

static bool input_gradient_twice(struct gang *g) {
    struct plan *p = g->plans[0];
    for (int n = 0;; n++) {
        struct instruction *i = find_compute(p, INSTRUCTION_BACKWARD_INPUT, n);
        if (!i)
            return false;
        if (g->graph->ops[g->graph->reverse[i->op].op].kind != &op_attention)
            continue;
        insert(p, (int)(i - p->queue[QUEUE_COMPUTE].items), *i);
        return true;
    }
}

static bool weight_gradient_twice(struct gang *g) {
    struct plan *p = g->plans[0];
    for (int n = 0;; n++) {
        struct instruction *i = find_compute(p, INSTRUCTION_BACKWARD_WEIGHT, n);
        if (!i)
            return false;
        if (i->first)
            continue;
        insert(p, (int)(i - p->queue[QUEUE_COMPUTE].items), *i);
        return true;
    }
}

static bool addition_twice(struct gang *g) {
    struct plan *p = g->plans[0];
    struct instruction *i = find_range(p, INSTRUCTION_ADD, 0);
    if (i)
        insert(p, (int)(i - p->queue[QUEUE_COMPUTE].items), *i);
    return i;
}

static bool addition_to_itself(struct gang *g) {
    struct instruction *i = find_range(g->plans[0], INSTRUCTION_ADD, 0);
    if (i)
        i->source = i->buffer;
    return i;
}

static bool missing_shard(struct gang *g) {
    struct plan *p = g->plans[0];
    struct instruction *i = find_range(p, INSTRUCTION_NORM, 0);
    if (i) {
        i->begin = p->n_shards;
        i->end = p->n_shards + 1;
    }
    return i;
}

static bool missing_use(struct gang *g) {
    struct instruction *i = find_range(g->plans[0], INSTRUCTION_ADD_USE, 0);
    if (i)
        i->source = g->graph->n_uses;
    return i;
}

/* --- gradient space, buckets, shards ---*/

static bool use_missing_from_gradient_space(struct gang *g) {
    struct plan *p = g->plans[0];
    int s = p->use_order[--p->n_own_uses];
    p->gradient_elements = p->use_begin[s];
    p->use_begin[s] = p->use_end[s] = -1;
    return true;
}

static bool gradient_space_too_long(struct gang *g) {
    if (g->plans[0]->layout.stages > 1) /* with stages, the misplaced gradient would be one that arrives */
        return false;
    g->plans[0]->gradient_elements += PLAN_CHUNK;
    return true;
}

static bool bucket_missing(struct gang *g) {
    int last = --g->plans[0]->n_buckets;
    free(g->plans[0]->buckets[last].part_begin); /* plan_free reads only n_buckets buckets */
    g->plans[0]->buckets[last].part_begin = NULL;
    return true;
}

static bool shared_uses_bucket_has_another(struct gang *g) {
    struct plan *p = g->plans[0];
    for (int b = 0; b + 1 < p->n_buckets; b++) {
        int64_t last = p->buckets[b + 1].begin;
        for (int k = 0; k < p->n_own_uses; k++) {
            int s = p->use_order[k];
            bool shared = g->graph->uses[g->graph->parameters[g->graph->uses[s].parameter].first_use].next_use >= 0;
            if (!shared || p->use_begin[s] != last || p->buckets[b].end - p->buckets[b].begin <= PLAN_CHUNK ||
                p->buckets[b].part_begin)
                continue;
            p->buckets[b].end -= PLAN_CHUNK;
            p->buckets[b + 1].begin -= PLAN_CHUNK;
            return true;
        }
    }
    return false;
}

static bool bucket_that_cuts_a_parameter(struct gang *g) {
    struct plan *p = g->plans[0];
    for (int b = 0; b + 1 < p->n_buckets && p->layout.zero >= 2; b++) {
        for (int k = 0; k < p->n_own_uses; k++) {
            int s = p->use_order[k];
            bool shared = g->graph->uses[g->graph->parameters[g->graph->uses[s].parameter].first_use].next_use >= 0;
            if (shared || p->use_end[s] != p->buckets[b].end || p->use_end[s] - p->use_begin[s] <= PLAN_CHUNK ||
                b + 2 >= p->n_buckets)
                continue;
            const struct plan_bucket *next = &p->buckets[b + 1];
            bool next_shared = false;
            for (int n = 0; n < p->n_own_uses; n++)
                if (p->use_begin[p->use_order[n]] == next->begin)
                    next_shared = g->graph
                                      ->uses[g->graph->parameters[g->graph->uses[p->use_order[n]].parameter].first_use]
                                      .next_use >= 0;
            if (next_shared)
                continue;
            p->buckets[b].end -= PLAN_CHUNK;
            p->buckets[b + 1].begin -= PLAN_CHUNK;
            return true;
        }
    }
    return false;
}

static bool part_that_cuts_a_tensor(struct gang *g) {
    struct plan *p = g->plans[0];
    for (int b = 0; b < p->n_buckets; b++) {
        struct plan_bucket *x = &p->buckets[b];
        if (!x->part_begin || (x->end - x->begin) / PLAN_CHUNK < 2)
            continue;
        for (int j = 1; j < p->layout.data; j++)
            x->part_begin[j] = 1;
        for (int k = 0; k < p->n_own_uses; k++)
            if (p->use_begin[p->use_order[k]] == x->begin && p->use_end[p->use_order[k]] - x->begin > PLAN_CHUNK)
                return true;
    }
    return false;
}

static bool shards_misnumbered(struct gang *g) {
    struct plan *p = g->plans[0];
    if (p->n_buckets < 2)
        return false;
    p->buckets[1].first_shard++;
    return true;
}

static bool too_many_shards_in_a_bucket(struct gang *g) {
    g->plans[0]->buckets[g->plans[0]->n_buckets - 1].n_shards++;
    return true;
}

static bool shard_of_no_bucket(struct gang *g) {
    g->plans[0]->n_shards++;
    return true;
}

static bool shard_steps_another_place(struct gang *g) {
    if (g->plans[0]->layout.zero == 3 || !g->plans[0]->n_shards)
        return false;
    g->plans[0]->shards[0].weight += PLAN_CHUNK;
    return true;
}

static bool weight_without_a_place(struct gang *g) {
    struct plan *p = g->plans[0];
    if (p->layout.zero == 3)
        return false;
    for (int i = 0; i < g->graph->n_parameters; i++)
        if (p->parameter_begin[i] >= 0) {
            /* A bucket of which this rank steps no shard, so that no earlier check misses it. */
            bool stepped = false;
            for (int k = 0; k < p->n_shards; k++)
                stepped |= p->shards[k].parameter == i;
            if (stepped)
                continue;
            p->parameter_begin[i] = -1;
            return true;
        }
    return false;
}

const struct plan_break BREAKS_OF_PLACES[] = {
#define BREAK(function, says)                                                                                          \
    { #function, function, says }
    BREAK(weights_in_one_place, "overlaps another one"),
    BREAK(weights_outside, "ends outside its family"),
    BREAK(states_in_one_place, "overlaps another one"),
    BREAK(states_outside, "ends outside its family"),
    BREAK(no_state, "has no place"),
    BREAK(average_missing, "has no place"),
    BREAK(gradients_outside, "ends outside its family"),
    BREAK(small_workspace, "workspace is smaller"),
    BREAK(communication_outside, "has no place|have no place"),
    BREAK(chunk_sums_in_one_place, "chunk sums of"),
    BREAK(upload_buffer_without_a_place, "has no place"),
    BREAK(upload_buffer_outside, "ends outside its family"),
    BREAK(upload_buffer_on_a_tensor, "overlaps another one"),
    BREAK(use_misplaced, "is misplaced"),
    BREAK(bucket_misplaced, "is misplaced|tile it"),
    BREAK(ranks_that_disagree, "do not plan the same step"),
    BREAK(ranks_swapped, "is out of order"),
    BREAK(missing_op, "does not exist"),
    BREAK(op_of_another_stage, "is another stage's"),
    BREAK(reverse_op_of_another_stage, "is another stage's"),
    BREAK(transfer_in_the_compute_queue, "is not allowed in the compute queue"),
    BREAK(compute_in_the_data_queue, "DECIDE is not allowed in that queue"),
    BREAK(losses_not_exchanged, "do not exchange their losses"),
    BREAK(tensor_without_a_place, "is used but has no place"),
    BREAK(two_outputs_in_one_place, "are written to the same bytes"),
    BREAK(view_of_nothing, "is a view of bytes that hold nothing"),
    BREAK(input_gradient_twice, "is not the next one"),
    BREAK(weight_gradient_twice, "does not follow the one before it in lane"),
    BREAK(addition_twice, "is added before it is complete"),
    BREAK(addition_to_itself, "is added to itself"),
    BREAK(missing_shard, "does not exist"),
    BREAK(missing_use, "no such use is added"),
    BREAK(use_missing_from_gradient_space, "is misplaced"),
    BREAK(gradient_space_too_long, "uses do not fill gradient space"),
    BREAK(bucket_missing, "buckets do not fill gradient space"),
    BREAK(shared_uses_bucket_has_another, "shares a bucket"),
    BREAK(bucket_that_cuts_a_parameter, "is cut by the edge of a bucket"),
    BREAK(part_that_cuts_a_tensor, "but its optimizer steps whole tensors"),
    BREAK(shards_misnumbered, "the shards of bucket 1 are misnumbered"),
    BREAK(too_many_shards_in_a_bucket, "are misnumbered"),
    BREAK(shard_of_no_bucket, "belongs to no bucket"),
    BREAK(shard_steps_another_place, "is stepped at another place than it is read"),
    BREAK(weight_without_a_place, "is read but has no place"),
};
const int N_BREAKS_OF_PLACES = sizeof BREAKS_OF_PLACES / sizeof *BREAKS_OF_PLACES;
