/* The verifier accepts the plans that plan_build makes for every kind of layout, and refuses every broken plan
 * (broken_plans.h) with its reason. Each break tests one check, on every layout that has the broken part. */
#include "tests/engine/broken_plans.h"

#include "engine/graph/op.h"
#include "engine/model/model.h"
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

/* The sentences that occurred: proves that each alternative is needed. */
static bool says_one_of(const char *message, const char *alternatives) {
    char copy[256];
    snprintf(copy, sizeof copy, "%s", alternatives);
    for (char *rest = copy, *one; (one = strsep(&rest, "|"));)
        if (strstr(message, one))
            return true;
    return false;
}

static const struct plan_break *break_named(const char *name) {
    for (int b = 0; b < N_BREAKS_OF_A_RANK; b++)
        if (strcmp(BREAKS_OF_A_RANK[b].name, name) == 0)
            return &BREAKS_OF_A_RANK[b];
    fail_msg("there is no break %s", name);
    return NULL;
}

static const struct setting *setting_named(const char *name) {
    for (int s = 0; s < N_SETTINGS; s++)
        if (strcmp(SETTINGS[s].name, name) == 0)
            return &SETTINGS[s];
    fail_msg("there is no setting %s", name);
    return NULL;
}

/* --- tests ---*/

static const struct model_config FAMILIES_OF_TEST[] = {
    { .kind = &model_gpt, .gpt = { .layers = 4, .heads = 2, .width = 16, .context = 8, .vocabulary = 65 } },
    { .kind = &model_llama,
      .llama = { .layers = 4,
                 .heads = 4,
                 .kv_heads = 2,
                 .width = 16,
                 .context = 8,
                 .vocabulary = 65,
                 .hidden = 64,
                 .rope_theta = 1e4,
                 .norm_eps = 1e-5 } },
    { .kind = &model_llama,
      .llama = { .layers = 4,
                 .heads = 2,
                 .width = 16,
                 .context = 8,
                 .vocabulary = 65,
                 .tied_embeddings = true,
                 .kv_heads = 2,
                 .hidden = 64,
                 .rope_theta = 1e4,
                 .norm_eps = 1e-5 } },
    { .kind = &model_mlp, .mlp = { .hidden = { 24, 24, 24, 24 }, .n_hidden = 4, .classes = 4, .dropout = 0.1 } },
    { .kind = &model_resnet, .resnet = { .layers = 18, .classes = 4, .width = 4 } },
    { .kind = &model_vit,
      .vit = { .layers = 4, .heads = 2, .width = 16, .patch = 4, .classes = 4, .dropout = 0.1, .hidden = 64 } },
    { .kind = &model_unrolled, .unrolled = { .iterations = 4, .channels = 4, .layers = 2 } },
};

/* A pipeline may have more stages than a family has blocks to cut at; nothing else may be refused. */
static void every_layout_of_every_family_is_accepted(void **state) {
    (void)state;
    for (size_t f = 0; f < sizeof FAMILIES_OF_TEST / sizeof *FAMILIES_OF_TEST; f++) {
        struct model_config config = FAMILIES_OF_TEST[f];
        struct model_data data = { .vocabulary = 65, .classes = 4, .channels = 1, .height = 16, .width = 16 };
        struct err e = { "" };
        if (config.kind == &model_unrolled)
            data.classes = 0; /* images without labels */
        if (model_resolve(&config, &data, &e) != ST_OK)
            fail_msg("%s: %s", config.kind->name, e.msg);
        for (int s = 0; s < N_SETTINGS; s++)
            for (int type = 0; type < 2; type++) {
                struct graph *graph = NULL;
                if (model_build(&config, &data, 2, type ? DTYPE_BF16 : DTYPE_F32, &graph, &e) != ST_OK)
                    fail_msg("%s: %s", config.kind->name, e.msg);
                struct gang g = make_gang_of(&SETTINGS[s], graph);
                if (verify_gang(&g, &e) != ST_OK)
                    fail_msg("%s, %s: %s", config.kind->name, g.name, e.msg);
                free_gang(&g);
            }
    }
}

static void every_layout_is_accepted(void **state) {
    (void)state;
    for (int s = 0; s < N_SETTINGS; s++) {
        struct gang g = make_gang(&SETTINGS[s]);
        struct err e = { "" };
        if (verify_gang(&g, &e) != ST_OK)
            fail_msg("%s: %s", g.name, e.msg);
        free_gang(&g);
    }
}

static void evaluation_of_every_layout_is_accepted(void **state) {
    (void)state;
    for (int s = 0; s < N_SETTINGS; s++) {
        struct setting evaluation = SETTINGS[s];
        evaluation.layout.kind = PLAN_EVALUATE;
        evaluation.layout.recompute = RECOMPUTE_NONE;
        struct gang g = make_gang(&evaluation);
        struct err e = { "" };
        if (verify_gang(&g, &e) != ST_OK)
            fail_msg("evaluation, %s: %s", g.name, e.msg);
        free_gang(&g);
    }
}

/* Returns how many layouts have the part that b breaks. Prints each layout that is not refused as expected. */
static int try_break(const struct plan_break *b, int *complaints) {
    int tried = 0;
    for (int s = 0; s < N_SETTINGS; s++) {
        struct gang g = make_gang(&SETTINGS[s]);
        struct err e = { "" };
        if (b->make(&g)) {
            tried++;
            bool accepted = verify_gang(&g, &e) == ST_OK;
            if (accepted || !says_one_of(e.msg, b->says)) {
                print_message("%s, %s: \"%s\" does not say \"%s\"\n", b->name, g.name, accepted ? "accepted" : e.msg,
                              b->says);
                ++*complaints;
            }
        }
        free_gang(&g);
    }
    return tried;
}

static void try_breaks(const struct plan_break *breaks, int n) {
    int complaints = 0;
    for (int b = 0; b < n; b++)
        if (!try_break(&breaks[b], &complaints))
            fail_msg("%s: no layout has what it breaks", breaks[b].name);
    assert_int_equal(complaints, 0);
}

static void every_rank_that_is_broken_is_refused_with_the_reason(void **state) {
    (void)state;
    try_breaks(BREAKS_OF_A_RANK, N_BREAKS_OF_A_RANK);
}

static void every_place_that_is_wrong_is_refused_with_the_reason(void **state) {
    (void)state;
    try_breaks(BREAKS_OF_PLACES, N_BREAKS_OF_PLACES);
}

static void every_transfer_that_is_broken_is_refused_with_the_reason(void **state) {
    (void)state;
    try_breaks(BREAKS_BETWEEN_RANKS, N_BREAKS_BETWEEN_RANKS);
}

/* Every instruction of a plan is needed: a plan without one of them is refused. Exceptions: a later WAIT may cover a
 * WAIT on the data queue, and empty ranges have no effect. */
static bool is_needed(const struct plan *p, const struct instruction *i) {
    bool ranged = i->kind == INSTRUCTION_NORM || i->kind == INSTRUCTION_STEP || i->kind == INSTRUCTION_ADD_USE ||
                  i->kind == INSTRUCTION_ADD || i->kind == INSTRUCTION_SWITCH_AVERAGES;
    if (i->kind == INSTRUCTION_NORM) {
        for (int64_t k = i->begin; k < i->end; k++)
            if (p->shards[k].norm >= 0)
                return true;
        return false;
    }
    return !(i->kind == INSTRUCTION_WAIT && i->queue == QUEUE_DATA) && !(ranged && i->begin >= i->end);
}

static void no_instruction_can_be_left_out(void **state) {
    (void)state;
    const char *given = getenv("TRAINYARD_SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
    print_message("TRAINYARD_SEED=%u\n", seed);
    srand(seed);
    for (int s = 0; s < N_SETTINGS; s++)
        for (int trial = 0; trial < 60; trial++) {
            struct gang g = make_gang(&SETTINGS[s]);
            struct plan *p = g.plans[rand() % g.n];
            struct instruction *i = &p->queue[QUEUE_COMPUTE].items[rand() % p->queue[QUEUE_COMPUTE].n];
            struct instruction gone = *i;
            if (is_needed(p, i)) {
                struct err e = { "" };
                int at = (int)(i - p->queue[QUEUE_COMPUTE].items);
                drop(p, i);
                if (verify_gang(&g, &e) == ST_OK)
                    fail_msg("%s: accepted without instruction %d of rank %d, %s of op %d", g.name, at, p->layout.rank,
                             instruction_name(gone.kind), gone.op);
            }
            free_gang(&g);
        }
}

static void no_entry_of_a_queue_can_be_left_out(void **state) {
    (void)state;
    for (int s = 0; s < N_SETTINGS; s++) {
        struct gang g = make_gang(&SETTINGS[s]);
        int n[QUEUES];
        for (enum plan_queue q = QUEUE_DATA; q < QUEUES; q++)
            n[q] = g.plans[g.n - 1]->queue[q].n;
        free_gang(&g);
        for (enum plan_queue q = QUEUE_DATA; q < QUEUES; q++)
            for (int i = 0; i < n[q]; i += 1 + n[q] / 6) {
                g = make_gang(&SETTINGS[s]);
                struct plan *p = g.plans[g.n - 1];
                struct err e = { "" };
                enum instruction_kind kind = p->queue[q].items[i].kind;
                drop_entry(p, q, i);
                if (verify_gang(&g, &e) == ST_OK)
                    fail_msg("%s: accepted without entry %d of queue %d, %s", g.name, i, q, instruction_name(kind));
                free_gang(&g);
            }
    }
}

/* --- plans of averages --- */

static struct gang make_averages(int s) {
    struct setting averages = SETTINGS[s];
    averages.layout.kind = PLAN_AVERAGE;
    averages.layout.ema = true;
    return make_gang(&averages);
}

/* Its places are the training plan's, so that it can change weights and averages of a training run, and it needs no
 * other memory. */
static void the_averages_of_every_layout_lie_where_training_has_them(void **state) {
    (void)state;
    for (int s = 0; s < N_SETTINGS; s++) {
        struct setting training = SETTINGS[s];
        training.layout.ema = true;
        struct gang g = make_averages(s), t = make_gang(&training);
        struct err e = { "" };
        if (verify_gang(&g, &e) != ST_OK)
            fail_msg("averages, %s: %s", g.name, e.msg);
        for (int r = 0; r < g.n; r++) {
            const struct plan *a = g.plans[r], *b = t.plans[r];
            for (enum plan_family f = 0; f < FAMILIES; f++) {
                const bool same = f == FAMILY_PARAMETERS || f == FAMILY_OPTIMIZER || f == FAMILY_WORKSPACE;
                assert_int_equal(a->family_bytes[f], same ? b->family_bytes[f] : 0);
            }
            assert_int_equal(a->n_shards, b->n_shards);
            for (int i = 0; i < a->n_shards; i++) {
                assert_int_equal(a->shards[i].ema, b->shards[i].ema);
                assert_int_equal(a->shards[i].master, b->shards[i].master);
                assert_int_equal(a->shards[i].weight, b->shards[i].weight);
            }
        }
        free_gang(&g);
        free_gang(&t);
    }
}

static void no_part_of_a_plan_of_averages_can_be_left_out(void **state) {
    (void)state;
    for (int s = 0; s < N_SETTINGS; s++) {
        struct gang g = make_averages(s);
        const int ranks = g.n, most = g.plans[0]->queue[QUEUE_COMPUTE].n + g.plans[ranks - 1]->queue[QUEUE_COMPUTE].n;
        free_gang(&g);
        for (int n = 0; n < ranks * most; n++) {
            g = make_averages(s);
            struct plan *p = g.plans[n % ranks];
            const int at = n / ranks;
            if (at < p->queue[QUEUE_COMPUTE].n && is_needed(p, &p->queue[QUEUE_COMPUTE].items[at])) {
                struct err e = { "" };
                drop(p, &p->queue[QUEUE_COMPUTE].items[at]);
                if (verify_gang(&g, &e) == ST_OK)
                    fail_msg("averages, %s: accepted without instruction %d of rank %d", g.name, at, p->layout.rank);
            }
            free_gang(&g);
        }
    }
}

static void a_plan_of_averages_that_is_broken_is_refused_with_the_reason(void **state) {
    (void)state;
    for (int s = 0; s < N_SETTINGS; s++)
        for (int broken = 0; broken < 4; broken++) {
            static const char *const says[] = { "change places twice", "do not change places",
                                                "the average of|has no place", "shards [" };
            struct gang g = make_averages(s);
            struct plan *p = g.plans[g.n - 1];
            struct instruction *i = find_range(p, INSTRUCTION_SWITCH_AVERAGES, 0);
            struct err e = { "" };
            if (i) {
                if (broken == 0)
                    insert(p, (int)(i - p->queue[QUEUE_COMPUTE].items) + 1, *i);
                else if (broken == 1)
                    i->end--;
                else if (broken == 2)
                    p->shards[i->begin].ema = SIZE_MAX;
                else
                    i->end = p->n_shards + 1;
                if (verify_gang(&g, &e) == ST_OK)
                    fail_msg("averages, %s: accepted with mistake %d", g.name, broken);
                const bool earlier = broken < 2 && strstr(e.msg, "gathered"); /* the verifier meets the gather first */
                if (!says_one_of(e.msg, says[broken]) && !earlier)
                    fail_msg("averages, %s, mistake %d: %s", g.name, broken, e.msg);
            }
            free_gang(&g);
        }
}

static void data_ranks_of_a_stage_are_translations(void **state) {
    (void)state;
    for (int s = 0; s < N_SETTINGS; s++) {
        struct gang g = make_gang(&SETTINGS[s]);
        int data = g.plans[0]->layout.data;
        struct err e = { "" };
        for (int r = 0; r < g.n; r++)
            if (plan_verify_translation(g.plans[r / data * data], g.plans[r], &e) != ST_OK)
                fail_msg("%s: %s", g.name, e.msg);
        if (data > 1) {
            find_compute(g.plans[1], INSTRUCTION_FORWARD, 1)->buffer ^= 1;
            assert_int_equal(plan_verify_translation(g.plans[0], g.plans[1], &e), ST_FAILED_PRECONDITION);
            assert_non_null(strstr(e.msg, "is not that of rank 0, moved along"));
            g.plans[1]->queue[QUEUE_COMPUTE].n--;
            assert_int_equal(plan_verify_translation(g.plans[0], g.plans[1], &e), ST_FAILED_PRECONDITION);
            assert_non_null(strstr(e.msg, "entries here and"));
            g.plans[1]->queue[QUEUE_COMPUTE].n++;
        }
        free_gang(&g);
    }
}

static void one_column_can_be_verified_alone(void **state) {
    (void)state;
    for (int s = 0; s < N_SETTINGS; s++) {
        struct gang g = make_gang(&SETTINGS[s]);
        const struct plan *column[RANKS_MOST];
        int data = g.plans[0]->layout.data, stages = g.n / data;
        struct err e = { "" };
        for (int d = 0; d < data; d++) {
            for (int k = 0; k < stages; k++)
                column[k] = g.plans[k * data + d];
            if (plan_verify(column, stages, &e) != ST_OK)
                fail_msg("%s, column %d: %s", g.name, d, e.msg);
        }
        if (data > 1 && stages > 1) {
            assert_int_equal(plan_verify((const struct plan *const *)g.plans, stages + 1, &e), ST_FAILED_PRECONDITION);
            assert_non_null(strstr(e.msg, "are not whole columns"));
        }
        assert_int_equal(plan_verify(column, 0, &e), ST_FAILED_PRECONDITION);
        assert_string_equal(e.msg, "there are no plans");
        free_gang(&g);
    }
}

/* An error that neither order nor bytes show: two ranks step the same element. */
static void a_weight_is_stepped_by_one_rank(void **state) {
    (void)state;
    struct gang g = make_gang(setting_named("zero 1"));
    const struct plan *twice[] = { g.plans[0], g.plans[1], g.plans[1], g.plans[3] };
    struct err e = { "" };
    assert_int_equal(plan_verify(twice, 4, &e), ST_FAILED_PRECONDITION);
    assert_non_null(strstr(e.msg, "is out of order"));
    free_gang(&g);
}

static void evaluation_computes_every_micro_batch_once_by_its_owner(void **state) {
    (void)state;
    struct setting s = { "evaluation",
                         { .kind = PLAN_EVALUATE,
                           .data = 2,
                           .lanes = 2,
                           .micro_batches = 4,
                           .bucket_bytes = 8192,
                           .workspace_bytes = 100 } };
    struct gang g = make_gang(&s);
    struct err e = { "" };
    assert_true(break_named("another_ranks_micro_batch")->make(&g));
    assert_int_equal(verify_gang(&g, &e), ST_FAILED_PRECONDITION);
    assert_non_null(strstr(e.msg, "is not number"));
    free_gang(&g);
    g = make_gang(&s);
    assert_true(break_named("loss_twice")->make(&g));
    assert_int_equal(verify_gang(&g, &e), ST_FAILED_PRECONDITION);
    free_gang(&g);
    g = make_gang(&s);
    struct plan *p = g.plans[1];
    while (find_compute(p, INSTRUCTION_FORWARD, 0) && find_compute(p, INSTRUCTION_FORWARD, 0)->in_flight == 0)
        drop(p, find_compute(p, INSTRUCTION_FORWARD, 0));
    assert_int_equal(verify_gang(&g, &e), ST_FAILED_PRECONDITION);
    free_gang(&g);
    /* As many losses as there should be, but the first one twice. */
    g = make_gang(&s);
    assert_true(break_named("loss_twice")->make(&g));
    p = g.plans[g.n - 1];
    struct instruction *last = NULL;
    for (int n = 0; find_compute(p, INSTRUCTION_FORWARD, n); n++)
        if (g.graph->ops[find_compute(p, INSTRUCTION_FORWARD, n)->op].out[0] == g.graph->losses)
            last = find_compute(p, INSTRUCTION_FORWARD, n);
    drop(p, last);
    assert_int_equal(verify_gang(&g, &e), ST_FAILED_PRECONDITION);
    assert_non_null(strstr(e.msg, "is not computed once, by its owner"));
    free_gang(&g);
}

static void evaluation_drops_what_it_gathered(void **state) {
    (void)state;
    struct setting s = *setting_named("zero 3");
    s.layout.kind = PLAN_EVALUATE;
    struct gang g = make_gang(&s);
    struct plan *p = g.plans[0];
    struct instruction *last = NULL;
    struct err e = { "" };
    for (int n = 0; find_compute(p, INSTRUCTION_DROP, n); n++)
        last = find_compute(p, INSTRUCTION_DROP, n);
    drop(p, last);
    assert_int_equal(verify_gang(&g, &e), ST_FAILED_PRECONDITION);
    assert_non_null(strstr(e.msg, "is never dropped"));
    free_gang(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_is_accepted),
        cmocka_unit_test(every_layout_of_every_family_is_accepted),
        cmocka_unit_test(evaluation_of_every_layout_is_accepted),
        cmocka_unit_test(every_rank_that_is_broken_is_refused_with_the_reason),
        cmocka_unit_test(every_place_that_is_wrong_is_refused_with_the_reason),
        cmocka_unit_test(every_transfer_that_is_broken_is_refused_with_the_reason),
        cmocka_unit_test(no_instruction_can_be_left_out),
        cmocka_unit_test(no_entry_of_a_queue_can_be_left_out),
        cmocka_unit_test(the_averages_of_every_layout_lie_where_training_has_them),
        cmocka_unit_test(no_part_of_a_plan_of_averages_can_be_left_out),
        cmocka_unit_test(a_plan_of_averages_that_is_broken_is_refused_with_the_reason),
        cmocka_unit_test(data_ranks_of_a_stage_are_translations),
        cmocka_unit_test(one_column_can_be_verified_alone),
        cmocka_unit_test(a_weight_is_stepped_by_one_rank),
        cmocka_unit_test(evaluation_drops_what_it_gathered),
        cmocka_unit_test(evaluation_computes_every_micro_batch_once_by_its_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
