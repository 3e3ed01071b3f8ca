/* Ten steps of a small GPT against PyTorch 2.13 (record_pytorch.py): losses to 1e-4 relative, and the gradients of the
 * first step tensor by tensor. Weights after steps of Adam are not compared, because Adam amplifies rounding errors of
 * gradients that are zero. */
#include "base/file.h"
#include "engine/graph/op.h"
#include "engine/optimizer/optimizer.h"
#include "engine/plan/build/plan_build.h"
#include "engine/plan/verify/verify.h"
#include "engine/run/execute.h"
#include "engine/run/instructions.h"
#include "engine/run/weights.h"
#include "tests/engine/gpt_graph.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 10, BATCH = 4, CONTEXT = 8, FILE_BYTES_MOST = 1 << 20 };

static const struct gpt_shape SHAPE_RECORDED = {
    .layers = 2, .heads = 2, .width = 16, .context = CONTEXT, .vocabulary = 33
};

struct trial {
    struct graph *graph;
    struct plan *plan;
    struct kernels *kernels;
    struct arena arena;
    struct execution x;
    const struct step_control *control; /* of the newest step */
    int micro_batch;
    int64_t step;
    int32_t tokens[BATCH * CONTEXT], targets[BATCH * CONTEXT];
    struct optimizer_config optimizer;
    struct bytes file;
};

static status_t load(void *ctx, int k, struct batch *ret, struct err *e) {
    (void)e;
    struct trial *t = ctx;
    int32_t *tokens = t->tokens, *targets = t->targets;
    const int64_t context = SHAPE_RECORDED.context;
    for (int64_t j = 0; j < t->micro_batch; j++)
        for (int64_t i = 0; i < context; i++) {
            int64_t at = ((int64_t)k * t->micro_batch + j) * (context + 1) + i;
            tokens[j * context + i] = (int32_t)((7 * at * at + 3 * at + 5 * t->step) % SHAPE_RECORDED.vocabulary);
            at++;
            targets[j * context + i] = (int32_t)((7 * at * at + 3 * at + 5 * t->step) % SHAPE_RECORDED.vocabulary);
        }
    ret->of[BATCH_TOKENS] = tokens;
    ret->of[BATCH_TARGETS] = targets;
    return ST_OK;
}

static size_t workspace_bytes(const struct trial *t) {
    size_t most = 0;
    for (int i = 0; i < t->graph->n_ops; i++) {
        const struct op *op = &t->graph->ops[i];
        size_t bytes = op->kind->workspace ? op->kind->workspace(t->kernels, t->graph, op) : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* micro_batch samples at a time: 4 = the whole batch at once, 1 = accumulated over four. */
static void put_loss_gradient(struct trial *t, float loss_gradient) {
    const struct decision first = { .scale = 1, .loss_gradient = loss_gradient };
    assert_int_equal(step_control_set(&t->x.control, &first, NULL), ST_OK);
}

static void trial_open(struct trial *t, int micro_batch, int lanes) {
    struct err e;
    *t = (struct trial){ .micro_batch = micro_batch };
    char path[400];
    snprintf(path, sizeof path, "%s/tests/engine/gpt_pytorch.f32", getenv("TRAINYARD_SOURCE"));
    bytes_init(&t->file, FILE_BYTES_MOST);
    assert_int_equal(file_read(path, &t->file, &e), ST_OK);
    const char *device = getenv("TRAINYARD_TEST_DEVICE");
    const struct kernels_config kernels = { .device = device ? device : "cpu", .threads = 2 };
    assert_int_equal(kernels_open(&kernels, &t->kernels, &e), ST_OK);
    assert_int_equal(gpt_graph(&SHAPE_RECORDED, micro_batch, &t->graph, &e), ST_OK);
    struct plan_layout layout = { .kind = PLAN_TRAIN,
                                  .optimizer = &optimizer_adamw,
                                  .lanes = lanes,
                                  .micro_batches = BATCH / micro_batch,
                                  .bucket_bytes = 65536,
                                  .workspace_bytes = workspace_bytes(t) };
    assert_int_equal(plan_build(t->graph, &layout, &t->plan, &e), ST_OK);
    const struct plan *plan = t->plan;
    assert_int_equal(plan_verify(&plan, 1, &e), ST_OK);
    assert_int_equal(arena_open(&t->arena, t->kernels, &plan, 1, &e), ST_OK);
    assert_int_equal(execution_open(&t->x, t->kernels, &t->arena, &plan, 1, &e), ST_OK);
    t->x.load = load;
    t->x.load_ctx = t;
    t->x.decide.clip_norm = 1;
    put_loss_gradient(t, (float)(1.0 / (BATCH * SHAPE_RECORDED.context)));
    t->optimizer = (struct optimizer_config){
        .kind = &optimizer_adamw, .adamw = { .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1 }
    };
    t->x.optimizer = &t->optimizer;
    t->x.learning_rate = 1e-2;
}

static void trial_close(struct trial *t) {
    execution_close(&t->x);
    arena_close(&t->arena);
    plan_free(t->plan);
    graph_free(t->graph);
    kernels_close(t->kernels);
    bytes_done(&t->file);
}

/* The parameters in the file's order: embeddings, blocks, ln_f, as the graph has them. */
static status_t recorded(void *ctx, int parameter, int64_t first, int64_t count, float *data, struct err *e) {
    const struct trial *t = ctx;
    (void)e;
    for (int i = 0; i < parameter; i++)
        first += shape_elements(&t->graph->parameters[i].shape);
    memcpy(data, (const float *)t->file.data + first, (size_t)count * sizeof *data);
    return ST_OK;
}

static void put_parameters(struct trial *t) {
    assert_int_equal(weights_fill(&t->x, t->plan, recorded, t, NULL), ST_OK);
}

static double run_step(struct trial *t) {
    struct err e;
    t->x.step = t->step;
    assert_int_equal(execute_now(&t->x, t->plan, &t->control, &e), ST_OK);
    t->step++;
    int bad;
    return execute_loss_sum(t->control, t->plan, &bad) / (BATCH * SHAPE_RECORDED.context);
}

static void compare_gradients(const struct trial *t, const float *want) {
    struct err e;
    for (int i = 0; i < t->graph->n_parameters; i++) {
        const struct parameter *p = &t->graph->parameters[i];
        int64_t n = shape_elements(&p->shape);
        CLEANUP(freep) float *have = malloc((size_t)n * sizeof *have);
        const float *there = execution_use(&t->x, t->plan, t->plan->result, p->first_use);
        assert_int_equal(t->kernels->download(t->kernels, have, there, (size_t)n * sizeof *have, &e), ST_OK);
        assert_int_equal(t->kernels->finish(t->kernels, &e), ST_OK);
        double difference = 0, size = 0;
        for (int64_t k = 0; k < n; k++) {
            difference += pow((double)have[k] - (double)want[k], 2);
            size += pow((double)want[k], 2);
        }
        /* Relative to the tensor's length; the key's bias has no gradient but noise. */
        if (!(sqrt(difference) <= 1e-4 * sqrt(size) + 1e-7))
            fail_msg("the gradient of %s is off by %g of %g", p->name, sqrt(difference), sqrt(size));
        want += n;
    }
}

static void ten_steps_agree(int micro_batch, int lanes) {
    struct trial t;
    trial_open(&t, micro_batch, lanes);
    put_parameters(&t);
    const float *losses = (const float *)t.file.data + graph_parameter_elements(t.graph), *norms = losses + STEPS;
    assert_int_equal(t.file.len, (size_t)(2 * graph_parameter_elements(t.graph) + 2 * STEPS) * sizeof(float));
    for (int step = 0; step < STEPS; step++) {
        double loss = run_step(&t);
        if (fabs(loss - (double)losses[step]) > 1e-4 * (double)losses[step])
            fail_msg("step %d: the loss is %.7g, PyTorch's %.7g", step + 1, loss, (double)losses[step]);
        if (fabs(t.control->decision.grad_norm - (double)norms[step]) > 1e-3 * (double)norms[step])
            fail_msg("step %d: the norm is %.7g, PyTorch's %.7g", step + 1, t.control->decision.grad_norm,
                     (double)norms[step]);
        if (step == 0)
            compare_gradients(&t, norms + STEPS);
    }
    trial_close(&t);
}

static void ten_steps_agree_with_pytorch(void **state) {
    (void)state;
    ten_steps_agree(BATCH, 1);
}

static void ten_accumulated_steps_agree_with_pytorch(void **state) {
    (void)state;
    ten_steps_agree(1, 1);
    ten_steps_agree(1, 4);
}

static void parameters_carry_hugging_face_names(void **state) {
    (void)state;
    struct trial t;
    trial_open(&t, BATCH, 1);
    assert_string_equal(t.graph->parameters[0].name, "transformer.wte.weight");
    assert_string_equal(t.graph->parameters[4].name, "transformer.h.0.attn.c_attn.weight");
    assert_int_equal(t.graph->parameters[4].shape.dim[0], 16);
    assert_int_equal(t.graph->parameters[4].shape.dim[1], 48);
    assert_string_equal(t.graph->parameters[t.graph->n_parameters - 1].name, "transformer.ln_f.bias");
    for (int i = 0; i < t.graph->n_parameters; i++)
        assert_int_equal(t.graph->parameters[i].decay, t.graph->parameters[i].shape.n > 1);
    trial_close(&t);
}

/* The loss is finite and its gradient is not: the message names the first op of the backward pass. */
static void a_gradient_that_is_no_number_is_traced_to_the_first_backward_op(void **state) {
    (void)state;
    struct trial t;
    uint64_t number = CULPRIT_NONE;
    trial_open(&t, 1, 1);
    put_parameters(&t);
    put_loss_gradient(&t, INFINITY);
    t.x.culprit = &number;
    run_step(&t);
    assert_int_equal(t.control->decision.update.skip, STEP_FAILED);
    struct culprit c = culprit_decode(t.graph, number);
    assert_true(c.backward);
    assert_int_equal(c.micro_batch, 0);
    assert_string_equal(c.op, t.graph->ops[t.graph->reverse[1].op].name); /* [0] is the loss, which needs no call */
    trial_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_steps_agree_with_pytorch),
        cmocka_unit_test(ten_accumulated_steps_agree_with_pytorch),
        cmocka_unit_test(parameters_carry_hugging_face_names),
        cmocka_unit_test(a_gradient_that_is_no_number_is_traced_to_the_first_backward_op),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
