/* Every optimizer on given gradients against values recorded from PyTorch 2.13 (record_optimizers.py), for every
 * instruction set. No bit depends on the number of threads or on the cuts of the parameters. */
#include "base/cleanup.h"
#include "engine/optimizer/optimizer.h"
#include "tests/kernels/tensor.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PARAMETERS = 5, STEPS = 20, CASES = 8, MUON = 6 };

static const struct parameter SHAPES[PARAMETERS] = {
    { .name = "wide", .shape = { 2, { 24, 40 } }, .decay = true, .matrix = true },
    { .name = "tall", .shape = { 2, { 70, 16 } }, .decay = true, .matrix = true },
    { .name = "embedding", .shape = { 2, { 30, 12 } }, .decay = true },
    { .name = "bias", .shape = { 1, { 33 } } },
    { .name = "convolution", .shape = { 4, { 6, 5, 3, 3 } }, .decay = true },
};

/* The same, the first two packing three and two matrices. */
static const struct parameter PACKED[PARAMETERS] = {
    { .name = "three", .shape = { 2, { 24, 40 } }, .decay = true, .matrix = true, .packed = 3 },
    { .name = "two", .shape = { 2, { 70, 16 } }, .decay = true, .matrix = true, .input_first = true, .packed = 2 },
    { .name = "embedding", .shape = { 2, { 30, 12 } }, .decay = true },
    { .name = "bias", .shape = { 1, { 33 } } },
    { .name = "convolution", .shape = { 4, { 6, 5, 3, 3 } }, .decay = true },
};

struct trial_case {
    const char *name;
    struct optimizer_config config;
    double gradient_scale, clip_value, ema_decay;
    const struct parameter *shapes; /* [PARAMETERS] */
};

static const struct trial_case TRIALS[CASES] = {
    { "sgd", { &optimizer_sgd, .sgd = { .lr = 0.1, .momentum = 0.9, .weight_decay = 0.01 } }, 1, 0, 0, SHAPES },
    { "sgd nesterov",
      { &optimizer_sgd, .sgd = { .lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true } },
      1,
      0,
      0,
      SHAPES },
    { "adamw", { &optimizer_adamw, .adamw = { 1e-2, 0.9, 0.95, 1e-8, 0.1 } }, 1, 0, 0, SHAPES },
    { "adamw clipped, averaged",
      { &optimizer_adamw, .adamw = { 1e-2, 0.9, 0.99, 1e-8, 0.1 } },
      0.75,
      0.25,
      0.9,
      SHAPES },
    { "lion", { &optimizer_lion, .lion = { 1e-3, 0.9, 0.99, 1.0 } }, 1, 0, 0, SHAPES },
    { "adafactor", { &optimizer_adafactor, .adafactor = { 0.01, 0.8, 1e-30, 1e-3, 1, 0.1 } }, 1, 0, 0, SHAPES },
    { "muon",
      { &optimizer_muon, .muon = { .lr = 0.02,
                                   .momentum = 0.95,
                                   .weight_decay = 0.1,
                                   .iterations = 5,
                                   .nesterov = true,
                                   .adamw = { 3e-3, 0.9, 0.95, 1e-8, 0.1 } } },
      1,
      0,
      0,
      SHAPES },
    { "muon, packed",
      { &optimizer_muon, .muon = { .lr = 0.02,
                                   .momentum = 0.95,
                                   .weight_decay = 0.1,
                                   .iterations = 5,
                                   .nesterov = true,
                                   .adamw = { 3e-3, 0.9, 0.95, 1e-8, 0.1 } } },
      1,
      0,
      0,
      PACKED },
};

/* As number() in record_optimizers.py: computed in integers, exact in float. */
static void numbers(int parameter, int step, int64_t n, float *ret) {
    static const float part[] = { 1, 0.5f, 0.25f, 0.125f };
    for (int64_t i = 0; i < n; i++) {
        uint32_t h = (uint32_t)i * 2654435761u + (uint32_t)step * 40503u + (uint32_t)parameter * 97003u + 12345u;
        h ^= h >> 15;
        h *= 2246822519u;
        h ^= h >> 13;
        ret[i] = ((float)(h >> 8) / 8388608.0f - 1) * part[i % 4];
    }
}

static float *floats(int64_t n) {
    float *a = aligned_alloc(64, (size_t)(n * 4 + 64) / 64 * 64);
    assert_non_null(a);
    memset(a, 0, (size_t)n * sizeof *a);
    return a;
}

/* A parameter with all that a step reads and writes. */
struct stepped {
    const struct parameter *p;
    int64_t n;
    float *master, *gradient, *ema, *state[OPTIMIZER_STATES];
    uint16_t *weight; /* NULL in fp32 */
    void *workspace;
};

static struct stepped stepped_new(const struct trial_case *c, const struct kernels *k, int number) {
    const struct parameter *p = &c->shapes[number];
    struct stepped s = { .p = p, .n = shape_elements(&p->shape) };
    s.master = floats(s.n);
    numbers(number, 0, s.n, s.master);
    s.gradient = floats(s.n);
    for (int i = 0; i < c->config.kind->n_states; i++)
        s.state[i] = floats(optimizer_state_elements(c->config.kind, s.p, i));
    if (c->ema_decay > 0) {
        s.ema = floats(s.n);
        memcpy(s.ema, s.master, (size_t)s.n * sizeof(float));
    }
    if (k->precision != KERNELS_FP32)
        s.weight = (uint16_t *)floats(s.n);
    size_t bytes = optimizer_workspace(c->config.kind, k, s.p);
    s.workspace = floats((int64_t)bytes / 4 + 16);
    return s;
}

static void stepped_done(struct stepped *s) {
    void *owned[] = { s->master, s->gradient, s->ema, s->state[0], s->state[1], s->weight, s->workspace };
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
}

/* Elements [first, first + count). */
static struct optimizer_shard shard_of(const struct stepped *s, int64_t first, int64_t count) {
    struct optimizer_shard shard = { .parameter = s->p,
                                     .first = first,
                                     .count = count,
                                     .master = s->master + first,
                                     .weight = s->weight ? s->weight + first : NULL,
                                     .ema = s->ema ? s->ema + first : NULL,
                                     .gradient = s->gradient + first };
    for (int i = 0; i < OPTIMIZER_STATES; i++)
        shard.state[i] = s->state[i] ? s->state[i] + first : NULL;
    return shard;
}

static void step_shards(const struct trial_case *c, const struct kernels *k, const struct optimizer_shard *shards,
                        int n, void *workspace, int64_t updates) {
    double rates[OPTIMIZER_RATES];
    const struct update update = { .number = updates, .gradient_scale = (float)c->gradient_scale };
    optimizer_rates(&c->config, c->config.kind->rate(&c->config), rates);
    const struct optimizer_call call = { .kernels = k,
                                         .shards = shards,
                                         .n_shards = n,
                                         .clip_value = c->clip_value,
                                         .learning_rate = rates,
                                         .update = &update,
                                         .ema_decay = c->ema_decay,
                                         .workspace = workspace };
    struct err e = { "" };
    if (optimizer_step(&c->config, &call, &e) != ST_OK)
        fail_msg("%s: %s", c->name, e.msg);
}

static void step(const struct trial_case *c, const struct kernels *k, struct stepped *s, int64_t first, int64_t count,
                 int64_t updates) {
    const struct optimizer_shard shard = shard_of(s, first, count);
    step_shards(c, k, &shard, 1, s->workspace, updates);
}

/* All of them in one call, which takes the largest workspace. */
static void step_all(const struct trial_case *c, const struct kernels *k, const struct stepped *all, int64_t updates) {
    struct optimizer_shard shards[PARAMETERS];
    size_t most = 0;
    void *workspace = NULL;
    for (int p = 0; p < PARAMETERS; p++) {
        shards[p] = shard_of(&all[p], 0, all[p].n);
        const size_t bytes = optimizer_workspace(c->config.kind, k, all[p].p);
        if (!workspace || bytes > most)
            workspace = all[p].workspace;
        most = bytes > most ? bytes : most;
    }
    step_shards(c, k, shards, PARAMETERS, workspace, updates);
}

static void compare(const struct trial_case *c, const struct stepped *s, const float *have, const float *want,
                    const char *when) {
    for (int64_t i = 0; i < s->n; i++)
        if (!(fabs((double)have[i] - (double)want[i]) <= 2e-5 * (fabs((double)want[i]) + 0.05)))
            fail_msg("%s: element %lld of %s is %.9g %s, and PyTorch has %.9g", c->name, (long long)i, s->p->name,
                     (double)have[i], when, (double)want[i]);
}

/* The weight is the master rounded to the nearest bf16, ties to even. */
static void compare_weight(const struct trial_case *c, const struct stepped *s) {
    for (int64_t i = 0; i < s->n; i++) {
        uint32_t bits;
        memcpy(&bits, &s->master[i], sizeof bits);
        if (s->weight[i] != (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16))
            fail_msg("%s: element %lld of %s's weight is not its master rounded", c->name, (long long)i, s->p->name);
    }
}

static const float *read_record(FILE *f, int64_t n, float *to) {
    assert_int_equal(fread(to, sizeof *to, (size_t)n, f), n);
    return to;
}

static FILE *open_record(void) {
    const char *source = getenv("TRAINYARD_SOURCE");
    char path[512];
    snprintf(path, sizeof path, "%s/tests/engine/optimizers.f32", source ? source : ".");
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    return f;
}

static void run_case(const struct trial_case *c, const struct kernels *k, FILE *record) {
    struct stepped all[PARAMETERS];
    float want[2048];
    for (int p = 0; p < PARAMETERS; p++)
        all[p] = stepped_new(c, k, p);
    for (int t = 1; t <= STEPS; t++) {
        for (int p = 0; p < PARAMETERS; p++)
            numbers(p, t, all[p].n, all[p].gradient);
        step_all(c, k, all, t);
        for (int p = 0; p < PARAMETERS && (t == 1 || t == STEPS); p++) {
            compare(c, &all[p], all[p].master, read_record(record, all[p].n, want), t == 1 ? "at first" : "at last");
            if (all[p].weight)
                compare_weight(c, &all[p]);
        }
    }
    for (int p = 0; p < PARAMETERS; p++) {
        if (c->ema_decay > 0)
            compare(c, &all[p], all[p].ema, read_record(record, all[p].n, want), "on average");
        stepped_done(&all[p]);
    }
}

static void every_case_agrees(enum kernels_precision precision) {
    for (int i = 0; i < isa_count(); i++) {
        CLEANUP(kernels_closep) struct kernels *k = kernels_of_precision(isa_at(i), 2, precision);
        CLEANUP(fclosep) FILE *record = open_record();
        for (int c = 0; c < CASES; c++)
            run_case(&TRIALS[c], k, record);
        assert_int_equal(fgetc(record), EOF);
    }
}

static void twenty_updates_agree_with_pytorch(void **state) {
    (void)state;
    every_case_agrees(KERNELS_FP32);
}

static void masters_of_bf16_weights_agree_with_pytorch_and_weights_are_masters_rounded(void **state) {
    (void)state;
    every_case_agrees(KERNELS_BF16);
}

/* --- bits ---*/

/* Large enough that a team shares the work; two updates. Returns the parameter, which the caller frees. */
static struct stepped step_large(const struct trial_case *c, const struct parameter *p, enum kernels_isa isa,
                                 int threads, int64_t cut, enum kernels_precision precision) {
    CLEANUP(kernels_closep) struct kernels *k = kernels_of_precision(isa, threads, precision);
    struct stepped s = stepped_new(c, k, 0);
    stepped_done(&s);
    s = (struct stepped){ .p = p, .n = shape_elements(&p->shape) };
    s.master = floats(s.n);
    numbers(7, 0, s.n, s.master);
    s.gradient = floats(s.n);
    for (int i = 0; i < c->config.kind->n_states; i++)
        s.state[i] = floats(optimizer_state_elements(c->config.kind, p, i));
    if (precision != KERNELS_FP32)
        s.weight = (uint16_t *)floats(s.n);
    s.workspace = floats((int64_t)optimizer_workspace(c->config.kind, k, p) / 4 + 16);
    for (int t = 1; t <= 2; t++) {
        numbers(7, t, s.n, s.gradient);
        for (int64_t at = 0, n; at < s.n; at += n) {
            n = cut < s.n - at ? cut : s.n - at;
            step(c, k, &s, at, n, t);
        }
    }
    return s;
}

static void assert_same_bits(const struct trial_case *c, const struct stepped *a, const struct stepped *b,
                             const char *what) {
    if (memcmp(a->master, b->master, (size_t)a->n * sizeof(float)) != 0)
        fail_msg("%s: %s changed the bits of %s", c->name, what, a->p->name);
    for (int i = 0; i < c->config.kind->n_states; i++)
        if (memcmp(a->state[i], b->state[i],
                   (size_t)optimizer_state_elements(c->config.kind, a->p, i) * sizeof(float)) != 0)
            fail_msg("%s: %s changed the bits of a state of %s", c->name, what, a->p->name);
    if (a->weight && memcmp(a->weight, b->weight, (size_t)a->n * sizeof *a->weight) != 0)
        fail_msg("%s: %s changed the bits of the weight of %s", c->name, what, a->p->name);
}

static const struct parameter LARGE[] = {
    { .name = "a large wide matrix", .shape = { 2, { 150, 397 } }, .decay = true, .matrix = true },
    { .name = "a large tall matrix", .shape = { 2, { 613, 97 } }, .decay = true, .matrix = true },
    { .name = "a large packed matrix",
      .shape = { 2, { 200, 507 } },
      .decay = true,
      .matrix = true,
      .input_first = true,
      .packed = 3 },
    { .name = "a large vector", .shape = { 1, { 50021 } } },
};

static void no_bit_depends_on_the_number_of_threads(void **state) {
    (void)state;
    for (int i = 0; i < isa_count(); i++)
        for (int c = 0; c < CASES; c++)
            for (size_t p = 0; p < sizeof LARGE / sizeof *LARGE; p++) {
                struct stepped one = step_large(&TRIALS[c], &LARGE[p], isa_at(i), 1, INT64_MAX, KERNELS_BF16);
                for (int threads = 2; threads <= 4; threads++) {
                    struct stepped more = step_large(&TRIALS[c], &LARGE[p], isa_at(i), threads, INT64_MAX,
                                                     KERNELS_BF16);
                    assert_same_bits(&TRIALS[c], &one, &more, "the number of threads");
                    stepped_done(&more);
                }
                stepped_done(&one);
            }
}

static void no_bit_of_an_elementwise_kind_depends_on_where_a_parameter_is_cut(void **state) {
    (void)state;
    for (int i = 0; i < isa_count(); i++)
        for (int c = 0; c < CASES; c++) {
            if (TRIALS[c].config.kind->whole_tensor)
                continue;
            struct stepped whole = step_large(&TRIALS[c], &LARGE[0], isa_at(i), 2, INT64_MAX, KERNELS_FP32);
            for (int64_t cut = 1024; cut < whole.n; cut = cut * 3 + 7) {
                struct stepped shards = step_large(&TRIALS[c], &LARGE[0], isa_at(i), 2, cut, KERNELS_FP32);
                assert_same_bits(&TRIALS[c], &whole, &shards, "a cut");
                stepped_done(&shards);
            }
            stepped_done(&whole);
        }
}

static void no_bit_depends_on_what_is_stepped_in_the_same_call(void **state) {
    (void)state;
    for (int i = 0; i < isa_count(); i++) {
        CLEANUP(kernels_closep) struct kernels *k = kernels_of_precision(isa_at(i), 2, KERNELS_BF16);
        for (int c = 0; c < CASES; c++) {
            struct stepped alone[PARAMETERS], together[PARAMETERS];
            for (int p = 0; p < PARAMETERS; p++) {
                alone[p] = stepped_new(&TRIALS[c], k, p);
                together[p] = stepped_new(&TRIALS[c], k, p);
                numbers(p, 1, alone[p].n, alone[p].gradient);
                numbers(p, 1, together[p].n, together[p].gradient);
                step(&TRIALS[c], k, &alone[p], 0, alone[p].n, 1);
            }
            step_all(&TRIALS[c], k, together, 1);
            for (int p = 0; p < PARAMETERS; p++) {
                assert_same_bits(&TRIALS[c], &alone[p], &together[p], "company");
                if (alone[p].ema)
                    assert_memory_equal(alone[p].ema, together[p].ema, (size_t)alone[p].n * sizeof(float));
                stepped_done(&alone[p]);
                stepped_done(&together[p]);
            }
        }
    }
}

/* --- the properties of each kind --- */

static int64_t states(const struct optimizer_kind *kind, const struct parameter *p) {
    int64_t n = 0;
    for (int i = 0; i < kind->n_states; i++)
        n += optimizer_state_elements(kind, p, i);
    return n;
}

static void states_have_the_size_that_the_header_documents(void **state) {
    (void)state;
    const struct parameter *matrix = &SHAPES[0], *embedding = &SHAPES[2], *bias = &SHAPES[3], *conv = &SHAPES[4];
    assert_int_equal(states(&optimizer_sgd, matrix), 24 * 40);
    assert_int_equal(states(&optimizer_adamw, matrix), 2 * 24 * 40);
    assert_int_equal(states(&optimizer_lion, bias), 33);
    assert_int_equal(states(&optimizer_adafactor, matrix), 24 + 40);
    assert_int_equal(states(&optimizer_adafactor, conv), 6 + 5 * 3 * 3);
    assert_int_equal(states(&optimizer_adafactor, bias), 33);
    assert_int_equal(states(&optimizer_muon, matrix), 24 * 40);
    assert_int_equal(states(&optimizer_muon, embedding), 2 * 30 * 12);
    const struct parameter statistic = { .kind = PARAMETER_STATISTIC, .shape = { 1, { 8 } } };
    assert_int_equal(states(&optimizer_adamw, &statistic), 0);
    assert_int_equal(optimizer_state_shape(&optimizer_adafactor, conv, 1).n, 1);
    assert_int_equal(optimizer_state_shape(&optimizer_muon, embedding, 1).dim[1], 12);
}

static void an_impossible_setting_is_refused_by_its_field(void **state) {
    (void)state;
    const struct {
        struct optimizer_config config;
        const char *says;
    } table[] = {
        { { &optimizer_adamw, .adamw = { 1e-3, 1, 0.95, 1e-8, 0.1 } },
          "train.optimizer.adamw.beta1: 1 is not at least 0 and below 1" },
        { { &optimizer_adamw, .adamw = { NAN, 0.9, 0.95, 1e-8, 0.1 } },
          "train.optimizer.adamw.lr: nan is less than 0" },
        { { &optimizer_sgd, .sgd = { .lr = 1, .nesterov = true } },
          "train.optimizer.sgd.nesterov: needs a momentum above 0" },
        { { &optimizer_lion, .lion = { 1e-3, 0.9, -1, 1 } },
          "train.optimizer.lion.beta2: -1 is not at least 0 and below 1" },
        { { &optimizer_adafactor, .adafactor = { 0.01, 0.8, 1e-30, 1e-3, 0, 0 } },
          "train.optimizer.adafactor.clip_threshold: 0 is not above 0" },
        { { &optimizer_muon, .muon = { .lr = 0.1, .iterations = 0 } },
          "train.optimizer.muon.iterations: 0 is not at least 1" },
        { { &optimizer_muon, .muon = { .lr = 0.1, .iterations = 5, .adamw = { 1e-3, 0.9, 2, 1e-8, 0 } } },
          "train.optimizer.muon.adamw.beta2: 2 is not at least 0 and below 1" },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct err e = { "" };
        assert_int_equal(optimizer_check(&table[i].config, &e), ST_INVALID_ARGUMENT);
        assert_string_equal(e.msg, table[i].says);
    }
    struct err e = { "" };
    for (int c = 0; c < CASES; c++)
        assert_int_equal(optimizer_check(&TRIALS[c].config, &e), ST_OK);
}

/* Five iterations bring every singular value near 1: all eigenvalues of the Gram matrix of the step are. */
static void muon_steps_along_a_nearly_orthogonal_matrix(void **state) {
    (void)state;
    struct trial_case c = TRIALS[MUON];
    c.config.muon.weight_decay = 0;
    c.config.muon.lr = 1;
    CLEANUP(kernels_closep) struct kernels *k = kernels_of_precision(isa_at(isa_count() - 1), 2, KERNELS_FP32);
    struct stepped s = stepped_new(&c, k, 0);
    memset(s.master, 0, (size_t)s.n * sizeof(float));
    numbers(0, 1, s.n, s.gradient);
    step(&c, k, &s, 0, s.n, 1);
    for (int i = 0; i < 24; i++) { /* the length of a row is between the smallest and the largest singular value */
        double square = 0;
        for (int j = 0; j < 40; j++)
            square += (double)s.master[i * 40 + j] * (double)s.master[i * 40 + j];
        if (!(square > 0.3 && square < 1.5))
            fail_msg("row %d of the step has the length %g", i, sqrt(square));
    }
    stepped_done(&s);
}

/* "wide" has 24 outputs and 40 inputs; stored the other way it has 40 outputs, and a larger step. */
static void muon_steps_further_where_a_matrix_has_more_outputs_than_inputs(void **state) {
    (void)state;
    struct trial_case c = TRIALS[MUON];
    c.config.muon.weight_decay = 0;
    CLEANUP(kernels_closep) struct kernels *k = kernels_of_precision(isa_at(isa_count() - 1), 2, KERNELS_FP32);
    struct parameter input_first = SHAPES[0];
    input_first.input_first = true;
    struct stepped s[2];
    for (int i = 0; i < 2; i++) {
        s[i] = stepped_new(&c, k, 0);
        s[i].p = i ? &input_first : s[i].p;
        memset(s[i].master, 0, (size_t)s[i].n * sizeof(float));
        numbers(0, 1, s[i].n, s[i].gradient);
        step(&c, k, &s[i], 0, s[i].n, 1);
    }
    for (int64_t i = 0; i < s[0].n; i++) {
        const double want = sqrt(40.0 / 24) * (double)s[0].master[i];
        assert_true(fabs((double)s[1].master[i] - want) <= 1e-6 * fabs(want));
    }
    stepped_done(&s[0]);
    stepped_done(&s[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(twenty_updates_agree_with_pytorch),
        cmocka_unit_test(masters_of_bf16_weights_agree_with_pytorch_and_weights_are_masters_rounded),
        cmocka_unit_test(no_bit_depends_on_the_number_of_threads),
        cmocka_unit_test(no_bit_of_an_elementwise_kind_depends_on_where_a_parameter_is_cut),
        cmocka_unit_test(no_bit_depends_on_what_is_stepped_in_the_same_call),
        cmocka_unit_test(states_have_the_size_that_the_header_documents),
        cmocka_unit_test(an_impossible_setting_is_refused_by_its_field),
        cmocka_unit_test(muon_steps_along_a_nearly_orthogonal_matrix),
        cmocka_unit_test(muon_steps_further_where_a_matrix_has_more_outputs_than_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
