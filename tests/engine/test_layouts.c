/* The same spec gives the same bits in every layout. Every step has the same loss and norm, every second step the same
 * SHA-256 of the weights, and any layout resumes from a checkpoint of any other.
 *
 * The axes are data 1, 2, 4; ZeRO 0 to 3; pipeline 1, 2, 4 with each schedule; recompute; threads. Each axis is tested
 * completely. Pairs of values come from a covering array that is drawn from a printed seed, and each run tests a few of
 * them. LAYOUTS=full tests all of them over 20 steps, and TRAINYARD_SEED repeats a run. A build with a sanitizer tests
 * half as many, all drawn. */
#include "tests/engine/trainee.h"
#include "tests/sanitized.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum axis { DATA, ZERO, PIPELINE, SCHEDULE, RECOMPUTE, THREADS, AXES };
enum { VALUES_MOST = 4, LAYOUTS_MOST = 256, PAIRS_IN_SHORT = 6 };

static const int VALUES[AXES][VALUES_MOST] = {
    [DATA] = { 1, 2, 4 },
    [ZERO] = { 0, 1, 2, 3 },
    [PIPELINE] = { 1, 2, 4 },
    [SCHEDULE] = { 0, 1, 2, 3 }, /* of schedule_kinds */
    [RECOMPUTE] = { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_BLOCK },
    [THREADS] = { 1, 2, 4 },
};
static const int N_VALUES[AXES] = { 3, 4, 3, 4, 3, 3 };

struct layout {
    int number[AXES]; /* of the value */
};

static int value(const struct layout *l, enum axis a) { return VALUES[a][l->number[a]]; }

static const struct schedule_kind *schedule(const struct layout *l) { return schedule_kinds[value(l, SCHEDULE)]; }

static bool is_full(void) {
    const char *mode = getenv("LAYOUTS");
    return mode && strcmp(mode, "full") == 0;
}

static uint32_t seed_of_run(void) {
    const char *given = getenv("TRAINYARD_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return given ? (uint32_t)strtoul(given, NULL, 0) : (uint32_t)now.tv_nsec;
}

static uint32_t draw(uint32_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    return *state ^= *state << 5;
}

/* False for layouts that the engine refuses, that need more ranks than a gang has here, or that have unused values. */
static bool is_valid(const struct layout *l) {
    int D = value(l, DATA), P = value(l, PIPELINE), Z = value(l, ZERO);
    return D * P <= GANG_RANKS && !(Z > 1 && P > 1) && !(Z > 0 && D == 1) && !(P == 1 && schedule(l) != &schedule_1f1b);
}

static void describe(const struct layout *l, char *ret, size_t n) {
    snprintf(ret, n, "data-%d-zero-%d-pipeline-%d-%s-recompute-%s-threads-%d", value(l, DATA), value(l, ZERO),
             value(l, PIPELINE), schedule(l)->name, PLAN_RECOMPUTE_WORDS[value(l, RECOMPUTE)], value(l, THREADS));
}

/* --- which layouts ---*/

struct layouts {
    struct layout items[LAYOUTS_MOST];
    int n;
};

static void add(struct layouts *all, const struct layout *l) {
    for (int i = 0; i < all->n; i++)
        if (memcmp(&all->items[i], l, sizeof *l) == 0)
            return;
    if (is_valid(l) && all->n < LAYOUTS_MOST)
        all->items[all->n++] = *l;
}

/* Each value of each axis, with the others at their first value, or at the smallest with which it has an effect. */
static void add_single_axes(struct layouts *all) {
    for (int a = 0; a < AXES; a++)
        for (int v = 0; v < N_VALUES[a]; v++) {
            struct layout l = { { 0 } };
            l.number[a] = v;
            if (a == ZERO && v > 0)
                l.number[DATA] = v == 2 ? 2 : 1;
            add(all, &l);
            for (int p = 1; a == SCHEDULE && p < N_VALUES[PIPELINE]; p++) {
                l.number[PIPELINE] = p;
                add(all, &l);
            }
        }
}

typedef bool covered_t[AXES][VALUES_MOST][AXES][VALUES_MOST];

/* Returns how many pairs a layout would add; marks them if requested. */
static int new_pairs(covered_t covered, const struct layout *l, bool mark) {
    int n = 0;
    for (int a = 0; a < AXES; a++)
        for (int b = a + 1; b < AXES; b++) {
            bool *c = &covered[a][l->number[a]][b][l->number[b]];
            n += !*c;
            *c |= mark;
        }
    return n;
}

static struct layout draw_layout(uint32_t *state) {
    struct layout l;
    do
        for (int a = 0; a < AXES; a++)
            l.number[a] = (int)(draw(state) % (uint32_t)N_VALUES[a]);
    while (!is_valid(&l));
    return l;
}

/* Greedy: of each 50 drawn layouts takes the one that covers most pairs, until 500 in a row add nothing. */
static void add_pairs(struct layouts *all, uint32_t *state) {
    covered_t covered = { 0 };
    for (int idle = 0; idle < 10;) {
        struct layout best = draw_layout(state);
        for (int i = 0; i < 49; i++) {
            struct layout l = draw_layout(state);
            if (new_pairs(covered, &l, false) > new_pairs(covered, &best, false))
                best = l;
        }
        idle = new_pairs(covered, &best, true) ? 0 : idle + 1;
        if (!idle)
            add(all, &best);
    }
}

/* --- the models ---*/

static void as_gpt(struct trainee *t) {
    t->config.model.gpt = (struct gpt_shape){ .layers = 6, .heads = 2, .width = 32, .context = 16, .dropout = 0.1 };
}
static void as_llama(struct trainee *t) {
    t->config.model = (struct model_config){ .kind = &model_llama,
                                             .llama = { .layers = 6,
                                                        .heads = 4,
                                                        .kv_heads = 2,
                                                        .width = 32,
                                                        .context = 16,
                                                        .tied_embeddings = true,
                                                        .hidden = 96,
                                                        .rope_theta = 1e4,
                                                        .norm_eps = 1e-5 } };
}
static void as_mlp(struct trainee *t) {
    t->config.model = (struct model_config){
        .kind = &model_mlp, .mlp = { .n_hidden = 7, .hidden = { 48, 40, 40, 40, 40, 40, 32 }, .dropout = 0.1 }
    };
    trainee_images(t);
}
static void as_resnet(struct trainee *t) {
    t->config.model = (struct model_config){ .kind = &model_resnet, .resnet = { .layers = 18, .width = 16 } };
    t->config.train.ema.decay = 0.9; /* statistics have none */
    trainee_images(t);
}
static void as_vit(struct trainee *t) {
    t->config.model = (struct model_config){
        .kind = &model_vit, .vit = { .layers = 6, .heads = 2, .width = 32, .patch = 4, .dropout = 0.1, .hidden = 128 }
    };
    trainee_images(t);
}

static void as_vit_with_mixup(struct trainee *t) {
    as_vit(t);
    t->config.data.idx.augment.mixup = 0.4;
}

/* Eight iterations, of which the first has nothing to train before it; the recorded images, seen through masks. */
static void as_unrolled(struct trainee *t) {
    static char folder[512];
    snprintf(folder, sizeof folder, "%s/tests/engine/images",
             getenv("TRAINYARD_SOURCE") ? getenv("TRAINYARD_SOURCE") : ".");
    t->config.model = (struct model_config){ .kind = &model_unrolled,
                                             .unrolled = { .iterations = 8, .channels = 6, .layers = 3 } };
    t->config.data = (struct data_config){ .kind = &data_reconstruction,
                                           .reconstruction = { .train = folder,
                                                               .validation = folder,
                                                               .size = 16,
                                                               .sampled_fraction = 0.4,
                                                               .center_fraction = 0.1,
                                                               .noise = 0.01 } };
}

/* --- one run ---*/

struct expected {
    char sha256[TRAINEE_STEPS][ENGINE_SHA256_HEX];
    double loss[TRAINEE_STEPS], grad_norm[TRAINEE_STEPS], validation_loss;
};

static void apply(struct trainee *t, const struct layout *l) {
    struct engine_layout *e = &t->config.layout;
    *e = (struct engine_layout){ .data = value(l, DATA),
                                 .pipeline = value(l, PIPELINE),
                                 .zero = value(l, ZERO),
                                 .schedule = schedule(l),
                                 .virtual_stages = schedule(l) == &schedule_interleaved ? 2 : 1 };
    t->config.train.recompute = (enum plan_recompute)value(l, RECOMPUTE);
    t->ranks = e->data * e->pipeline;
    t->threads = value(l, THREADS);
}

static void run(struct trainee *t, const struct layout *l, const char *from) {
    char name[160], said[128];
    apply(t, l);
    describe(l, said, sizeof said);
    snprintf(name, sizeof name, "%s%s", *from ? "resumed-" : "", said);
    trainee_fresh_directory(t, name);
    snprintf(t->resume, sizeof t->resume, "%s", from);
    if (trainee_run(t) != 0)
        fail_msg("%s: a rank died", said);
    for (int r = 0; r < t->ranks; r++)
        if (t->results[r].status != ST_OK || t->results[r].outcome != ENGINE_FINISHED)
            fail_msg("%s: rank %d of %d: %s", said, r, t->ranks, t->results[r].message);
}

static void keep(const struct trainee *t, struct expected *ret) {
    const struct trainee_result *r = &t->results[0];
    memcpy(ret->sha256, r->step_sha256, sizeof ret->sha256);
    memcpy(ret->loss, r->loss, sizeof ret->loss);
    memcpy(ret->grad_norm, r->grad_norm, sizeof ret->grad_norm);
    ret->validation_loss = r->validation_loss;
}

static void compare(const struct trainee *t, const struct layout *l, const struct expected *want) {
    const struct trainee_result *r = &t->results[0];
    char said[128];
    describe(l, said, sizeof said);
    for (int64_t s = r->from_step + 1; s <= t->config.train.steps; s++) {
        if (memcmp(&r->loss[s], &want->loss[s], sizeof(double)) != 0)
            fail_msg("%s: the loss of step %lld is %.17g, not %.17g", said, (long long)s, r->loss[s], want->loss[s]);
        if (memcmp(&r->grad_norm[s], &want->grad_norm[s], sizeof(double)) != 0)
            fail_msg("%s: the norm of step %lld is %.17g, not %.17g", said, (long long)s, r->grad_norm[s],
                     want->grad_norm[s]);
        if (s % 2 == 0 && (!want->sha256[s][0] || strcmp(r->step_sha256[s], want->sha256[s]) != 0))
            fail_msg("%s: the weights of step %lld are %.12s, not %.12s", said, (long long)s, r->step_sha256[s],
                     want->sha256[s]);
    }
    if (memcmp(&r->validation_loss, &want->validation_loss, sizeof(double)) != 0)
        fail_msg("%s: the validation loss is %.17g, not %.17g", said, r->validation_loss, want->validation_loss);
}

/* --- the claim ---*/

static const struct layout ONE_RANK = { { 0 } };

static struct trainee *new_trainee(void (*model)(struct trainee *t), enum plan_reduce reduce,
                                   enum engine_precision precision) {
    struct trainee *t = trainee_new();
    model(t);
    t->every_other = true;
    t->config.train.reduce = reduce;
    t->config.train.precision = precision;
    t->config.train.steps = is_full() ? 20 : 4;
    return t;
}

/* The layouts in a drawn order: each trains from the start, then resumes from the checkpoint that the previous one
 * wrote in the middle. */
static void assert_same_bits(struct trainee *t, const struct layouts *all, uint32_t *state) {
    struct expected want;
    char middle[300];
    run(t, &ONE_RANK, "");
    keep(t, &want);
    for (int i = 0; i < all->n; i++) {
        snprintf(middle, sizeof middle, "%.200s/step-%lld", t->directory, (long long)t->config.train.steps / 4 * 2);
        run(t, &all->items[i], "");
        compare(t, &all->items[i], &want);
        if (!is_full() && draw(state) % 3 != 0)
            continue;
        char mine[256];
        snprintf(mine, sizeof mine, "%s", t->directory);
        run(t, &all->items[i], middle);
        assert_int_equal(t->results[0].from_step, t->config.train.steps / 4 * 2);
        compare(t, &all->items[i], &want);
        snprintf(t->directory, sizeof t->directory, "%s", mine);
    }
}

/* All layouts for gpt; a drawn few for the other families and for bf16. */
static void same_bits(void (*model)(struct trainee *t), enum plan_reduce reduce, enum engine_precision precision,
                      int few) {
    uint32_t seed = seed_of_run(), state = seed ? seed : 1;
    struct layouts singles = { .n = 0 }, pairs = { .n = 0 }, chosen = { .n = 0 };
    printf("# TRAINYARD_SEED=%u\n", seed);
    add_single_axes(&singles);
    add_pairs(&pairs, &state);
    if (SANITIZED && !is_full())
        few = few == 0 ? 6 : (few + 2) / 3;
    if (is_full() || few == 0) {
        for (int i = 0; i < singles.n; i++)
            add(&chosen, &singles.items[i]);
        for (int i = 0; i < (is_full() ? pairs.n : PAIRS_IN_SHORT); i++)
            add(&chosen, &pairs.items[is_full() ? i : (int)(draw(&state) % (uint32_t)pairs.n)]);
    }
    while (chosen.n < few) {
        const struct layouts *from = draw(&state) % 2 ? &singles : &pairs;
        add(&chosen, &from->items[draw(&state) % (uint32_t)from->n]);
    }
    for (int i = chosen.n - 1; i > 0; i--) {
        int j = (int)(draw(&state) % (uint32_t)(i + 1));
        struct layout l = chosen.items[i];
        chosen.items[i] = chosen.items[j];
        chosen.items[j] = l;
    }
    struct trainee *t = new_trainee(model, reduce, precision);
    assert_same_bits(t, &chosen, &state);
    printf("# %d layouts of %d single axes and %d pairs\n", chosen.n, singles.n, pairs.n);
    trainee_free(t);
}

static void a_gpt_has_the_same_bits_in_every_layout_with_reduce_micro_batch(void **state) {
    (void)state;
    same_bits(as_gpt, PLAN_REDUCE_MICRO_BATCH, ENGINE_FP32, 0);
}

static void a_gpt_has_the_same_bits_in_every_layout_with_reduce_step(void **state) {
    (void)state;
    same_bits(as_gpt, PLAN_REDUCE_STEP, ENGINE_FP32, 6);
}

static void a_gpt_in_bf16_has_the_same_bits_in_every_layout(void **state) {
    (void)state;
    same_bits(as_gpt, PLAN_REDUCE_MICRO_BATCH, ENGINE_BF16, 6);
}

static void a_llama_has_the_same_bits_in_every_layout(void **state) {
    (void)state;
    same_bits(as_llama, PLAN_REDUCE_MICRO_BATCH, ENGINE_FP32, 6);
}

static void an_mlp_has_the_same_bits_in_every_layout(void **state) {
    (void)state;
    same_bits(as_mlp, PLAN_REDUCE_MICRO_BATCH, ENGINE_FP32, 5);
}

static void a_resnet_has_the_same_bits_in_every_layout(void **state) {
    (void)state;
    same_bits(as_resnet, PLAN_REDUCE_MICRO_BATCH, ENGINE_FP32, 5);
}

static void a_vit_has_the_same_bits_in_every_layout(void **state) {
    (void)state;
    same_bits(as_vit, PLAN_REDUCE_STEP, ENGINE_FP32, 4);
}

static void a_vit_with_mixup_has_the_same_bits_in_every_layout(void **state) {
    (void)state;
    same_bits(as_vit_with_mixup, PLAN_REDUCE_STEP, ENGINE_FP32, 9);
    same_bits(as_vit_with_mixup, PLAN_REDUCE_STEP, ENGINE_BF16, 3);
}

static void a_resnet_in_bf16_has_the_same_bits_in_every_layout(void **state) {
    (void)state;
    same_bits(as_resnet, PLAN_REDUCE_STEP, ENGINE_BF16, 3);
}

static void an_unrolled_reconstruction_has_the_same_bits_in_every_layout(void **state) {
    (void)state;
    same_bits(as_unrolled, PLAN_REDUCE_MICRO_BATCH, ENGINE_FP32, 4);
}

/* The other reduce of each: in full only. */
static void a_llama_has_the_same_bits_in_every_layout_with_reduce_step(void **state) {
    (void)state;
    same_bits(as_llama, PLAN_REDUCE_STEP, ENGINE_FP32, 0);
}

static void an_mlp_has_the_same_bits_in_every_layout_with_reduce_step(void **state) {
    (void)state;
    same_bits(as_mlp, PLAN_REDUCE_STEP, ENGINE_FP32, 0);
}

static void a_resnet_has_the_same_bits_in_every_layout_with_reduce_step(void **state) {
    (void)state;
    same_bits(as_resnet, PLAN_REDUCE_STEP, ENGINE_FP32, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpt_has_the_same_bits_in_every_layout_with_reduce_micro_batch),
        cmocka_unit_test(a_gpt_has_the_same_bits_in_every_layout_with_reduce_step),
        cmocka_unit_test(a_gpt_in_bf16_has_the_same_bits_in_every_layout),
        cmocka_unit_test(a_llama_has_the_same_bits_in_every_layout),
        cmocka_unit_test(an_mlp_has_the_same_bits_in_every_layout),
        cmocka_unit_test(a_resnet_has_the_same_bits_in_every_layout),
        cmocka_unit_test(a_vit_has_the_same_bits_in_every_layout),
        cmocka_unit_test(a_vit_with_mixup_has_the_same_bits_in_every_layout),
        cmocka_unit_test(a_resnet_in_bf16_has_the_same_bits_in_every_layout),
        cmocka_unit_test(an_unrolled_reconstruction_has_the_same_bits_in_every_layout),
    };
    const struct CMUnitTest more[] = {
        cmocka_unit_test(a_llama_has_the_same_bits_in_every_layout_with_reduce_step),
        cmocka_unit_test(an_mlp_has_the_same_bits_in_every_layout_with_reduce_step),
        cmocka_unit_test(a_resnet_has_the_same_bits_in_every_layout_with_reduce_step),
    };
    if (getenv("LAYOUTS_TEST"))
        cmocka_set_test_filter(getenv("LAYOUTS_TEST"));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return is_full() ? failed + cmocka_run_group_tests(more, NULL, NULL) : failed;
}
