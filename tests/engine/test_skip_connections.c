/* Skip connections that cross stages. The last block of a small test graph also reads the first block's output, on
 * pipelines of every schedule. Ranks run in this process, each in an arena of its plan's size, and every gradient has
 * the bits of one rank. */
#include "engine/graph/op.h"
#include "engine/plan/transfer_match.h"
#include "tests/engine/plans.h"

enum { B = 2, WIDTH = 6, BLOCKS = 6, MICRO_BATCHES = 4, RANKS = 3 };

/* --- the graph ---*/

static int add(struct graph *g, const struct op_kind *kind, const char *name, struct op_arguments args) {
    struct err e;
    int out[OP_OUTPUTS];
    args.name = name;
    args.n_in = (int)kind->n_in;
    if (graph_add_op(g, kind, &args, out, &e) != ST_OK)
        fail_msg("%s: %s", name, e.msg);
    return out[0];
}

static int weight(struct graph *g, int64_t rows, int64_t columns) {
    struct parameter p = { .shape = SHAPE(rows, columns), .matrix = true };
    snprintf(p.name, sizeof p.name, "p%d", g->n_parameters);
    return graph_use(g, graph_add_parameter(g, &p), 0);
}

static int linear(struct graph *g, int x, int64_t in, int64_t out) {
    char name[GRAPH_NAME];
    snprintf(name, sizeof name, "linear.%d", g->n_ops);
    struct op_arguments args = { .in = { x }, .n_uses = 1, .attr.transposed = true };
    args.use[0] = weight(g, out, in);
    return add(g, &op_linear_gelu, name, args);
}

static int sum(struct graph *g, int a, int b, const char *name) {
    const int branch = add(g, &op_branch, "branch", (struct op_arguments){ .in = { a } });
    return add(g, &op_add, name, (struct op_arguments){ .in = { branch, b } });
}

/* Like a U-Net: the outputs of blocks 0 and 1 are read by the blocks after them and again by the last two, in the
 * opposite order. */
static struct graph *make_graph(void) {
    struct err e;
    struct graph *g = graph_new(DTYPE_F32);
    int skip[2] = { -1, -1 };
    g->micro_batch = B;
    const int images = graph_add_batch(g, "images", BATCH_IMAGES, DTYPE_F32, SHAPE(B, WIDTH));
    const int reference = graph_add_batch(g, "reference", BATCH_REFERENCE, DTYPE_F32, SHAPE(B, WIDTH));
    int x = images;
    for (int b = 0; b < BLOCKS; b++) {
        graph_begin_block(g, "block");
        x = linear(g, x, WIDTH, WIDTH);
        if (b < 2)
            skip[b] = x;
        if (b >= BLOCKS - 2)
            x = sum(g, skip[BLOCKS - 1 - b], x, b == BLOCKS - 2 ? "sum.1" : "sum.0");
        if (b == BLOCKS - 1) {
            struct op_arguments args = { .in = { x }, .n_uses = 1, .attr.transposed = true };
            args.use[0] = weight(g, WIDTH, WIDTH);
            x = add(g, &op_linear, "head", args);
            g->losses = add(g, &op_squared_error, "loss", (struct op_arguments){ .in = { x, reference } });
        }
        graph_end_block(g, b == BLOCKS - 1 ? -1 : x);
    }
    if (graph_differentiate(g, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return g;
}

/* --- ranks in this process ---*/

struct rank {
    const struct plan *plan;
    char *arena[FAMILIES];
    int at;
    bool *done[QUEUES];
};

struct world {
    struct graph *graph;
    struct kernels *kernels;
    struct rank ranks[RANKS];
    struct transfer_match matches[RANKS];
    float *weights[BLOCKS + 1];
    float scale;
    int64_t step;
    int n;
};

static void *at(const struct rank *r, struct plan_place place) {
    return place.offset == SIZE_MAX ? NULL : r->arena[place.family] + place.offset;
}

static void *tensor(const struct rank *r, const struct instruction *i, int t) {
    return t < 0 ? NULL : at(r, plan_tensor_place(r->plan, t, i->in_flight, instruction_lifetime(r->plan, i)));
}

static struct op_call call_of(struct world *w, const struct rank *r, const struct instruction *i, const struct op *op) {
    struct op_call c = { .kernels = w->kernels,
                         .graph = w->graph,
                         .op = op,
                         .workspace = r->arena[FAMILY_WORKSPACE],
                         .training = true,
                         .step = &w->step,
                         .loss_scale = &w->scale };
    for (int k = 0; k < OP_INPUTS; k++)
        c.in[k] = tensor(r, i, op->in[k]);
    for (int k = 0; k < OP_OUTPUTS; k++)
        c.out[k] = tensor(r, i, op->out[k]);
    for (int k = 0; k < OP_PARAMETERS; k++)
        c.param[k] = op->use[k] >= 0 ? w->weights[w->graph->uses[op->use[k]].parameter] : NULL;
    return c;
}

static status_t run_backward(struct world *w, const struct rank *r, const struct instruction *i, struct err *e) {
    const struct reverse_op *reverse = &w->graph->reverse[i->op];
    struct op_call c = call_of(w, r, i, &w->graph->ops[reverse->op]);
    int uses[OP_PARAMETERS];
    bool first[OP_PARAMETERS] = { true };
    for (int k = 0; k < OP_INPUTS; k++) {
        c.d_in[k] = tensor(r, i, reverse->d_in[k]);
        c.accumulate[k] = reverse->accumulate[k];
    }
    for (int k = 0; k < OP_OUTPUTS; k++)
        c.d_out[k] = tensor(r, i, reverse->d_out[k]);
    for (int k = 0; k < OP_PARAMETERS; k++)
        if (c.op->use[k] >= 0)
            c.d_param[k] = at(r, plan_gradient_place(r->plan, i->buffer, r->plan->use_begin[c.op->use[k]]));
    (void)plan_written_uses(r->plan, i, uses, first);
    c.accumulate_param = !i->first || !first[0];
    if (i->kind == INSTRUCTION_BACKWARD_INPUT)
        return c.op->kind->reverse_is_view ? ST_OK : c.op->kind->backward_input(&c, e);
    if (r->plan->gradient_copy[i->op] >= 0)
        c.d_out[0] = tensor(r, i, r->plan->gradient_copy[i->op]);
    return c.op->kind->backward_weight(&c, e);
}

static void run_load(const struct world *w, const struct rank *r, const struct instruction *i) {
    for (int b = 0; b < w->graph->n_batch; b++) {
        const int t = w->graph->batch[b];
        float *to = plan_loads(r->plan, t) ? tensor(r, i, t) : NULL;
        for (int k = 0; to && k < B * WIDTH; k++)
            to[k] = (float)((i->micro_batch * 31 + b * 17 + k * 7) % 23) / 11 - 1;
    }
}

static status_t run(struct world *w, const struct rank *r, const struct instruction *i, struct err *e) {
    switch (i->kind) {
    case INSTRUCTION_LOAD: run_load(w, r, i); return ST_OK;
    case INSTRUCTION_FORWARD:
    case INSTRUCTION_RECOMPUTE: {
        const struct op_call c = call_of(w, r, i, &w->graph->ops[i->op]);
        return c.op->kind->forward(&c, e);
    }
    case INSTRUCTION_BACKWARD_INPUT:
    case INSTRUCTION_BACKWARD_WEIGHT: return run_backward(w, r, i, e);
    case INSTRUCTION_COPY_GRADIENT:
        memcpy(tensor(r, i, r->plan->gradient_copy[i->op]), tensor(r, i, w->graph->reverse[i->op].d_out[0]),
               plan_tensor_bytes(r->plan, r->plan->gradient_copy[i->op]));
        return ST_OK;
    default: return ST_OK; /* one data rank and one lane: there is nothing to add, and no step is taken */
    }
}

static bool is_posted(const struct rank *r, enum plan_queue q, int entry) {
    return r->plan->queue[q].items[entry].after <= r->at;
}

/* A SEND whose two halves are posted. */
static void run_transfers(struct world *w, int number) {
    struct rank *r = &w->ranks[number];
    for (enum plan_queue q = QUEUE_ACTIVATIONS; q < QUEUES; q++)
        for (int k = 0; k < r->plan->queue[q].n && is_posted(r, q, k); k++) {
            const struct instruction *i = &r->plan->queue[q].items[k];
            const struct transfer_peer to = w->matches[number].peer[q][k];
            struct rank *peer = &w->ranks[to.plan];
            if (r->done[q][k] || i->kind != INSTRUCTION_SEND || !is_posted(peer, q, to.entry))
                continue;
            memcpy(tensor(peer, &peer->plan->queue[q].items[to.entry], i->op), tensor(r, i, i->op),
                   plan_tensor_bytes(r->plan, i->op));
            r->done[q][k] = peer->done[q][to.entry] = true;
        }
}

static void run_all(struct world *w) {
    struct err e = { "" };
    for (bool moved = true; moved;) {
        moved = false;
        for (int n = 0; n < w->n; n++) {
            struct rank *r = &w->ranks[n];
            const struct instruction_list *list = &r->plan->queue[QUEUE_COMPUTE];
            run_transfers(w, n);
            for (; r->at < list->n; r->at++, moved = true) {
                const struct instruction *i = &list->items[r->at];
                if (i->kind == INSTRUCTION_WAIT && i->queue != QUEUE_DATA && !r->done[i->queue][i->entry])
                    break;
                if (run(w, r, i, &e) != ST_OK)
                    fail_msg("%s", e.msg);
                run_transfers(w, n);
            }
        }
    }
    for (int n = 0; n < w->n; n++)
        assert_int_equal(w->ranks[n].at, w->ranks[n].plan->queue[QUEUE_COMPUTE].n);
}

/* --- comparison ---*/

/* Runs a step of a layout and returns the gradients of all parameters, one after another. */
static float *gradients_of(struct plan_layout layout) {
    struct err e = { "" };
    struct world w = { .graph = make_graph(), .scale = 1 };
    const struct kernels_config config = { .device = "cpu", .threads = 1 };
    assert_int_equal(kernels_open(&config, &w.kernels, &e), ST_OK);
    layout.lanes = 1;
    layout.micro_batches = MICRO_BATCHES;
    layout.bucket_bytes = 1 << 20;
    layout.workspace_bytes = 1 << 16;
    struct plans p = plans_build(w.graph, layout);
    assert_accepted(&p);
    w.n = p.n;
    for (int n = 0; n < w.n; n++) {
        w.ranks[n].plan = p.of[n];
        for (int f = 0; f < FAMILIES; f++)
            w.ranks[n].arena[f] = aligned_alloc(64, plan_aligned(p.of[n]->family_bytes[f] + 1));
        for (enum plan_queue q = QUEUE_ACTIVATIONS; q < QUEUES; q++)
            w.ranks[n].done[q] = calloc((size_t)p.of[n]->queue[q].n + 1, sizeof(bool));
        assert_int_equal(transfer_match_init(&w.matches[n], p.of[n], 1, n, &e), ST_OK);
    }
    assert_int_equal(transfer_match_all(w.matches, w.n, &e), ST_OK);
    for (int i = 0; i < w.graph->n_parameters; i++) {
        w.weights[i] = calloc(WIDTH * WIDTH, sizeof(float));
        for (int k = 0; k < WIDTH * WIDTH; k++)
            w.weights[i][k] = (float)((i * 13 + k * 5) % 19) / 19 - 0.5f;
    }
    run_all(&w);
    float *ret = calloc((size_t)w.graph->n_uses, WIDTH * WIDTH * sizeof *ret);
    for (int s = 0; s < w.graph->n_uses; s++) {
        const struct rank *r = &w.ranks[p.of[0]->use_stage[s]];
        memcpy(ret + s * WIDTH * WIDTH, at(r, plan_gradient_place(r->plan, r->plan->result, r->plan->use_begin[s])),
               WIDTH * WIDTH * sizeof *ret);
    }
    for (int n = 0; n < w.n; n++) {
        for (int f = 0; f < FAMILIES; f++)
            free(w.ranks[n].arena[f]);
        for (enum plan_queue q = QUEUE_ACTIVATIONS; q < QUEUES; q++)
            free(w.ranks[n].done[q]);
        transfer_match_done(&w.matches[n]);
    }
    for (int i = 0; i < w.graph->n_parameters; i++)
        free(w.weights[i]);
    kernels_close(w.kernels);
    plans_free(&p);
    return ret;
}

static const struct plan_layout LAYOUTS[] = {
    { .stages = 2, .schedule = &schedule_gpipe },
    { .stages = 2, .schedule = &schedule_1f1b },
    { .stages = 3, .schedule = &schedule_gpipe },
    { .stages = 3, .schedule = &schedule_1f1b },
    { .stages = 3, .schedule = &schedule_1f1b, .recompute = RECOMPUTE_BLOCK },
    { .stages = 2, .virtual_stages = 2, .schedule = &schedule_interleaved },
    { .stages = 2, .virtual_stages = 3, .schedule = &schedule_interleaved, .recompute = RECOMPUTE_BLOCK },
    { .stages = 2, .schedule = &schedule_zero_bubble },
    { .stages = 3, .schedule = &schedule_zero_bubble, .recompute = RECOMPUTE_BLOCK },
    { .stages = 1, .recompute = RECOMPUTE_BLOCK },
};

static void skip_connections_cross_stages_with_the_bits_of_one_rank(void **state) {
    (void)state;
    CLEANUP(freep) float *want = gradients_of((struct plan_layout){ .stages = 1 });
    float size = 0;
    for (int k = 0; k < (BLOCKS + 1) * WIDTH * WIDTH; k++)
        size += want[k] * want[k];
    assert_true(size > 0);
    for (size_t l = 0; l < sizeof LAYOUTS / sizeof *LAYOUTS; l++) {
        CLEANUP(freep) float *have = gradients_of(LAYOUTS[l]);
        if (memcmp(have, want, (BLOCKS + 1) * WIDTH * WIDTH * sizeof *have) != 0)
            fail_msg("layout %zu has other gradients than one rank", l);
    }
}

/* Stage 1 of 3 passes on at least block 0's output, which it does not read, and its gradient back. */
static void a_stage_passes_on_what_only_later_stages_read(void **state) {
    (void)state;
    struct plans p = plans_build(
        make_graph(),
        (struct plan_layout){ .stages = 3, .lanes = 1, .micro_batches = MICRO_BATCHES, .bucket_bytes = 1 << 20 });
    const struct plan_virtual_stage *v = &p.of[1]->virtual_stages[0];
    assert_int_equal(v->n_blocks, 2);
    for (int way = 0; way < WAYS; way++) {
        int passed = 0;
        for (int i = 0; i < v->receive[way].n; i++)
            for (int k = 0; k < v->send[way].n; k++)
                passed += v->receive[way].tensor[i] == v->send[way].tensor[k];
        assert_true(passed > 0);
    }
    assert_accepted(&p);
    plans_free(&p);
}

/* Plans with data ranks, plans with sharded optimizers and plans for evaluation are verified too. */
static void skip_connections_are_planned_with_every_other_division(void **state) {
    (void)state;
    const struct plan_layout layouts[] = {
        { .data = 2, .stages = 3, .lanes = 2, .zero = 1 },
        { .data = 2, .stages = 2, .virtual_stages = 2, .lanes = 4, .schedule = &schedule_interleaved },
        { .data = 2, .lanes = 2, .zero = 3 },
        { .kind = PLAN_EVALUATE, .data = 2, .stages = 3, .lanes = 2 },
    };
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
        struct plan_layout layout = layouts[l];
        layout.micro_batches = 2 * MICRO_BATCHES;
        layout.bucket_bytes = 1 << 12;
        struct plans p = plans_build(make_graph(), layout);
        assert_accepted(&p);
        plans_free(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(skip_connections_cross_stages_with_the_bits_of_one_rank),
        cmocka_unit_test(a_stage_passes_on_what_only_later_stages_read),
        cmocka_unit_test(skip_connections_are_planned_with_every_other_division),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
