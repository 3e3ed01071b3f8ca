/* Element-wise kernels, the optimizers, and the norms and flags of all gradients: CUDA's kernels on the CPU, against
 * the plain ones. */
#include "tests/kernels/cuda/pair.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { MANY_ELEMENTS = 9000 }; /* more than a block handles at once, for every grid */

static void gelu_case(struct pair *p) {
    const int64_t n = pair_between(p, 1, MANY_ELEMENTS);
    struct twin *x = pair_elements(p, n, 6), *y = pair_empty(p, n), *dy = pair_elements(p, n, 1);
    struct twin *dx = pair_in_place(p, dy);
    ON_ALL(p, k->gelu_forward(k, y->at[s], x->at[s], n, e));
    ON_ALL(p, k->gelu_backward(k, dx->at[s], dy->at[s], x->at[s], n, e));
    pair_close(p, "y", y, 1);
    pair_close(p, "dx", dx, 1);
}

static void gelu_erf_case(struct pair *p) {
    const int64_t n = pair_between(p, 1, MANY_ELEMENTS);
    struct twin *x = pair_elements(p, n, 6), *y = pair_empty(p, n), *dy = pair_elements(p, n, 1);
    struct twin *dx = pair_in_place(p, dy);
    ON_ALL(p, k->gelu_erf_forward(k, y->at[s], x->at[s], n, e));
    ON_ALL(p, k->gelu_erf_backward(k, dx->at[s], dy->at[s], x->at[s], n, e));
    pair_close(p, "y", y, 1);
    pair_close(p, "dx", dx, 1);
}

static void relu_case(struct pair *p) {
    const int64_t n = pair_between(p, 1, MANY_ELEMENTS);
    struct twin *x = pair_elements(p, n, 1), *y = pair_in_place(p, x), *dy = pair_elements(p, n, 1);
    struct twin *dx = pair_in_place(p, dy);
    ON_ALL(p, k->relu_forward(k, y->at[s], x->at[s], n, e));
    ON_ALL(p, k->relu_backward(k, dx->at[s], dy->at[s], y->at[s], n, e));
    pair_same(p, "y", y);
    pair_same(p, "dx", dx);
}

static void swiglu_case(struct pair *p) {
    const int64_t rows = pair_between(p, 1, 20), width = pair_between(p, 1, 70) * (pair_either(p) ? 8 : 1);
    struct twin *gate_up = pair_elements(p, 2 * rows * width, 4), *y = pair_empty(p, rows * width);
    struct twin *dy = pair_elements(p, rows * width, 1), *d_gate_up = pair_in_place(p, gate_up);
    ON_ALL(p, k->swiglu_forward(k, y->at[s], gate_up->at[s], rows, width, e));
    ON_ALL(p, k->swiglu_backward(k, d_gate_up->at[s], dy->at[s], gate_up->at[s], rows, width, e));
    pair_close(p, "y", y, 1);
    pair_close(p, "d_gate_up", d_gate_up, 1);
}

static void add_case(struct pair *p) {
    const int64_t n = pair_between(p, 1, MANY_ELEMENTS);
    struct twin *a = pair_elements(p, n, 2), *b = pair_elements(p, n, 2), *y = pair_in_place(p, b);
    struct twin *sum = pair_floats(p, n, 1), *more = pair_floats(p, n, 1), *all = pair_empty_floats(p, n);
    ON_ALL(p, k->add(k, y->at[s], a->at[s], b->at[s], n, e));
    ON_ALL(p, k->accumulate(k, sum->at[s], more->at[s], n, e));
    ON_ALL(p, k->fill(k, all->at[s], 0.37f, n, e));
    ON_ALL(p, k->exchange(k, sum->at[s], more->at[s], n, e));
    pair_same(p, "y", y);
    pair_same(p, "sum", sum);
    pair_same(p, "more", more);
    pair_same(p, "all", all);
}

static void conversion_case(struct pair *p) {
    const int64_t n = pair_between(p, 1, MANY_ELEMENTS);
    struct twin *wide = pair_floats(p, n, 70000), *x = pair_empty(p, n), *same = pair_empty(p, n);
    struct twin *back = pair_empty_floats(p, n);
    if (pair_either(p))
        ON_ALL(p, k->convert(k, x->at[s], wide->at[s], n, e))
    else
        ON_ALL(p, k->upload_elements(k, x->at[s], wide->at[s], n, e))
    ON_ALL(p, k->copy(k, same->at[s], x->at[s], n, e));
    ON_ALL(p, k->convert_to_fp32(k, back->at[s], same->at[s], n, e));
    pair_same(p, "x", x);
    pair_same(p, "back", back);
}

static void dropout_case(struct pair *p) {
    const int64_t samples = pair_between(p, 1, 5), n = pair_between(p, 1, 2000);
    struct dropout d = { .probability = pair_between(p, 0, 3) ? (float)pair_fraction(p) : 0,
                         .key = { .seed = 77, .op = 5 },
                         .first_sample = pair_between(p, 0, 5000) };
    struct twin *step = pair_word(p, pair_between(p, 0, 1000000));
    struct twin *x = pair_elements(p, samples * n, 1), *y = pair_in_place(p, x);
    ON_ALL(p, (d.key.step = step->at[s], k->dropout(k, y->at[s], x->at[s], samples, n, &d, e)));
    pair_same(p, "y", y);
}

/* --- over all parameters -------------------------------------------------------------------------------------------*/
/* An array that is cut into pieces, some of them empty. In half of the cases one launch cannot hold all pieces. */
enum { MAX_SPANS = 150 };

struct cuts {
    int n;
    int64_t at[MAX_SPANS + 1];
};

static struct cuts cuts_of(struct pair *p, int64_t n) {
    struct cuts c = { .n = (int)pair_between(p, 1, pair_either(p) ? MAX_SPANS : 3) };
    for (int i = 1; i < c.n; i++)
        c.at[i] = c.at[i - 1] + (pair_between(p, 0, 9) ? pair_between(p, 0, 2 * (n - c.at[i - 1]) / (c.n - i + 1)) : 0);
    c.at[c.n] = n;
    return c;
}

struct parameters {
    int64_t n;
    struct twin *p, *weight, *m, *v, *g;
    struct cuts cuts;
    bool decay[MAX_SPANS], rounded[MAX_SPANS];
};

static struct parameters parameters_of(struct pair *p) {
    struct parameters a = { .n = pair_between(p, 1, 3 * MANY_ELEMENTS) };
    a.p = pair_floats(p, a.n, 1);
    a.weight = pair_empty(p, a.n);
    a.m = pair_floats(p, a.n, 0.1f);
    a.v = pair_floats(p, a.n, 0.1f);
    for (int s = 0; s < SIDES; s++)
        for (int64_t i = 0; i < a.n; i++) /* a second moment */
            ((float *)a.v->at[s])[i] *= ((float *)a.v->at[s])[i];
    a.g = pair_floats(p, a.n, 3);
    a.cuts = cuts_of(p, a.n);
    for (int i = 0; i < a.cuts.n; i++) {
        a.decay[i] = pair_either(p);
        a.rounded[i] = pair_either(p) || p->precision != KERNELS_FP32;
    }
    return a;
}

static element_t *weight_at(const struct parameters *a, int s, int64_t i) {
    return (char *)a->weight->at[s] + (size_t)i * a->weight->each;
}

/* The spans of the whole array, stored in `buffer` [MAX_SPANS]. */
static const struct span *spans_of(const struct parameters *a, int s, struct span *buffer) {
    for (int i = 0; i < a->cuts.n; i++) {
        const int64_t at = a->cuts.at[i];
        buffer[i] = (struct span){ .n = a->cuts.at[i + 1] - at,
                                   .p = (float *)a->p->at[s] + at,
                                   .weight = a->rounded[i] ? weight_at(a, s, at) : NULL,
                                   .m = (float *)a->m->at[s] + at,
                                   .v = (float *)a->v->at[s] + at,
                                   .x = (const float *)a->g->at[s] + at,
                                   .decay = a->decay[i] };
    }
    return buffer;
}

static void check_step(struct pair *p, const struct parameters *a) {
    pair_same(p, "p", a->p);
    pair_same(p, "m", a->m);
    pair_same(p, "v", a->v);
    pair_same(p, "weight", a->weight);
}

/* The values that a step's kernels read from device memory. One step in four is skipped. */
struct now {
    double learning_rate;
    struct update update;
};

static struct twin *now_of(struct pair *p, double learning_rate) {
    const struct now now = { learning_rate,
                             { .number = pair_between(p, 1, 100),
                               .gradient_scale = (float)pair_fraction(p),
                               .skip = pair_between(p, 0, 3) ? STEP_APPLIED : STEP_SPIKE } };
    struct twin *t = pair_empty_doubles(p, sizeof now / sizeof(double));
    for (int s = 0; s < SIDES; s++)
        *(struct now *)t->at[s] = now;
    return t;
}

/* The call with o's pointers set to this side's `now`. */
#define AT_ONCE(call)                                                                                                  \
    (o.learning_rate = &((struct now *)now->at[s])->learning_rate, o.update = &((struct now *)now->at[s])->update, call)

static void adamw_case(struct pair *p) {
    const struct parameters a = parameters_of(p);
    struct twin *now = now_of(p, 3e-3);
    struct adamw o = { .beta1 = 0.9,
                       .beta2 = 0.95,
                       .epsilon = 1e-8,
                       .weight_decay = pair_fraction(p),
                       .clip_value = pair_either(p) ? 0.5f : 0 };
    struct span buffer[MAX_SPANS];
    ON_ALL(p, AT_ONCE(k->adamw(k, spans_of(&a, s, buffer), a.cuts.n, &o, e)));
    check_step(p, &a);
}

static void sgd_case(struct pair *p) {
    const struct parameters a = parameters_of(p);
    struct twin *now = now_of(p, 0.1);
    struct sgd o = {
        .momentum = 0.9, .weight_decay = pair_fraction(p), .nesterov = pair_either(p), .clip_value = 0.7f
    };
    struct span buffer[MAX_SPANS];
    ON_ALL(p, AT_ONCE(k->sgd(k, spans_of(&a, s, buffer), a.cuts.n, &o, e)));
    check_step(p, &a);
}

static void lion_case(struct pair *p) {
    const struct parameters a = parameters_of(p);
    struct twin *now = now_of(p, 1e-3);
    struct lion o = { .beta1 = 0.9, .beta2 = 0.99, .weight_decay = pair_fraction(p) };
    ((float *)a.m->at[0])[0] = ((float *)a.g->at[0])[0] = 0; /* a sign of 0 */
    for (int s = ONE; s < SIDES; s++)
        ((float *)a.m->at[s])[0] = ((float *)a.g->at[s])[0] = 0;
    struct span buffer[MAX_SPANS];
    ON_ALL(p, AT_ONCE(k->lion(k, spans_of(&a, s, buffer), a.cuts.n, &o, e)));
    check_step(p, &a);
}

static void momentum_case(struct pair *p) {
    const struct parameters a = parameters_of(p);
    struct momentum o = { .momentum = 0.95, .nesterov = pair_either(p), .clip_value = 0.7f };
    const double keep = pair_fraction(p), by = pair_fraction(p);
    const bool always = pair_either(p);
    struct twin *u = pair_floats(p, a.n, 1), *now = now_of(p, 0);
    ON_ALL(p, (o.update = &((struct now *)now->at[s])->update,
               k->momentum(k, u->at[s], a.m->at[s], a.g->at[s], a.n, &o, e)));
    struct span buffer[MAX_SPANS];
    ON_ALL(p, k->scale_add(k, spans_of(&a, s, buffer), a.cuts.n, keep, by,
                           always ? NULL : &((const struct now *)now->at[s])->update, e));
    pair_same(p, "u", u);
    check_step(p, &a);
}

static void sgd_step_case(struct pair *p) {
    const struct parameters a = parameters_of(p);
    struct twin *now = now_of(p, 0.02);
    struct sgd_step o = { .factor = 1 + pair_fraction(p), .weight_decay = pair_fraction(p) };
    ON_ALL(p, AT_ONCE(k->sgd_step(k, a.p->at[s], weight_at(&a, s, 0), a.g->at[s], a.n, &o, e)));
    check_step(p, &a);
}

static void adafactor_case(struct pair *p) {
    const bool matrix = pair_either(p);
    const int64_t rows = matrix ? pair_between(p, 2, 90) : 1, columns = pair_between(p, 1, 300), n = rows * columns;
    struct adafactor o = { .beta2_decay = 0.8,
                           .epsilon1 = 1e-30,
                           .epsilon2 = 1e-3,
                           .clip_threshold = 1,
                           .weight_decay = 0.1,
                           .clip_value = pair_either(p) ? 1.0f : 0 };
    struct twin *x = pair_floats(p, n, 0.1f), *weight = pair_elements(p, n, 1), *g = pair_floats(p, n, 2);
    struct twin *now = now_of(p, 0.01);
    struct twin *row = pair_empty_floats(p, matrix ? rows : n), *column = pair_empty_floats(p, columns);
    ON_ALL(p, k->fp32->fill(k, row->at[s], 0, row->n, e));
    ON_ALL(p, k->fp32->fill(k, column->at[s], 0, columns, e));
    for (int step = 0; step < 2; step++)
        ON_ALL(p, AT_ONCE(k->adafactor(k, x->at[s], weight->at[s], row->at[s], matrix ? column->at[s] : NULL, g->at[s],
                                       rows, columns, &o,
                                       pair_workspace(p, s, k->adafactor_workspace(k, rows, columns)), e)));
    pair_close(p, "p", x, 1);
    pair_close(p, "weight", weight, 1);
    pair_close(p, "row", row, 1);
    pair_close(p, "column", column, 1);
}

static void running_mean_case(struct pair *p) {
    const struct parameters a = parameters_of(p);
    const double momentum = pair_fraction(p);
    const int64_t parts = pair_between(p, 1, 9);
    struct twin *now = now_of(p, 0);
    struct span buffer[MAX_SPANS];
    ON_ALL(p, k->running_mean(k, spans_of(&a, s, buffer), a.cuts.n, momentum, parts,
                              &((const struct now *)now->at[s])->update, e));
    check_step(p, &a);
}

/* Whole numbers: their sum has the same bits in every order. */
static struct twin *squares_of(struct pair *p, int64_t n) {
    struct twin *t = pair_empty_doubles(p, n);
    for (int64_t i = 0; i < n; i++) {
        const double x = (double)pair_between(p, 0, 1000);
        for (int s = 0; s < SIDES; s++)
            ((double *)t->at[s])[i] = x;
    }
    return t;
}

static void decide_case(struct pair *p) {
    const int64_t n_losses = pair_between(p, 1, 40), n_sums = pair_between(p, 1, 20000);
    const double bad = pair_either(p) ? (double)NAN : (double)INFINITY;
    const int what = (int)pair_between(p, 0, 7);
    const struct decision_rules o = { .clip_norm = pair_either(p) ? 1 : 0,
                                      .z_score = pair_either(p) ? 1 : 0,
                                      .window = pair_between(p, 2, 20),
                                      .dynamic_scale = pair_either(p),
                                      .growth_interval = 3,
                                      .targets = pair_between(p, 1, 1000) };
    struct twin *decision = pair_empty_doubles(p, sizeof(struct decision) / sizeof(double));
    for (int s = 0; s < SIDES; s++)
        *(struct decision *)decision->at[s] = (struct decision){ .scale = 1024 };
    for (int step = 0; step < 12; step++) {
        struct twin *losses = squares_of(p, n_losses), *sums = squares_of(p, n_sums);
        for (int s = 0; s < SIDES && step == 9; s++) {
            if (what == 0)
                ((double *)losses->at[s])[n_losses - 1] = bad;
            if (what == 1)
                ((double *)sums->at[s])[n_sums / 2] = bad;
        }
        ON_ALL(p, k->decide(k, decision->at[s], losses->at[s], n_losses, sums->at[s], n_sums, &o, e));
        pair_same(p, "decision", decision);
    }
}

static void normalise_case(struct pair *p) {
    const int64_t n = pair_between(p, 1, MANY_ELEMENTS);
    struct twin *x = pair_floats(p, n, 2), *buffer = pair_empty_doubles(p, (n + KERNELS_CHUNK - 1) / KERNELS_CHUNK + 1);
    const double least = pair_either(p) ? 1e6 : 1e-7;
    ON_ALL(p, k->normalise(k, x->at[s], n, least, buffer->at[s], e));
    pair_close(p, "x", x, 1);
}

static int64_t chunks_of(int64_t n) { return (n + KERNELS_CHUNK - 1) / KERNELS_CHUNK; }

static void sums_case(struct pair *p) {
    const int64_t n = pair_between(p, 1, 5 * MANY_ELEMENTS);
    struct twin *a = pair_floats(p, n, 2), *sum = pair_empty_doubles(p, 1), *sums;
    const struct cuts c = cuts_of(p, n);
    int64_t chunks = 0;
    for (int i = 0; i < c.n; i++)
        chunks += chunks_of(c.at[i + 1] - c.at[i]);
    sums = pair_empty_doubles(p, chunks);
    for (int s = 0; s < SIDES; s++) {
        struct norm_span spans[MAX_SPANS];
        chunks = 0;
        for (int i = 0; i < c.n; i++) {
            const int64_t count = c.at[i + 1] - c.at[i];
            spans[i] = (struct norm_span){ (double *)sums->at[s] + chunks, (const float *)a->at[s] + c.at[i], count };
            chunks += chunks_of(count);
        }
        OK(p->k[s]->sum_squares(p->k[s], spans, c.n, e));
        OK(p->k[s]->finish(p->k[s], e));
    }
    pair_close(p, "sums", sums, 1);
    ON_ALL(p, k->sum(k, sum->at[s], a->at[s], n, e));
    pair_close(p, "sum", sum, 1);
    const int64_t rows = n < 7 ? 1 : 7;
    struct twin *by_row = pair_empty_doubles(p, rows);
    ON_ALL(p, k->sum_rows(k, by_row->at[s], a->at[s], rows, n / rows, e));
    pair_close(p, "sum of rows", by_row, 1);
}

static void check_finite(struct pair *p, struct twin *a, struct twin *x, bool want) {
    struct twin *floats = pair_empty_floats(p, 1), *elements = pair_empty_floats(p, 1);
    ON_ALL(p, k->convert(k, x->at[s], a->at[s], a->n, e));
    ON_ALL(p, k->all_finite(k, floats->at[s], a->at[s], a->n, e));
    ON_ALL(p, k->elements_finite(k, elements->at[s], x->at[s], a->n, e));
    for (int s = 0; s < SIDES; s++) {
        assert_int_equal(*(bool *)floats->at[s], want);
        assert_int_equal(*(bool *)elements->at[s], want);
    }
}

static void finite_case(struct pair *p) {
    const int64_t n = pair_between(p, 1, MANY_ELEMENTS), at = pair_between(p, 0, n - 1);
    const float bad = pair_either(p) ? NAN : pair_either(p) ? INFINITY : -INFINITY;
    struct twin *a = pair_floats(p, n, 2), *x = pair_empty(p, n);
    check_finite(p, a, x, true);
    for (int s = 0; s < SIDES; s++)
        ((float *)a->at[s])[at] = bad;
    check_finite(p, a, x, false);
}

CASE(gelu_and_its_gradient_are_the_cpus, gelu_case)
CASE(gelu_by_erf_and_its_gradient_are_the_cpus, gelu_erf_case)
CASE(relu_and_its_gradient_are_the_cpus_to_the_bit, relu_case)
CASE(swiglu_and_its_gradient_are_the_cpus, swiglu_case)
CASE(add_accumulate_and_fill_are_the_cpus_to_the_bit, add_case)
CASE(conversions_and_copies_are_the_cpus_to_the_bit, conversion_case)
CASE(dropout_keeps_the_elements_that_the_cpu_keeps, dropout_case)
CASE(adamw_steps_to_the_cpus_bits, adamw_case)
CASE(sgd_steps_to_the_cpus_bits, sgd_case)
CASE(lion_steps_to_the_cpus_bits, lion_case)
CASE(momentum_and_scale_add_step_to_the_cpus_bits, momentum_case)
CASE(an_sgd_step_gives_the_cpus_bits, sgd_step_case)
CASE(a_step_is_decided_upon_as_by_the_cpu, decide_case)
CASE(adafactor_steps_as_the_cpu_does, adafactor_case)
CASE(running_means_step_to_the_cpus_bits, running_mean_case)
CASE(a_normalised_array_is_the_cpus, normalise_case)
CASE(sums_and_sums_of_squares_are_the_cpus, sums_case)
CASE(a_number_that_is_not_finite_is_found, finite_case)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gelu_and_its_gradient_are_the_cpus),
        cmocka_unit_test(gelu_by_erf_and_its_gradient_are_the_cpus),
        cmocka_unit_test(relu_and_its_gradient_are_the_cpus_to_the_bit),
        cmocka_unit_test(swiglu_and_its_gradient_are_the_cpus),
        cmocka_unit_test(add_accumulate_and_fill_are_the_cpus_to_the_bit),
        cmocka_unit_test(conversions_and_copies_are_the_cpus_to_the_bit),
        cmocka_unit_test(dropout_keeps_the_elements_that_the_cpu_keeps),
        cmocka_unit_test(adamw_steps_to_the_cpus_bits),
        cmocka_unit_test(sgd_steps_to_the_cpus_bits),
        cmocka_unit_test(lion_steps_to_the_cpus_bits),
        cmocka_unit_test(momentum_and_scale_add_step_to_the_cpus_bits),
        cmocka_unit_test(an_sgd_step_gives_the_cpus_bits),
        cmocka_unit_test(a_step_is_decided_upon_as_by_the_cpu),
        cmocka_unit_test(adafactor_steps_as_the_cpu_does),
        cmocka_unit_test(running_means_step_to_the_cpus_bits),
        cmocka_unit_test(a_normalised_array_is_the_cpus),
        cmocka_unit_test(sums_and_sums_of_squares_are_the_cpus),
        cmocka_unit_test(a_number_that_is_not_finite_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
