/* Text from a checkpoint. The model is built from the checkpoint's layout, in fp32 on the CPU, with a forward-only plan
 * of one micro-batch of one sample. For each new token:
 *
 *   1. run the plan on the window of the newest `context` tokens. Attention is causal, so what follows the newest
 *      token in the window does not matter
 *   2. take the logits at the newest token: the likeliest one at temperature 0, else one drawn from the softmax with a
 *      counter-based random number
 *   3. append it, decode it to bytes, and write all whole UTF-8 characters; an incomplete character waits for more
 *      bytes, an invalid byte is written as U+FFFD
 */
#include "base/alloc.h"
#include "base/utf8.h"
#include "engine/checkpoint/reader.h"
#include "engine/checkpoint/tensor.h"
#include "engine/data/tokenizer.h"
#include "engine/graph/op.h"
#include "engine/model/model.h"
#include "engine/plan/build/plan_build.h"
#include "engine/plan/verify/verify.h"
#include "engine/run/engine.h"
#include "engine/run/execute.h"
#include "engine/run/weights.h"
#include "kernels/philox.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Separates these random numbers from those of dropout and initial weights under the same seed. */
static const uint64_t SAMPLE_STREAM = 0x6a09e667f3bcc909ULL;

/* Only the newest `context` tokens of a prompt matter. */
enum { MAX_PROMPT_BYTES = 1 << 20, TEXT_BYTES = 16 };

struct sampler {
    const struct engine_sample_request *request;
    struct checkpoint_reader *reader;
    struct tokenizer *tokenizer;
    struct model_config model;
    int context, vocabulary;
    struct kernels *kernels;
    struct graph *graph;
    struct plan *plan;
    struct arena arena;
    struct execution x;
    struct bytes incomplete; /* bytes of a character that is not complete */
    int32_t *window;         /* [context] */
    int length;              /* tokens in it */
    float *logits;           /* [vocabulary], of the newest token */
    double *weights;         /* [vocabulary] */
};

static void sampler_done(struct sampler *s) {
    execution_close(&s->x);
    arena_close(&s->arena);
    plan_free(s->plan);
    graph_free(s->graph);
    kernels_close(s->kernels);
    tokenizer_free(s->tokenizer);
    checkpoint_reader_close(s->reader);
    bytes_done(&s->incomplete);
    free(s->logits);
    free(s->window);
    free(s->weights);
}

static status_t read_model(struct sampler *s, struct err *e) {
    TRY(model_from_layout(checkpoint_reader_info(s->reader)->layout_json, &s->model, e));
    s->context = model_context(&s->model);
    s->vocabulary = model_vocabulary(&s->model);
    return s->context > 0 ? ST_OK
                          : err_set(e, ST_INVALID_ARGUMENT, "%s: a model of the family %s does not generate text",
                                    s->request->directory, s->model.kind->name);
}

static status_t build(struct sampler *s, struct err *e) {
    const struct kernels_config config = { .device = "cpu",
                                           .threads = s->request->threads > 0 ? s->request->threads : 1 };
    TRY(kernels_open(&config, &s->kernels, e));
    const struct model_data data = { .vocabulary = s->vocabulary };
    TRY(model_build(&s->model, &data, 1, DTYPE_F32, &s->graph, e));
    struct plan_layout layout = { .kind = PLAN_SAMPLE, .lanes = 1, .micro_batches = 1, .bucket_bytes = 1 << 20 };
    for (int i = 0; i < s->graph->n_ops; i++) {
        const struct op *op = &s->graph->ops[i];
        size_t bytes = op->kind->workspace ? op->kind->workspace(s->kernels, s->graph, op) : 0;
        if (layout.workspace_bytes < bytes)
            layout.workspace_bytes = bytes;
    }
    TRY(plan_build(s->graph, &layout, &s->plan, e));
    const struct plan *plan = s->plan;
    TRY(plan_verify(&plan, 1, e));
    TRY(arena_open(&s->arena, s->kernels, &plan, 1, e));
    TRY(execution_open(&s->x, s->kernels, &s->arena, &plan, 1, e));
    s->logits = alloc_zeroed((size_t)s->vocabulary, sizeof *s->logits);
    s->window = alloc_zeroed((size_t)s->context, sizeof *s->window);
    s->weights = alloc_zeroed((size_t)s->vocabulary, sizeof *s->weights);
    return ST_OK;
}

/* The checkpoint's tensor of a parameter: the weight or its average. */
static void name_tensor(const struct sampler *s, int parameter, char ret[CHECKPOINT_NAME_BYTES]) {
    snprintf(ret, CHECKPOINT_NAME_BYTES, "%s%s", s->request->average ? CHECKPOINT_AVERAGE_PREFIX : "",
             s->graph->parameters[parameter].name);
}

static status_t read_weight(void *ctx, int parameter, int64_t first, int64_t count, float *data, struct err *e) {
    struct sampler *s = ctx;
    char name[CHECKPOINT_NAME_BYTES];
    name_tensor(s, parameter, name);
    return checkpoint_reader_read(s->reader, name, first, count, data, e);
}

static status_t load_weights(struct sampler *s, struct err *e) {
    for (int i = 0; i < s->graph->n_parameters; i++) {
        const struct parameter *p = &s->graph->parameters[i];
        char name[CHECKPOINT_NAME_BYTES];
        name_tensor(s, i, name);
        const struct checkpoint_tensor *t = checkpoint_reader_find(s->reader, name);
        if (!t && s->request->average && checkpoint_reader_find(s->reader, p->name))
            return err_set(e, ST_FAILED_PRECONDITION,
                           "%s: the checkpoint has no averaged weights: it was trained without train.ema",
                           s->request->directory);
        if (!t || checkpoint_tensor_elements(t) != shape_elements(&p->shape))
            return err_set(e, ST_DATA_LOSS, "%s: tensor %s is missing or has another shape", s->request->directory,
                           name);
    }
    return weights_fill(&s->x, s->plan, read_weight, s, e);
}

static status_t load_window(void *ctx, int k, struct batch *ret, struct err *e) {
    (void)k, (void)e;
    const struct sampler *s = ctx;
    ret->of[BATCH_TOKENS] = s->window;
    return ST_OK;
}

/* Keeps the last `context` tokens. */
static void push(struct sampler *s, int32_t token) {
    if (s->length == s->context) {
        memmove(s->window, s->window + 1, (size_t)(s->length - 1) * sizeof *s->window);
        s->length--;
    }
    s->window[s->length++] = token;
}

static status_t push_prompt(struct sampler *s, struct err *e) {
    const char *prompt = s->request->prompt && *s->request->prompt ? s->request->prompt : "\n";
    size_t bytes = strlen(prompt), n = 0;
    if (bytes > MAX_PROMPT_BYTES)
        return err_set(e, ST_INVALID_ARGUMENT, "the prompt has %zu bytes, more than %d", bytes, MAX_PROMPT_BYTES);
    size_t capacity = tokenizer_capacity(s->tokenizer, bytes);
    CLEANUP(freep) int32_t *tokens = alloc_zeroed(capacity, sizeof *tokens);
    if (s->request->prompt && *s->request->prompt)
        TRY(tokenizer_encode(s->tokenizer, prompt, bytes, tokens, capacity, &n, e));
    else
        tokens[n++] = tokenizer_token(s->tokenizer, '\n') >= 0 ? tokenizer_token(s->tokenizer, '\n') : 0;
    for (size_t i = 0; i < n; i++)
        push(s, tokens[i]);
    return ST_OK;
}

static status_t take_logits(struct sampler *s, struct err *e) {
    const float *logits = execution_tensor(&s->x, s->plan, s->graph->logits, 0);
    TRY(s->kernels->download(s->kernels, s->logits, logits + (int64_t)(s->length - 1) * s->vocabulary,
                             (size_t)s->vocabulary * sizeof *s->logits, e));
    return s->kernels->finish(s->kernels, e);
}

static int32_t choose(struct sampler *s, int64_t number) {
    const float *logits = s->logits;
    const int n = tokenizer_vocabulary(s->tokenizer);
    int best = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    if (!(s->request->temperature > 0))
        return best;
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += s->weights[i] = exp(((double)logits[i] - (double)logits[best]) / s->request->temperature);
    uint32_t counter[4] = { (uint32_t)number, (uint32_t)((uint64_t)number >> 32), 0, 0 }, u[4];
    philox4x32_10(counter, (uint64_t)s->request->seed ^ SAMPLE_STREAM, u);
    double left = ((double)u[0] + 0.5) * 0x1p-32 * sum;
    for (int i = 0; i < n; i++)
        if ((left -= s->weights[i]) < 0)
            return i;
    return best;
}

/* Whether the bytes are the beginning of a valid character. */
static bool is_incomplete(const struct bytes *b) {
    unsigned char lead = (unsigned char)b->data[0];
    size_t whole = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 1;
    if (lead > 0xf4 || b->len >= whole)
        return false;
    for (size_t i = 1; i < b->len; i++)
        if (((unsigned char)b->data[i] & 0xc0) != 0x80)
            return false;
    return true;
}

/* Writes complete characters; NUL, and a byte that belongs to no character, as U+FFFD. Returns false to stop. */
static bool write_complete(struct sampler *s) {
    bool more = true;
    while (s->incomplete.len && more && !is_incomplete(&s->incomplete)) {
        char text[TEXT_BYTES] = "\xEF\xBF\xBD";
        size_t length;
        uint32_t point = utf8_next(s->incomplete.data, s->incomplete.len, &length);
        if (length && point) {
            memcpy(text, s->incomplete.data, length);
            text[length] = 0;
        }
        size_t used = length ? length : 1;
        s->incomplete.len -= used;
        memmove(s->incomplete.data, s->incomplete.data + used, s->incomplete.len);
        more = s->request->write(s->request->ctx, text);
    }
    return more;
}

static status_t generate(struct sampler *s, struct err *e) {
    s->x.load = load_window;
    s->x.load_ctx = s;
    bool more = true;
    for (int64_t i = 0; i < s->request->tokens && more; i++) {
        const struct step_control *ignored;
        TRY(execute_now(&s->x, s->plan, &ignored, e));
        TRY(take_logits(s, e));
        int32_t token = choose(s, i);
        push(s, token);
        TRY(tokenizer_decode(s->tokenizer, &token, 1, &s->incomplete, e));
        more = write_complete(s);
    }
    return ST_OK;
}

static status_t sample(struct sampler *s, struct err *e) {
    const struct checkpoint_reader_options options = { .roots = s->request->roots };
    TRY(checkpoint_reader_open(s->request->directory, &options, &s->reader, e));
    TRY(tokenizer_from_json(checkpoint_reader_info(s->reader)->tokenizer_json, &s->tokenizer, e));
    TRY(read_model(s, e));
    if (tokenizer_vocabulary(s->tokenizer) > s->vocabulary)
        return err_set(e, ST_DATA_LOSS, "%s: the tokenizer has %d tokens, the model only %d", s->request->directory,
                       tokenizer_vocabulary(s->tokenizer), s->vocabulary);
    TRY(build(s, e));
    TRY(load_weights(s, e));
    TRY(push_prompt(s, e));
    return generate(s, e);
}

status_t engine_sample(const struct engine_sample_request *request, struct err *e) {
    struct sampler s = { .request = request };
    bytes_init(&s.incomplete, TEXT_BYTES);
    status_t st = sample(&s, e);
    sampler_done(&s);
    return st;
}

status_t engine_verify(const char *directory, const struct roots *roots, struct err *e) {
    const struct checkpoint_reader_options options = { .roots = roots };
    CLEANUP(checkpoint_reader_closep) struct checkpoint_reader *reader = NULL;
    return checkpoint_reader_open(directory, &options, &reader, e);
}
