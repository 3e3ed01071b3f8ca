/* Mistakes between ranks: gathered weights, transfers between stages, parameters that two stages share. Each function
 * changes the plans of one or several ranks and returns whether the layout has such a transfer. BREAKS_BETWEEN_RANKS at
 * the end names the functions and the message that the verifier must give. */
#include "tests/engine/broken_plans.h"

#include "engine/graph/op.h"
#include "engine/model/gpt.h"
#include "engine/optimizer/optimizer.h"
#include "engine/plan/plan.h"
#include "engine/plan/verify/verify.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* --- ZeRO-3 ---*/

static bool bucket_not_gathered(struct gang *g) {
    if (g->plans[0]->layout.zero != 3)
        return false;
    for (int r = 0; r < g->n; r++)
        drop_entry(g->plans[r], QUEUE_DATA,
                   (int)(find(g->plans[r], QUEUE_DATA, INSTRUCTION_GATHER, 1) - g->plans[r]->queue[QUEUE_DATA].items));
    return true;
}

static bool reads_unit(const struct plan *p, const struct instruction *i, int bucket) {
    if (i->kind != INSTRUCTION_FORWARD)
        return false;
    const struct op *op = &p->graph->ops[i->op];
    for (int k = 0; k < OP_PARAMETERS; k++)
        if (op->use[k] >= 0) {
            int owner = p->graph->parameters[p->graph->uses[op->use[k]].parameter].first_use;
            if (plan_bucket_at(p, p->use_begin[owner]) == bucket)
                return true;
        }
    return false;
}

static bool bucket_dropped_too_early(struct gang *g) {
    struct plan *p = g->plans[0];
    struct instruction *d = find_compute(p, INSTRUCTION_DROP, 0), early;
    if (!d)
        return false;
    early = *d;
    int at = (int)(d - p->queue[QUEUE_COMPUTE].items);
    drop(p, d);
    do
        at--;
    while (!reads_unit(p, &p->queue[QUEUE_COMPUTE].items[at], early.entry));
    insert(p, at, early);
    return true;
}

static bool bucket_never_dropped(struct gang *g) {
    struct plan *p = g->plans[0];
    struct instruction *d = find_compute(p, INSTRUCTION_DROP, 0);
    if (d)
        drop(p, d);
    return d;
}

static bool gathered_weights_in_one_place(struct gang *g) {
    struct plan *p = g->plans[0];
    size_t first = SIZE_MAX;
    for (int b = 0; b < p->n_buckets && p->layout.zero == 3; b++) {
        if (p->gathered_offset[b] == SIZE_MAX)
            continue;
        first = first == SIZE_MAX ? p->gathered_offset[b] : first;
        p->gathered_offset[b] = first;
    }
    return first != SIZE_MAX;
}

/* --- between stages ---*/

/* The last send: without an earlier one, later sends and receives would match wrongly. */
static bool send_without_receive(struct gang *g) {
    for (int r = 0; r < g->n; r++) {
        struct instruction *i = NULL;
        for (int n = 0; find(g->plans[r], QUEUE_ACTIVATIONS, INSTRUCTION_RECV, n); n++)
            i = find(g->plans[r], QUEUE_ACTIVATIONS, INSTRUCTION_RECV, n);
        if (!i)
            continue;
        drop_entry(g->plans[r], QUEUE_ACTIVATIONS, (int)(i - g->plans[r]->queue[QUEUE_ACTIVATIONS].items));
        return true;
    }
    return false;
}

static bool sends_in_another_order(struct gang *g) {
    struct plan *p = g->plans[0];
    struct instruction *a = NULL;
    for (int n = 0;; n++) {
        struct instruction *b = find(p, QUEUE_ACTIVATIONS, INSTRUCTION_SEND, n);
        if (!b)
            return false;
        if (a && a->peer == b->peer && (a->op != b->op || a->micro_batch != b->micro_batch)) {
            int after = a->after;
            swap(a, b);
            b->after = a->after;
            a->after = after;
            return true;
        }
        a = b;
    }
}

static bool send_to_nobody(struct gang *g) {
    struct instruction *i = find(g->plans[0], QUEUE_ACTIVATIONS, INSTRUCTION_SEND, 0);
    if (i)
        i->peer = 99;
    return i;
}

/* A stage waits for its gradients before it has sent the activations that they depend on. */
static bool deadlock(struct gang *g) {
    struct plan *p = g->plans[0];
    struct instruction *first = NULL;
    for (int n = 0; !first; n++) {
        struct instruction *w = find_compute(p, INSTRUCTION_WAIT, n);
        if (!w)
            return false;
        if (w->queue == QUEUE_GRADIENTS)
            first = w;
    }
    struct instruction early = *first;
    drop(p, first);
    insert(p, 0, early);
    p->queue[QUEUE_GRADIENTS].items[early.entry].after = 0;
    for (int i = 0; i < early.entry; i++)
        p->queue[QUEUE_GRADIENTS].items[i].after = 0;
    return true;
}

static bool transfer_never_waited_for(struct gang *g) {
    for (int n = 0;; n++) {
        struct instruction *w = find_compute(g->plans[0], INSTRUCTION_WAIT, n);
        if (!w)
            return false;
        if (w->queue != QUEUE_ACTIVATIONS)
            continue;
        drop(g->plans[0], w);
        return true;
    }
}

static bool boundary_read_before_it_arrives(struct gang *g) {
    struct plan *p = g->plans[g->n - 1];
    for (int n = 0;; n++) {
        struct instruction *w = find_compute(p, INSTRUCTION_WAIT, n);
        if (!w)
            return false;
        if (w->queue != QUEUE_ACTIVATIONS || p->queue[w->queue].items[w->entry].kind != INSTRUCTION_RECV)
            continue;
        struct instruction late = *w;
        drop(p, w);
        insert(p, p->queue[QUEUE_COMPUTE].n, late);
        return true;
    }
}

static bool sent_before_it_is_made(struct gang *g) {
    struct instruction *i = find(g->plans[0], QUEUE_ACTIVATIONS, INSTRUCTION_SEND, 0);
    if (!i)
        return false;
    for (struct instruction *x = g->plans[0]->queue[QUEUE_ACTIVATIONS].items; x <= i; x++)
        x->after = 0;
    return true;
}

static bool step_results_leave_too_early(struct gang *g) {
    struct plan *p = g->plans[g->n - 1];
    struct instruction *i = find(p, QUEUE_DATA, INSTRUCTION_EXCHANGE, 0);
    if (!i)
        return false;
    for (struct instruction *x = p->queue[QUEUE_DATA].items; x <= i; x++)
        if (x->kind != INSTRUCTION_EXCHANGE && x->kind != INSTRUCTION_GATHER)
            return false;
    i->after = 0;
    return true;
}

/* --- a parameter of two stages ---*/

static bool drop_shared(struct gang *g, enum plan_payload what) {
    bool any = false;
    for (int r = 0; r < g->n; r++)
        for (enum plan_queue q = QUEUE_ACTIVATIONS; q <= QUEUE_GRADIENTS; q++)
            for (int k = 0; k < 2; k++) {
                struct instruction *i = find_what(g->plans[r], q, k ? INSTRUCTION_RECV : INSTRUCTION_SEND, what);
                for (; i; i = find_what(g->plans[r], q, k ? INSTRUCTION_RECV : INSTRUCTION_SEND, what)) {
                    drop_entry(g->plans[r], q, (int)(i - g->plans[r]->queue[q].items));
                    any = true;
                }
            }
    return any;
}

static bool shared_gradient_stays(struct gang *g) { return drop_shared(g, PAYLOAD_GRADIENT); }
static bool shared_weight_stays(struct gang *g) { return drop_shared(g, PAYLOAD_WEIGHT); }

static bool use_not_added(struct gang *g) {
    for (int r = 0; r < g->n; r++) {
        struct instruction *i = find_range(g->plans[r], INSTRUCTION_ADD_USE, 0);
        if (!i)
            continue;
        drop(g->plans[r], i);
        return true;
    }
    return false;
}

static bool use_added_twice(struct gang *g) {
    for (int r = 0; r < g->n; r++) {
        struct instruction *i = find_range(g->plans[r], INSTRUCTION_ADD_USE, 0);
        if (!i)
            continue;
        insert(g->plans[r], (int)(i - g->plans[r]->queue[QUEUE_COMPUTE].items), *i);
        return true;
    }
    return false;
}

static bool another_parameters_use(struct gang *g) {
    struct plan *p = g->plans[0];
    struct instruction *i = find_range(p, INSTRUCTION_ADD_USE, 0);
    if (!i)
        return false;
    i->source = p->use_order[p->n_own_uses / 2];
    return p->graph->uses[i->source].parameter != p->shards[i->begin].parameter;
}

static bool weight_sent_before_its_step(struct gang *g) {
    for (int r = 0; r < g->n; r++)
        for (enum plan_queue q = QUEUE_ACTIVATIONS; q <= QUEUE_GRADIENTS; q++) {
            struct plan *p = g->plans[r];
            struct instruction *i = find_what(p, q, INSTRUCTION_SEND, PAYLOAD_WEIGHT);
            if (!i || i->begin >= i->end)
                continue;
            i->after = (int)(find_compute(p, INSTRUCTION_DECIDE, 0) - p->queue[QUEUE_COMPUTE].items);
            for (struct instruction *x = p->queue[q].items; x < i; x++)
                x->after = x->after < i->after ? x->after : i->after;
            return true;
        }
    return false;
}

static bool sibling_received_into_used_bytes(struct gang *g) {
    for (int r = 0; r < g->n; r++) {
        struct plan *p = g->plans[r];
        for (int s = 0; s < g->graph->n_uses; s++)
            if (p->sibling_offset && p->sibling_offset[s] != SIZE_MAX) {
                p->family_bytes[FAMILY_COMMUNICATION] = p->sibling_offset[s];
                return true;
            }
    }
    return false;
}

/* Gathered weights stay until after the optimizer, in bytes that no other tensor needs. */
static bool weights_gathered_during_the_step(struct gang *g) {
    for (int r = 0; r < g->n; r++) {
        struct plan *p = g->plans[r];
        for (int n = 0; find_compute(p, INSTRUCTION_DROP, n); n++) {
            struct instruction *i = find_compute(p, INSTRUCTION_DROP, n), late = *i;
            const struct plan_bucket *b = &p->buckets[i->entry];
            bool again = false;
            for (int k = n + 1; find_compute(p, INSTRUCTION_DROP, k); k++)
                again |= find_compute(p, INSTRUCTION_DROP, k)->entry == i->entry;
            if (again || b->n_shards == 0)
                continue;
            p->gathered_offset[i->entry] = p->family_bytes[FAMILY_COMMUNICATION];
            p->family_bytes[FAMILY_COMMUNICATION] += (size_t)(b->end - b->begin) * dtype_bytes(g->graph->element);
            drop(p, i);
            insert(p, p->queue[QUEUE_COMPUTE].n, late);
            return true;
        }
    }
    return false;
}

static bool bucket_without_a_place(struct gang *g) {
    struct plan *p = g->plans[0];
    struct instruction *i = find(p, QUEUE_DATA, INSTRUCTION_GATHER, 0);
    if (!i || p->layout.zero != 3)
        return false;
    p->gathered_offset[i->entry] = SIZE_MAX;
    return true;
}

static bool bucket_dropped_twice(struct gang *g) {
    struct plan *p = g->plans[0];
    struct instruction *i = find_compute(p, INSTRUCTION_DROP, 0);
    if (i)
        insert(p, (int)(i - p->queue[QUEUE_COMPUTE].items), *i);
    return i;
}

/* The same change to the first entry of a kind in the data queue of every rank. */
static bool change_data(struct gang *g, enum instruction_kind from, enum instruction_kind to, int bucket) {
    for (int r = 0; r < g->n; r++) {
        struct instruction *i = find(g->plans[r], QUEUE_DATA, from, 0);
        if (!i)
            return false;
        i->kind = to;
        i->entry = bucket == INT_MAX ? i->entry : bucket;
    }
    return true;
}

static bool missing_bucket_gathered(struct gang *g) {
    return change_data(g, INSTRUCTION_GATHER, INSTRUCTION_GATHER, 1 << 20);
}

static bool gathered_without_sharding(struct gang *g) {
    return g->plans[0]->layout.zero == 0 && change_data(g, INSTRUCTION_REDUCE, INSTRUCTION_GATHER, INT_MAX);
}

static bool gathered_twice(struct gang *g) {
    for (int r = 0; r < g->n; r++) {
        struct instruction *a = find(g->plans[r], QUEUE_DATA, INSTRUCTION_GATHER, 0),
                           *b = find(g->plans[r], QUEUE_DATA, INSTRUCTION_GATHER, 1);
        if (!b || g->plans[r]->layout.zero == 3)
            return false;
        b->entry = a->entry;
    }
    return true;
}

/* Both sides exchange the direction of the shared weight's transfer back. */
static bool turn_around(struct gang *g, enum plan_payload what) {
    bool any = false;
    for (int r = 0; r < g->n; r++)
        for (enum plan_queue q = QUEUE_ACTIVATIONS; q <= QUEUE_GRADIENTS; q++)
            for (int i = 0; i < g->plans[r]->queue[q].n; i++) {
                struct instruction *x = &g->plans[r]->queue[q].items[i];
                if (x->payload != what)
                    continue;
                any |= x->begin < x->end;
                x->kind = x->kind == INSTRUCTION_SEND ? INSTRUCTION_RECV : INSTRUCTION_SEND;
            }
    return any;
}

static bool weight_sent_to_its_owner(struct gang *g) { return turn_around(g, PAYLOAD_WEIGHT); }
static bool gradient_sent_from_its_owner(struct gang *g) { return turn_around(g, PAYLOAD_GRADIENT); }

/* Both sides name another payload in every transfer of this kind. */
static bool rename_cargo(struct gang *g, enum plan_payload what, int op, int64_t longer) {
    bool any = false;
    for (int r = 0; r < g->n; r++)
        for (enum plan_queue q = QUEUE_ACTIVATIONS; q <= QUEUE_GRADIENTS; q++)
            for (int i = 0; i < g->plans[r]->queue[q].n; i++) {
                struct instruction *x = &g->plans[r]->queue[q].items[i];
                if (x->payload != what || (what != PAYLOAD_TENSOR && x->begin >= x->end))
                    continue;
                any = true;
                x->op = op == INT_MAX ? x->op : op;
                x->end += longer;
            }
    return any;
}

static bool missing_tensor_sent(struct gang *g) { return rename_cargo(g, PAYLOAD_TENSOR, -1, 0); }
static bool weight_longer_than_it_is(struct gang *g) { return rename_cargo(g, PAYLOAD_WEIGHT, INT_MAX, 1 << 20); }

/* The gradient of a use of the first stage, which the sender does not have. */
static bool gradient_of_another_stage(struct gang *g) {
    const struct plan *p = g->plans[0];
    for (int k = 0; k < p->n_own_uses; k++) {
        int s = p->use_order[k];
        if (g->graph->uses[g->graph->parameters[g->graph->uses[s].parameter].first_use].next_use < 0)
            return rename_cargo(g, PAYLOAD_GRADIENT, s, 0);
    }
    return false;
}

static bool reduction_among_transfers(struct gang *g) {
    for (int r = 0; r < g->n; r++)
        if (g->plans[r]->queue[QUEUE_ACTIVATIONS].n) {
            g->plans[r]->queue[QUEUE_ACTIVATIONS].items[0].kind = INSTRUCTION_REDUCE;
            return true;
        }
    return false;
}

/* An op reads the shared weight while the new weight arrives. */
static bool weight_read_while_it_arrives(struct gang *g) {
    for (int r = 0; r < g->n; r++) {
        struct plan *p = g->plans[r];
        for (int n = 0;; n++) {
            struct instruction *w = find_compute(p, INSTRUCTION_WAIT, n);
            if (!w)
                break;
            const struct instruction *x = &p->queue[w->queue].items[w->entry];
            if (w->queue == QUEUE_DATA || x->kind != INSTRUCTION_RECV || x->payload != PAYLOAD_WEIGHT ||
                x->begin >= x->end)
                continue;
            for (int f = 0; find_compute(p, INSTRUCTION_FORWARD, f); f++) {
                struct instruction again = *find_compute(p, INSTRUCTION_FORWARD, f);
                int use = g->graph->ops[again.op].use[0];
                if (use < 0 || g->graph->uses[use].parameter != x->op)
                    continue;
                insert(p, (int)(w - p->queue[QUEUE_COMPUTE].items), again);
                return true;
            }
        }
    }
    return false;
}

/* Appends a copy of an entry to its queue, and a WAIT for it to the compute queue. */
static void again(struct plan *p, enum plan_queue queue, struct instruction entry) {
    struct instruction_list *list = &p->queue[queue];
    entry.after = p->queue[QUEUE_COMPUTE].n;
    list->items = realloc(list->items, ((size_t)list->n + 1) * sizeof entry);
    assert_non_null(list->items);
    list->items[list->n++] = entry;
    insert(p, p->queue[QUEUE_COMPUTE].n,
           (struct instruction){ .kind = INSTRUCTION_WAIT,
                                 .queue = queue,
                                 .op = -1,
                                 .micro_batch = -1,
                                 .in_flight = -1,
                                 .virtual_stage = -1,
                                 .entry = list->n - 1,
                                 .peer = -1 });
}

static bool gradient_sent_twice(struct gang *g) {
    for (int r = 0; r < g->n; r++) {
        struct plan *p = g->plans[r];
        for (int n = 0; find(p, QUEUE_GRADIENTS, INSTRUCTION_SEND, n); n++) {
            const struct instruction out = *find(p, QUEUE_GRADIENTS, INSTRUCTION_SEND, n);
            struct plan *peer = g->plans[out.peer];
            for (int k = 0; out.payload == PAYLOAD_GRADIENT && out.begin < out.end &&
                            find(peer, QUEUE_GRADIENTS, INSTRUCTION_RECV, k);
                 k++) {
                const struct instruction in = *find(peer, QUEUE_GRADIENTS, INSTRUCTION_RECV, k);
                if (in.payload != PAYLOAD_GRADIENT || in.op != out.op || in.peer != r || in.begin != out.begin)
                    continue;
                again(p, QUEUE_GRADIENTS, out);
                again(peer, QUEUE_GRADIENTS, in);
                return true;
            }
        }
    }
    return false;
}

/* The uses of a parameter must be divided in the same way; otherwise their parts cannot be added. */
static bool uses_cut_differently(struct gang *g) {
    bool any = false;
    for (int r = 0; r < g->n; r++) {
        struct plan *p = g->plans[r];
        if (p->layout.zero != 1 || p->layout.stages > 1 || p->buckets[0].part_begin)
            return false;
        for (int k = 0; k < p->n_own_uses; k++) {
            int s = p->use_order[k];
            if (g->graph->parameters[g->graph->uses[s].parameter].first_use == s)
                continue;
            struct plan_bucket *b = &p->buckets[plan_bucket_at(p, p->use_begin[s])];
            int chunks = (int)((b->end - b->begin) / PLAN_CHUNK);
            free(b->part_begin);
            b->part_begin = calloc((size_t)p->layout.data + 1, sizeof(int));
            for (int j = 1; j <= p->layout.data; j++)
                b->part_begin[j] = chunks;
            any = true;
        }
    }
    return any;
}

const struct plan_break BREAKS_BETWEEN_RANKS[] = {
#define BREAK(function, says)                                                                                          \
    { #function, function, says }
    BREAK(bucket_not_gathered, "is not gathered"),
    BREAK(bucket_dropped_too_early, "is not gathered"),
    BREAK(bucket_never_dropped, "before it was dropped|never dropped|still in use|copy of it is in use"),
    BREAK(gathered_weights_in_one_place, "still in use"),
    BREAK(send_without_receive, "has no other half"),
    BREAK(sends_in_another_order, "matches entry"),
    BREAK(send_to_nobody, "there is no peer 99"),
    BREAK(deadlock, "waits forever"),
    BREAK(transfer_never_waited_for, "never waited for|which a transfer still holds|is not live"),
    BREAK(boundary_read_before_it_arrives, "is not live when it is read"),
    BREAK(sent_before_it_is_made, "is not live when it is read"),
    BREAK(step_results_leave_too_early, "before all losses are in them"),
    BREAK(shared_gradient_stays, "never reaches the first use|used before the whole step"),
    BREAK(shared_weight_stays, "does not reach the rank|is gathered before"),
    BREAK(use_not_added, "after the whole step"),
    BREAK(use_added_twice, "not added once each"),
    BREAK(another_parameters_use, "uses of two parameters"),
    BREAK(weight_sent_before_its_step, "before all of that is stepped"),
    BREAK(sibling_received_into_used_bytes, "in use or outside the family|ends outside|no place|still in use"),
    BREAK(weights_gathered_during_the_step, "while a copy of it is in use"),
    BREAK(bucket_without_a_place, "has no place"),
    BREAK(bucket_dropped_twice, "is dropped but was not gathered"),
    BREAK(missing_bucket_gathered, "does not exist"),
    BREAK(gathered_without_sharding, "nothing is gathered without ZeRO"),
    BREAK(gathered_twice, "is gathered twice"),
    BREAK(weight_sent_to_its_owner, "by a rank that steps it"),
    BREAK(gradient_sent_from_its_owner, "is sent in the wrong direction"),
    BREAK(missing_tensor_sent, "its payload does not exist"),
    BREAK(weight_longer_than_it_is, "no parameter has these elements"),
    BREAK(gradient_sent_twice, "is not sent once"),
    BREAK(gradient_of_another_stage, "no such use is here|is sent in the wrong direction"),
    BREAK(reduction_among_transfers, "REDUCE is not allowed in that queue"),
    BREAK(weight_read_while_it_arrives, "is read during a transfer"),
    BREAK(uses_cut_differently, "cuts a gradient in two"),
};
const int N_BREAKS_BETWEEN_RANKS = sizeof BREAKS_BETWEEN_RANKS / sizeof *BREAKS_BETWEEN_RANKS;
