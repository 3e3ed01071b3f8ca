#include "bench/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <trainyard/v1/dispatch.pb-c.h>

void bench_fail(const char *what, const char *why) {
    fprintf(stderr, "bench: %s: %s\n", what, why);
    exit(1);
}

void bench_request_id(char ret[37]) {
    unsigned char r[16];
    if (getrandom(r, sizeof r, 0) != (ssize_t)sizeof r)
        bench_fail("getrandom", "too few bytes");
    r[6] = (unsigned char)((r[6] & 0x0f) | 0x40);
    r[8] = (unsigned char)((r[8] & 0x3f) | 0x80);
    snprintf(ret, 37, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", r[0], r[1], r[2], r[3],
             r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11], r[12], r[13], r[14], r[15]);
}

Trainyard__V1__JobSpec *bench_spec(const char *text, int ranks, int64_t steps) {
    static Trainyard__V1__JobSpec spec;
    static Trainyard__V1__ModelSpec model;
    static Trainyard__V1__GptModel gpt;
    static Trainyard__V1__DataSpec data;
    static Trainyard__V1__TextData source;
    static Trainyard__V1__TrainSpec train;
    static Trainyard__V1__OptimizerSpec optimizer;
    static Trainyard__V1__AdamW adamw;
    static Trainyard__V1__EvalSpec eval;
    static Trainyard__V1__ParallelSpec parallel;
    static char uri[4096], *files[] = { uri };

    snprintf(uri, sizeof uri, "file://%s", text);
    trainyard__v1__gpt_model__init(&gpt);
    gpt.layers = 2, gpt._layers_case = TRAINYARD__V1__GPT_MODEL___LAYERS_LAYERS;
    gpt.heads = 2, gpt._heads_case = TRAINYARD__V1__GPT_MODEL___HEADS_HEADS;
    gpt.width = 32, gpt._width_case = TRAINYARD__V1__GPT_MODEL___WIDTH_WIDTH;
    gpt.context = 32, gpt._context_case = TRAINYARD__V1__GPT_MODEL___CONTEXT_CONTEXT;
    trainyard__v1__model_spec__init(&model);
    model.family_case = TRAINYARD__V1__MODEL_SPEC__FAMILY_GPT, model.gpt = &gpt;
    trainyard__v1__text_data__init(&source);
    source.files = files, source.n_files = 1;
    trainyard__v1__data_spec__init(&data);
    data.source_case = TRAINYARD__V1__DATA_SPEC__SOURCE_TEXT, data.text = &source;
    trainyard__v1__adam_w__init(&adamw);
    trainyard__v1__optimizer_spec__init(&optimizer);
    optimizer.kind_case = TRAINYARD__V1__OPTIMIZER_SPEC__KIND_ADAMW, optimizer.adamw = &adamw;
    trainyard__v1__eval_spec__init(&eval);
    trainyard__v1__train_spec__init(&train);
    train.steps = steps, train._steps_case = TRAINYARD__V1__TRAIN_SPEC___STEPS_STEPS;
    train.global_batch = 8, train._global_batch_case = TRAINYARD__V1__TRAIN_SPEC___GLOBAL_BATCH_GLOBAL_BATCH;
    train.lanes = 8, train._lanes_case = TRAINYARD__V1__TRAIN_SPEC___LANES_LANES;
    train.optimizer = &optimizer, train.eval = &eval;
    trainyard__v1__parallel_spec__init(&parallel);
    parallel._data_case = TRAINYARD__V1__PARALLEL_SPEC___DATA_DATA, parallel.data = ranks;
    trainyard__v1__job_spec__init(&spec);
    spec.name = "bench", spec.model = &model, spec.data = &data, spec.train = &train, spec.parallel = &parallel;
    return &spec;
}

struct rpc_call *bench_executor(struct rpc_channel *channel, int number, int slots, const struct rpc_events *events) {
    char id[64];
    snprintf(id, sizeof id, "simulated-%d", number);
    Trainyard__V1__AgentHello hello = TRAINYARD__V1__AGENT_HELLO__INIT;
    hello.executor = id, hello.incarnation = 1, hello.version = TRAINYARD_VERSION, hello.hostname = id;
    hello.address = "127.0.0.1", hello.device_reason = "simulated", hello.slots = slots;
    Trainyard__V1__AgentMessage first = TRAINYARD__V1__AGENT_MESSAGE__INIT;
    first.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_HELLO, first.hello = &hello;
    struct err e;
    struct rpc_call *call;
    if (rpc_start(channel, &trainyard__v1__dispatch_service__descriptor, "Attach", RPC_BIDI, events, NULL, &first.base,
                  0, &call, &e) != ST_OK)
        bench_fail("Attach", e.msg);
    return call;
}
