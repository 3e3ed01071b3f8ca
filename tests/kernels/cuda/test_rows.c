/* Norms, losses, embeddings, biases and rotary positions: CUDA's kernels on the CPU, against the plain ones. */
#include "tests/kernels/cuda/pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* One width for each way in which rows are spread over threads, in turn: within a warp, over a block, several packs a
 * thread, too wide for registers; divisible into packs and not. */
static int64_t width_of(struct pair *p) {
    static const int64_t MOST[] = { 0, 64, 1000, 8192, 9500 };
    const int way = p->round % 4;
    const int64_t width = pair_between(p, MOST[way] + 1, MOST[way + 1]);
    return pair_either(p) ? (width + 7) / 8 * 8 : width;
}

static int64_t rows_of(struct pair *p, int64_t width) { return pair_between(p, 1, width > 1000 ? 5 : 90); }

struct norm {
    int64_t rows, width;
    bool branched, accumulate;
    struct twin *x, *branch, *r, *gamma, *beta, *y, *mean, *rstd;
    struct twin *dy, *addend, *dx, *dgamma, *dbeta;
};

static struct norm norm_of(struct pair *p) {
    struct norm a = { .width = width_of(p), .branched = pair_either(p), .accumulate = pair_either(p) };
    a.rows = rows_of(p, a.width);
    const int64_t n = a.rows * a.width;
    a.x = pair_elements(p, n, 2);
    a.branch = pair_elements(p, n, 1);
    a.r = a.branched ? pair_in_place(p, a.x) : a.x;
    a.gamma = pair_elements(p, a.width, 1);
    a.beta = pair_elements(p, a.width, 1);
    a.y = pair_empty(p, n);
    a.mean = pair_empty_floats(p, a.rows);
    a.rstd = pair_empty_floats(p, a.rows);
    a.dy = pair_elements(p, n, 1);
    a.addend = pair_either(p) ? pair_elements(p, n, 1) : NULL;
    a.dx = a.addend && pair_either(p) ? a.addend : pair_in_place(p, a.dy);
    a.dgamma = pair_gradient(p, a.width, a.accumulate);
    a.dbeta = pair_gradient(p, a.width, a.accumulate);
    return a;
}

static void *at_or_null(const struct twin *t, int s) { return t ? t->at[s] : NULL; }

/* All sides normalize the CPU's r. The backward pass then starts from one x and one set of statistics on all sides. */
static void same_start(struct norm *a, bool mean) {
    for (int s = ONE; s < SIDES; s++) {
        memcpy(a->rstd->at[s], a->rstd->at[CPU], sizeof(float) * (size_t)a->rows);
        if (mean)
            memcpy(a->mean->at[s], a->mean->at[CPU], sizeof(float) * (size_t)a->rows);
    }
}

static void check_forward(struct pair *p, const struct norm *a) {
    pair_same(p, "r", a->r);
    pair_close(p, "y", a->y, 2);
    pair_close(p, "rstd", a->rstd, 2);
}

static void check_backward(struct pair *p, const struct norm *a) {
    pair_close(p, "dx", a->dx, 2);
    pair_close(p, "dgamma", a->dgamma, 4);
}

static void layernorm_case(struct pair *p) {
    struct norm a = norm_of(p);
    const bool beta = pair_either(p);
    ON_ALL(p, k->layernorm_forward(k, a.y->at[s], a.r->at[s], a.mean->at[s], a.rstd->at[s], a.x->at[s],
                                   a.branched ? a.branch->at[s] : NULL, a.gamma->at[s], beta ? a.beta->at[s] : NULL,
                                   a.rows, a.width, 1e-5f, e));
    check_forward(p, &a);
    pair_close_average(p, "mean", a.mean, a.r, 2);
    same_start(&a, true);
    ON_ALL(p, k->layernorm_backward(k, a.dx->at[s], a.dgamma->at[s], beta ? a.dbeta->at[s] : NULL, a.dy->at[s],
                                    at_or_null(a.addend, s), a.r->at[s], a.mean->at[s], a.rstd->at[s], a.gamma->at[s],
                                    a.rows, a.width, a.accumulate,
                                    pair_workspace(p, s, k->layernorm_backward_workspace(k, a.rows, a.width)), e));
    check_backward(p, &a);
    if (beta)
        pair_close(p, "dbeta", a.dbeta, 4);
}

static void rmsnorm_case(struct pair *p) {
    struct norm a = norm_of(p);
    ON_ALL(p, k->rmsnorm_forward(k, a.y->at[s], a.r->at[s], a.rstd->at[s], a.x->at[s],
                                 a.branched ? a.branch->at[s] : NULL, a.gamma->at[s], a.rows, a.width, 1e-6f, e));
    check_forward(p, &a);
    same_start(&a, false);
    ON_ALL(p, k->rmsnorm_backward(k, a.dx->at[s], a.dgamma->at[s], a.dy->at[s], at_or_null(a.addend, s), a.r->at[s],
                                  a.rstd->at[s], a.gamma->at[s], a.rows, a.width, a.accumulate,
                                  pair_workspace(p, s, k->rmsnorm_backward_workspace(k, a.rows, a.width)), e));
    check_backward(p, &a);
}

static void bias_case(struct pair *p) {
    const bool pre_given = pair_either(p), accumulate = pair_either(p);
    const struct linear_dims d = {
        .rows = pair_between(p, 1, 200), .in = 1, .out = pair_between(p, 1, 700), .y_stride = pre_given ? 0 : 720
    };
    const int64_t n = pre_given ? d.rows * d.out : d.rows * d.y_stride;
    struct twin *dy = pair_elements(p, n, 1), *pre = pair_elements(p, n, 4);
    struct twin *dbias = pair_gradient(p, d.out, accumulate);
    const bool wanted = pair_between(p, 0, 4) > 0;
    ON_ALL(p, k->linear_backward_bias(k, wanted ? dbias->at[s] : NULL, dy->at[s], pre_given ? pre->at[s] : NULL, &d,
                                      accumulate, pair_workspace(p, s, k->linear_backward_bias_workspace(k, &d)), e));
    pair_close(p, "dy", dy, 1);
    if (wanted)
        pair_close(p, "dbias", dbias, p->precision == KERNELS_FP32 ? 4 : 2000); /* of elements rounded each way */
}

/* --- embeddings ----------------------------------------------------------------------------------------------------*/
struct embedding {
    int64_t batch, time, width, vocabulary, positions;
    struct twin *tokens;
};

static struct embedding embedding_of(struct pair *p) {
    static const int64_t most[] = { 3, 70, 6000 }; /* tokens of hundreds of positions, of tens, of a few */
    struct embedding a = { .batch = pair_between(p, 1, 6),
                           .time = pair_between(p, 1, 400),
                           .width = pair_between(p, 1, 90),
                           .vocabulary = pair_between(p, 1, most[p->round % 3]) };
    a.positions = a.time + pair_between(p, 0, 3);
    a.tokens = pair_tokens(p, a.batch * a.time, a.vocabulary);
    return a;
}

static void embedding_case(struct pair *p) {
    const struct embedding a = embedding_of(p);
    const bool accumulate = pair_either(p), wpe_given = pair_either(p);
    struct twin *wte = pair_elements(p, a.vocabulary * a.width, 1), *wpe = pair_elements(p, a.positions * a.width, 1);
    struct twin *y = pair_empty(p, a.batch * a.time * a.width), *dy = pair_elements(p, a.batch * a.time * a.width, 1);
    struct twin *dwte = pair_gradient(p, wte->n, accumulate), *dwpe = pair_gradient(p, wpe->n, accumulate);
    ON_ALL(p, k->embedding_forward(k, y->at[s], a.tokens->at[s], wte->at[s], wpe_given ? wpe->at[s] : NULL, a.batch,
                                   a.time, a.width, a.vocabulary, e));
    ON_ALL(p, k->embedding_backward(k, dwte->at[s], wpe_given ? dwpe->at[s] : NULL, a.tokens->at[s], dy->at[s], a.batch,
                                    a.time, a.width, a.vocabulary, a.positions, accumulate,
                                    pair_workspace(p, s, k->embedding_backward_workspace(k, a.batch, a.time, a.width)),
                                    e));
    pair_same(p, "y", y);
    pair_close(p, "dwte", dwte, 4);
    if (wpe_given)
        pair_same(p, "dwpe", dwpe);
}

static void check_fault(struct pair *p, int s, const char *want) {
    const struct kernels *k = p->k[s];
    struct err e = { "" };
    assert_int_equal(k->finish(k, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, want);
    assert_int_equal(k->finish(k, &e), ST_OK); /* told once */
}

static void foreign_token_case(struct pair *p) {
    int32_t foreign[] = { 2, -1, 1 };
    struct twin *wte = pair_elements(p, 3 * 8, 1), *y = pair_empty(p, 3 * 8), *tokens = pair_tokens(p, 3, 3);
    for (int s = ONE; s < SIDES; s++) {
        const struct kernels *k = p->k[s];
        memcpy(tokens->at[s], foreign, sizeof foreign);
        OK(k->embedding_forward(k, y->at[s], tokens->at[s], wte->at[s], NULL, 1, 3, 8, 3, e));
        check_fault(p, s, "token -1 at position 1 is outside the vocabulary");
        assert_memory_equal((char *)y->at[s] + y->n / 3 * (int64_t)y->each, wte->at[s], 8 * y->each);
    }
}

/* --- losses --------------------------------------------------------------------------------------------------------*/
static void cross_entropy_case(struct pair *p) {
    /* Rows with less than one pack per thread, and with several. */
    const int64_t rows = pair_between(p, 1, 12);
    const int64_t vocabulary = p->round % 2 ? pair_between(p, 2, 50) : pair_between(p, 5000, 13000);
    const bool gradient = pair_either(p);
    struct twin *logits = pair_elements(p, rows * vocabulary, 8), *targets = pair_tokens(p, rows, vocabulary);
    struct twin *losses = pair_empty_floats(p, rows), *correct = pair_empty_floats(p, rows),
                *scale = pair_floats(p, 1, 1);
    const bool mixed = pair_either(p);
    struct twin *partners = pair_tokens(p, rows, vocabulary), *shares = pair_floats(p, rows, 1);
    for (int s = 0; s < SIDES; s++)
        ((int32_t *)targets->at[s])[0] = pair_either(p) ? ((int32_t *)targets->at[s])[0] : 0;
    if (pair_either(p))
        for (int s = 0; s < SIDES; s++)
            ((int32_t *)targets->at[s])[rows - 1] = -1;
    for (int s = ONE; s < SIDES; s++)
        memcpy(targets->at[s], targets->at[CPU], sizeof(int32_t) * (size_t)rows);
    ON_ALL(p, k->top1(k, correct->at[s], logits->at[s], targets->at[s], rows, vocabulary, e));
    ON_ALL(p, k->cross_entropy(k, losses->at[s], logits->at[s], targets->at[s], mixed ? partners->at[s] : NULL,
                               mixed ? shares->at[s] : NULL, rows, vocabulary, gradient ? scale->at[s] : NULL, e));
    pair_same(p, "correct", correct);
    pair_close(p, "losses", losses, 2);
    pair_close(p, "logits", logits, 2);
}

static void foreign_target_case(struct pair *p) {
    int32_t foreign[] = { 4, 5, 0 };
    struct twin *logits = pair_elements(p, 3 * 5, 1), *losses = pair_empty_floats(p, 3),
                *targets = pair_tokens(p, 3, 5);
    for (int s = ONE; s < SIDES; s++) {
        const struct kernels *k = p->k[s];
        memcpy(targets->at[s], foreign, sizeof foreign);
        OK(k->cross_entropy(k, losses->at[s], logits->at[s], targets->at[s], NULL, NULL, 3, 5, NULL, e));
        check_fault(p, s, "target 5 at row 1 is outside the vocabulary");
        assert_true(((float *)losses->at[s])[1] == 0);
    }
}

/* Of equal logits, the first counts as the largest. */
static void equal_logits_case(struct pair *p) {
    const int64_t n = pair_between(p, 2, 3000);
    struct twin *wide = pair_floats(p, n, 1), *logits = pair_empty(p, n), *target = pair_tokens(p, 1, 1);
    struct twin *correct = pair_empty_floats(p, 1);
    const int64_t first = pair_between(p, 0, n - 1), again = pair_between(p, first, n - 1);
    for (int s = 0; s < SIDES; s++) {
        ((float *)wide->at[s])[first] = ((float *)wide->at[s])[again] = 2;
        *(int32_t *)target->at[s] = (int32_t)first;
    }
    ON_ALL(p, k->convert(k, logits->at[s], wide->at[s], n, e));
    ON_ALL(p, k->top1(k, correct->at[s], logits->at[s], target->at[s], 1, n, e));
    for (int s = 0; s < SIDES; s++)
        assert_true(*(float *)correct->at[s] == 1);
}

static void squared_error_case(struct pair *p) {
    const int64_t batch = pair_between(p, 1, 5), n = pair_between(p, 1, 6000);
    const bool gradient = pair_either(p);
    struct twin *x = pair_elements(p, batch * n, 1), *reference = pair_floats(p, batch * n, 1);
    struct twin *losses = pair_empty_floats(p, batch), *psnr = pair_empty_floats(p, batch),
                *scale = pair_floats(p, 1, 1);
    ON_ALL(p, k->psnr(k, psnr->at[s], x->at[s], reference->at[s], batch, n, e));
    ON_ALL(p,
           k->squared_error(k, losses->at[s], x->at[s], reference->at[s], batch, n, gradient ? scale->at[s] : NULL, e));
    pair_close(p, "psnr", psnr, 1);
    pair_close(p, "losses", losses, 1);
    pair_close(p, "x", x, 1);
}

static void rope_case(struct pair *p) {
    const struct attention_dims d = { .batch = pair_between(p, 1, 3),
                                      .time = pair_between(p, 1, 20),
                                      .heads = 2 * pair_between(p, 1, 3),
                                      .kv_heads = 2,
                                      .head = 2 * pair_between(p, 1, pair_either(p) ? 16 : 64) };
    const struct rope r = { .theta = 10000, .scaling = { pair_either(p) ? 8 : 0, 1, 4, 16 } };
    const int64_t n = d.batch * d.time * (d.heads + 2 * d.kv_heads) * d.head;
    struct twin *from = pair_elements(p, n, 1), *to = pair_in_place(p, from);
    const bool inverse = pair_either(p);
    ON_ALL(p, k->rope(k, to->at[s], from->at[s], &d, &r, inverse, e));
    pair_close(p, "to", to, 1);
}

static void memory_case(struct pair *p) {
    const int64_t n = pair_between(p, 1, 1000);
    struct twin *from = pair_floats(p, n, 1), *to = pair_empty_floats(p, n);
    const size_t bytes = sizeof(float) * (size_t)n;
    for (int s = 0; s < SIDES; s++) {
        const struct kernels *k = p->k[s];
        void *buffer[2] = { NULL, NULL };
        for (int i = 0; i < 2; i++) {
            OK(k->memory_new(k, bytes, &buffer[i], e));
            assert_int_equal((uintptr_t)buffer[i] % 256, 0);
        }
        OK(k->upload(k, buffer[0], from->at[s], bytes, e));
        OK(k->move(k, buffer[1], buffer[0], bytes, e));
        OK(k->download(k, to->at[s], buffer[1], bytes, e));
        OK(k->finish(k, e));
        assert_memory_equal(to->at[s], from->at[s], bytes);
        const size_t row = 7 * sizeof(float), slice = 3 * sizeof(float);
        OK(k->move_rows(k, (float *)buffer[1] + 4, row, buffer[0], slice, slice, n / 7, e));
        OK(k->download(k, to->at[s], buffer[1], bytes, e));
        OK(k->finish(k, e));
        for (int64_t r = 0; r < n / 7; r++)
            assert_memory_equal((float *)to->at[s] + 7 * r + 4, (float *)from->at[s] + 3 * r, slice);
        for (int i = 0; i < 2; i++)
            k->memory_free(k, buffer[i]);
        k->memory_free(k, NULL);
        struct err e = { "" };
        if (s != CPU) /* a sanitizer ends a process that asks the host for that much */
            assert_int_equal(k->memory_new(k, SIZE_MAX / 4, &buffer[0], &e), ST_RESOURCE_EXHAUSTED);
    }
}

CASE(layer_norm_and_its_gradient_are_the_cpus, layernorm_case)
CASE(rms_norm_and_its_gradient_are_the_cpus, rmsnorm_case)
CASE(gradients_of_biases_and_of_their_gelu_are_the_cpus, bias_case)
CASE(embeddings_are_the_cpus_to_the_bit_and_their_gradients_close, embedding_case)
CASE(a_token_outside_the_vocabulary_is_told_by_finish, foreign_token_case)
CASE(cross_entropy_and_its_gradient_are_the_cpus, cross_entropy_case)
CASE(a_target_outside_the_vocabulary_is_told_by_finish, foreign_target_case)
CASE(the_first_of_equal_logits_is_the_largest, equal_logits_case)
CASE(squared_errors_and_their_gradient_are_the_cpus, squared_error_case)
CASE(heads_turn_as_on_the_cpu, rope_case)
CASE(memory_moves_up_within_and_down, memory_case)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layer_norm_and_its_gradient_are_the_cpus),
        cmocka_unit_test(rms_norm_and_its_gradient_are_the_cpus),
        cmocka_unit_test(gradients_of_biases_and_of_their_gelu_are_the_cpus),
        cmocka_unit_test(embeddings_are_the_cpus_to_the_bit_and_their_gradients_close),
        cmocka_unit_test(a_token_outside_the_vocabulary_is_told_by_finish),
        cmocka_unit_test(cross_entropy_and_its_gradient_are_the_cpus),
        cmocka_unit_test(a_target_outside_the_vocabulary_is_told_by_finish),
        cmocka_unit_test(the_first_of_equal_logits_is_the_largest),
        cmocka_unit_test(squared_errors_and_their_gradient_are_the_cpus),
        cmocka_unit_test(heads_turn_as_on_the_cpu),
        cmocka_unit_test(memory_moves_up_within_and_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
