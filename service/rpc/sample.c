#include "service/controller/sample.h"

#include "base/alloc.h"
#include "service/rpc/name.h"
#include "service/rpc/sample_request.h"
#include "service/rpc/services.h"
#include "service/store/checkpoint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/checkpoint.pb-c.h>

#define SAMPLE_DEFAULT_TOKENS      200
#define SAMPLE_MAX_TOKENS          10000
#define SAMPLE_DEFAULT_TEMPERATURE 0.8
/* A longer prompt is useless: the model reads only the last `context` tokens. */
#define SAMPLE_PROMPT_BYTES (64 << 10)

static void on_text(void *ctx, const char *text) {
    Trainyard__V1__SampleResponse out = TRAINYARD__V1__SAMPLE_RESPONSE__INIT;
    out.text = (char *)text;
    if (rpc_send(ctx, &out.base) == RPC_FULL)
        rpc_finish(ctx, ST_RESOURCE_EXHAUSTED, "the client does not read its sample");
}

static void on_done(void *ctx, status_t st, const char *executor, const char *message) {
    (void)executor;
    rpc_finish(ctx, st, message);
}

static status_t checkpoint_of(struct controller *c, struct store_memory *m, const char *name,
                              struct store_checkpoint *ret, struct err *e) {
    int64_t job, id;
    TRY(name_job_or_checkpoint(name, &job, &id, e));
    if (id)
        TRY(store_checkpoint_get(controller_store(c), m, job, id, ret, e));
    else
        TRY(store_checkpoint_newest(controller_store(c), m, job, ret, e));
    if (ret->state != STORE_CHECKPOINT_COMMITTED)
        return err_set(e, ST_FAILED_PRECONDITION, "%s is not COMMITTED: only a whole checkpoint can be sampled", name);
    return ST_OK;
}

static status_t request_of(const Trainyard__V1__SampleRequest *in, Trainyard__V1__WorkerSample *ret, struct err *e) {
    ret->prompt = in->prompt;
    ret->seed = in->seed;
    ret->average = in->average;
    ret->tokens = in->_tokens_case ? in->tokens : SAMPLE_DEFAULT_TOKENS;
    ret->temperature = in->_temperature_case ? in->temperature : SAMPLE_DEFAULT_TEMPERATURE;
    if (ret->tokens < 1 || ret->tokens > SAMPLE_MAX_TOKENS)
        return err_set(e, ST_INVALID_ARGUMENT, "tokens: %d is not in 1..%d", (int)ret->tokens, SAMPLE_MAX_TOKENS);
    if (!(ret->temperature >= 0) || isinf(ret->temperature))
        return err_set(e, ST_INVALID_ARGUMENT, "temperature: %g is not a number from 0 up", ret->temperature);
    if (strlen(in->prompt) > SAMPLE_PROMPT_BYTES)
        return err_set(e, ST_INVALID_ARGUMENT, "prompt: %zu bytes are more than %d", strlen(in->prompt),
                       SAMPLE_PROMPT_BYTES);
    return ST_OK;
}

static status_t start(struct rpc_call *call, int64_t *sample, struct err *e) {
    const Trainyard__V1__SampleRequest *in = (const void *)rpc_request(call);
    struct controller *c = rpc_service(call);
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    Trainyard__V1__WorkerSample request = TRAINYARD__V1__WORKER_SAMPLE__INIT;
    struct store_checkpoint row;
    struct store_keys keys;
    TRY(request_of(in, &request, e));
    TRY(checkpoint_of(c, m, in->name, &row, e));
    const struct sample_sink sink = { .text = on_text, .done = on_done, .ctx = call };
    status_t st = sample_request_set(c, &row, &keys, &request, e);
    if (st == ST_OK)
        st = sample_start(controller_samples(c), &request, &sink, sample, e);
    store_keys_done(&keys);
    return st;
}

void rpc_sample_open(struct rpc_call *call) { rpc_set_user(call, alloc_zeroed(1, sizeof(int64_t))); }

void rpc_sample_work(struct rpc_call *call) {
    struct err e;
    int64_t *sample = rpc_user(call);
    if (*sample)
        return;
    status_t st = start(call, sample, &e);
    if (st != ST_OK)
        rpc_finish(call, st, e.msg);
}

void rpc_sample_done(struct rpc_call *call, status_t status, const char *why) {
    (void)status;
    (void)why;
    int64_t *sample = rpc_user(call);
    sample_stop(controller_samples(rpc_service(call)), *sample);
    free(sample);
}
