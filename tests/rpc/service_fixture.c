/* A controller in this process, and agents that the test plays.
 *
 * Each test starts a controller on a unix socket with a new database of the program's PostgreSQL cluster. An agent is a
 * channel with two calls: the control stream and the report stream. The threads of the RPC client append each order to
 * the agent's list and set its mark, its ends and its fences under the agent's lock; the test waits on the condition
 * variable. So a test reads as a script: agent_expect takes the next order, agent_say_* and agent_report send the
 * answer.
 *
 * A report is repeated on a new stream if the stream ends before the mark has arrived, as a real agent does. */
#include "tests/rpc/service_fixture.h"

#include "base/clock.h"
#include "base/limits.h"
#include "service/controller/spec_check.h"
#include "service/rpc/services.h"

#include <stdio.h>
#include <stdlib.h>
#include <trainyard/descriptors.h>
#include <unistd.h>

int service_group_setup(void **state) {
    struct service_fixture *y = calloc(1, sizeof *y);
    y->pg = pg_start();
    *state = y;
    return 0;
}

int service_group_teardown(void **state) {
    struct service_fixture *y = *state;
    pg_stop(y->pg);
    free(y);
    return 0;
}

void service_start_controller(struct service_fixture *y) {
    struct controller_options options = { .database = y->conninfo,
                                          .checkpoints = "/nowhere/checkpoints",
                                          .secret_key_files = y->secret_keys };
    while (options.n_secret_key_files < 2 && y->secret_keys[options.n_secret_key_files])
        options.n_secret_key_files++;
    struct rpc_server_config config = { .workers = 2 * SPEC_CHECK_MAX_CALLERS,
                                        .descriptors = trainyard_descriptors,
                                        .descriptors_len = trainyard_descriptors_len };
    char listen[RPC_ADDRESS_BYTES];
    snprintf(listen, sizeof listen, "unix:%s/s", y->directory);
    OK(controller_open(&options, &y->controller, &e));
    OK(rpc_server_open(&config, &y->server, &e));
    OK(rpc_services_add(y->server, y->controller, &e));
    OK(rpc_server_listen(y->server, listen, NULL, y->address, &e));
    OK(rpc_server_start(y->server, &e));
    OK(controller_wait_leading(y->controller, deadline_in(FIXTURE_PATIENCE_MS), &e));
}

void service_stop_controller(struct service_fixture *y) {
    dispatch_close_all(controller_dispatch(y->controller), ST_UNAVAILABLE, "the controller is stopping");
    y->server = rpc_server_close(y->server);
    y->controller = controller_close(y->controller);
}

int service_setup(void **state) {
    struct service_fixture *y = *state;
    snprintf(y->conninfo, sizeof y->conninfo, "%s", pg_database(y->pg, true));
    snprintf(y->directory, sizeof y->directory, "/tmp/service-test-XXXXXX");
    assert_non_null(mkdtemp(y->directory));
    service_start_controller(y);
    struct rpc_channel_config config = { .address = y->address };
    OK(rpc_channel_open(&config, &y->channel, &e));
    return 0;
}

int service_teardown(void **state) {
    struct service_fixture *y = *state;
    y->channel = rpc_channel_close(y->channel);
    service_stop_controller(y);
    rmdir(y->directory);
    return 0;
}

status_t service_call(struct service_fixture *y, const char *method, const ProtobufCMessage *request,
                      ProtobufCMessage **ret, struct err *e) {
    return rpc_call_unary(y->channel, &trainyard__v1__job_service__descriptor, method, request, FIXTURE_PATIENCE_MS,
                          ret, e);
}

Trainyard__V1__JobSpec *service_spec(int ranks, int max_restarts) {
    static char *files[] = { "file:///nowhere/text" };
    static Trainyard__V1__JobSpec spec;
    static Trainyard__V1__ModelSpec model;
    static Trainyard__V1__GptModel gpt;
    static Trainyard__V1__DataSpec data;
    static Trainyard__V1__TextData text;
    static Trainyard__V1__TrainSpec train;
    static Trainyard__V1__OptimizerSpec optimizer;
    static Trainyard__V1__AdamW adamw;
    static Trainyard__V1__ScheduleSpec schedule;
    static Trainyard__V1__ConstantSchedule constant;
    static Trainyard__V1__ParallelSpec parallel;
    static Trainyard__V1__RetrySpec retry;
    trainyard__v1__job_spec__init(&spec);
    trainyard__v1__model_spec__init(&model);
    trainyard__v1__gpt_model__init(&gpt);
    trainyard__v1__data_spec__init(&data);
    trainyard__v1__text_data__init(&text);
    trainyard__v1__train_spec__init(&train);
    trainyard__v1__optimizer_spec__init(&optimizer);
    trainyard__v1__adam_w__init(&adamw);
    trainyard__v1__schedule_spec__init(&schedule);
    trainyard__v1__constant_schedule__init(&constant);
    trainyard__v1__parallel_spec__init(&parallel);
    trainyard__v1__retry_spec__init(&retry);
    gpt.layers = gpt.heads = 1;
    gpt.width = gpt.context = 8;
    gpt._layers_case = TRAINYARD__V1__GPT_MODEL___LAYERS_LAYERS;
    gpt._heads_case = TRAINYARD__V1__GPT_MODEL___HEADS_HEADS;
    gpt._width_case = TRAINYARD__V1__GPT_MODEL___WIDTH_WIDTH;
    gpt._context_case = TRAINYARD__V1__GPT_MODEL___CONTEXT_CONTEXT;
    model.family_case = TRAINYARD__V1__MODEL_SPEC__FAMILY_GPT;
    model.gpt = &gpt;
    text.files = files;
    text.n_files = 1;
    data.source_case = TRAINYARD__V1__DATA_SPEC__SOURCE_TEXT;
    data.text = &text;
    optimizer.kind_case = TRAINYARD__V1__OPTIMIZER_SPEC__KIND_ADAMW;
    optimizer.adamw = &adamw;
    schedule.kind_case = TRAINYARD__V1__SCHEDULE_SPEC__KIND_CONSTANT;
    schedule.constant = &constant;
    train.steps = 10;
    train.global_batch = train.lanes = ranks > 8 ? ranks : 8;
    train._steps_case = TRAINYARD__V1__TRAIN_SPEC___STEPS_STEPS;
    train._global_batch_case = TRAINYARD__V1__TRAIN_SPEC___GLOBAL_BATCH_GLOBAL_BATCH;
    train._lanes_case = ranks > 1 ? TRAINYARD__V1__TRAIN_SPEC___LANES_LANES : 0;
    train.optimizer = &optimizer;
    train.learning_rate_schedule = &schedule;
    parallel._data_case = TRAINYARD__V1__PARALLEL_SPEC___DATA_DATA;
    parallel.data = ranks;
    retry._max_restarts_case = TRAINYARD__V1__RETRY_SPEC___MAX_RESTARTS_MAX_RESTARTS;
    retry.max_restarts = max_restarts;
    spec.name = "test";
    spec.model = &model;
    spec.data = &data;
    spec.train = &train;
    spec.parallel = &parallel;
    spec.retry = &retry;
    return &spec;
}

int64_t service_submit(struct service_fixture *y, int ranks, int max_restarts) {
    Trainyard__V1__CreateJobRequest request = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    request.spec = service_spec(ranks, max_restarts);
    request.wait_for_hosts = true; /* most tests create the job before its hosts */
    ProtobufCMessage *reply;
    OK(service_call(y, "CreateJob", &request.base, &reply, &e));
    int64_t job = atoll(((Trainyard__V1__Job *)reply)->name + strlen("jobs/"));
    protobuf_c_message_free_unpacked(reply, NULL);
    return job;
}

Trainyard__V1__Job *service_job(struct service_fixture *y, int64_t job) {
    char name[40];
    snprintf(name, sizeof name, "jobs/%lld", (long long)job);
    Trainyard__V1__GetJobRequest request = TRAINYARD__V1__GET_JOB_REQUEST__INIT;
    request.name = name;
    ProtobufCMessage *reply;
    OK(service_call(y, "GetJob", &request.base, &reply, &e));
    return (Trainyard__V1__Job *)reply;
}

/* Waits by WatchJob, which receives every change: no polling. */
void service_await_state(struct service_fixture *y, int64_t job, Trainyard__V1__Job__State state) {
    char name[40];
    snprintf(name, sizeof name, "jobs/%lld", (long long)job);
    Trainyard__V1__WatchJobRequest request = TRAINYARD__V1__WATCH_JOB_REQUEST__INIT;
    request.name = name;
    Trainyard__V1__Job *now = service_job(y, job);
    bool there = now->state == state;
    request.after_event = now->last_event;
    trainyard__v1__job__free_unpacked(now, NULL);
    struct rpc_stream *stream;
    OK(rpc_stream_open(y->channel, &trainyard__v1__job_service__descriptor, "WatchJob", &request.base,
                       FIXTURE_PATIENCE_MS, &stream, &e));
    while (!there) {
        const ProtobufCMessage *m;
        OK(rpc_stream_next(stream, &m, &e));
        if (!m)
            fail_msg("job %lld ended without state %d", (long long)job, (int)state);
        const Trainyard__V1__WatchJobResponse *update = (const void *)m;
        there = update->update_case == TRAINYARD__V1__WATCH_JOB_RESPONSE__UPDATE_EVENT && update->event->state == state;
    }
    rpc_stream_close(stream);
}

/* ---- agents ---- */

struct message {
    Trainyard__V1__ControllerMessage *order;
    struct message *next;
};

struct agent {
    char **features;
    size_t n_features;
    struct service_fixture *service;
    char id[SCHEDULER_EXECUTOR_ID_BYTES];
    int64_t incarnation;
    int slots;
    const char *hostname; /* of an agent that checks specs; NULL: it does not */
    struct rpc_channel *channel;
    struct rpc_call *control, *bulk;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct message *first, **last;
    Trainyard__V1__ControllerMessage *current;
    int64_t mark;
    struct {
        char cluster[40], nonce[40];
        int64_t epoch;
    } obeyed;
    bool closed, bulk_closed;
    bool fenced; /* as in the newest acknowledgement of a report */
    char why[200], bulk_why[200];
    pthread_t beats;
    pthread_cond_t freed;
    bool beating, freeing;
};

static void on_closed(struct rpc_call *call, status_t st, const char *why) {
    struct agent *a = rpc_user(call);
    pthread_mutex_lock(&a->lock);
    a->closed = true;
    snprintf(a->why, sizeof a->why, "%s: %s", status_name(st), why);
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

static void on_bulk_closed(struct rpc_call *call, status_t st, const char *why) {
    struct agent *a = rpc_user(call);
    pthread_mutex_lock(&a->lock);
    a->bulk_closed = true;
    snprintf(a->bulk_why, sizeof a->bulk_why, "%s: %s", status_name(st), why);
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

static void on_order(struct rpc_call *call, const ProtobufCMessage *m) {
    struct agent *a = rpc_user(call);
    size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *packed = malloc(n + 1);
    protobuf_c_message_pack(m, packed);
    struct message *copy = calloc(1, sizeof *copy);
    copy->order = trainyard__v1__controller_message__unpack(NULL, n, packed);
    free(packed);
    pthread_mutex_lock(&a->lock);
    *a->last = copy;
    a->last = &copy->next;
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

static void on_mark(struct rpc_call *call, const ProtobufCMessage *m) {
    struct agent *a = rpc_user(call);
    pthread_mutex_lock(&a->lock);
    a->mark = ((const Trainyard__V1__ReportAck *)m)->sequence;
    a->fenced = ((const Trainyard__V1__ReportAck *)m)->fenced;
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

struct agent *agent_new(struct service_fixture *y, const char *id, int64_t incarnation, int slots) {
    struct agent *a = calloc(1, sizeof *a);
    a->service = y;
    snprintf(a->id, sizeof a->id, "%s", id);
    a->incarnation = incarnation;
    a->slots = slots;
    a->last = &a->first;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    pthread_cond_init(&a->freed, NULL);
    struct rpc_channel_config config = { .address = y->address };
    OK(rpc_channel_open(&config, &a->channel, &e));
    return a;
}

struct agent *agent_new_checker(struct service_fixture *y, const char *id, const char *hostname) {
    struct agent *a = agent_new(y, id, 1, 1);
    a->hostname = hostname;
    agent_attach(a, NULL);
    return a;
}

static void *beat(void *agent) {
    struct agent *a = agent;
    Trainyard__V1__AgentHeartbeat heartbeat = TRAINYARD__V1__AGENT_HEARTBEAT__INIT;
    Trainyard__V1__AgentMessage m = TRAINYARD__V1__AGENT_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_HEARTBEAT;
    m.heartbeat = &heartbeat;
    pthread_mutex_lock(&a->lock);
    while (!a->freeing) {
        pthread_mutex_unlock(&a->lock);
        heartbeat.number++;
        rpc_send(a->control, &m.base);
        pthread_mutex_lock(&a->lock);
        struct timespec until = deadline_timespec(deadline_in(HEARTBEAT_INTERVAL_MS));
        if (!a->freeing)
            pthread_cond_clockwait(&a->freed, &a->lock, CLOCK_MONOTONIC, &until);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

void agent_attach_alive(struct agent *a) {
    agent_attach(a, NULL);
    assert_int_equal(pthread_create(&a->beats, NULL, beat, a), 0);
    a->beating = true;
}

static void stop_beating(struct agent *a) {
    pthread_mutex_lock(&a->lock);
    a->freeing = true;
    pthread_cond_signal(&a->freed);
    pthread_mutex_unlock(&a->lock);
    if (a->beating)
        pthread_join(a->beats, NULL);
}

void agent_free(struct agent *a) {
    stop_beating(a);
    if (a->control)
        rpc_cancel(a->control);
    if (a->bulk)
        rpc_cancel(a->bulk);
    rpc_unref(a->control);
    rpc_unref(a->bulk);
    rpc_channel_close(a->channel);
    for (struct message *m = a->first, *next; m; m = next) {
        next = m->next;
        trainyard__v1__controller_message__free_unpacked(m->order, NULL);
        free(m);
    }
    if (a->current)
        trainyard__v1__controller_message__free_unpacked(a->current, NULL);
    pthread_cond_destroy(&a->changed);
    pthread_cond_destroy(&a->freed);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

static void open_bulk(struct agent *a) {
    static const struct rpc_events bulk = { .message = on_mark, .done = on_bulk_closed };
    rpc_unref(a->bulk);
    a->bulk = NULL;
    a->bulk_closed = false;
    OK(rpc_start(a->channel, &trainyard__v1__dispatch_service__descriptor, "Report", RPC_BIDI, &bulk, a, NULL, 0,
                 &a->bulk, &e));
}

void agent_set_features(struct agent *a, char **features, size_t n) {
    a->features = features;
    a->n_features = n;
}

void agent_has_obeyed(struct agent *a, const char *cluster, int64_t epoch, const char *nonce) {
    snprintf(a->obeyed.cluster, sizeof a->obeyed.cluster, "%s", cluster);
    snprintf(a->obeyed.nonce, sizeof a->obeyed.nonce, "%s", nonce);
    a->obeyed.epoch = epoch;
}

void agent_hello(struct agent *a, Trainyard__V1__AttemptStatus *status) {
    static const struct rpc_events control = { .message = on_order, .done = on_closed };
    Trainyard__V1__AgentHello hello = TRAINYARD__V1__AGENT_HELLO__INIT;
    hello.executor = a->id;
    hello.incarnation = a->incarnation;
    hello.hostname = hello.address = hello.version = "test";
    if (a->hostname)
        hello.hostname = (char *)(uintptr_t)a->hostname;
    hello.checks_specs = a->hostname != NULL;
    hello.slots = a->slots;
    hello.features = a->features;
    hello.n_features = a->n_features;
    hello.attempts = &status;
    hello.n_attempts = status ? 1 : 0;
    hello.highest_epoch = a->obeyed.epoch;
    hello.epoch_nonce = a->obeyed.nonce;
    hello.cluster = a->obeyed.cluster;
    Trainyard__V1__AgentMessage m = TRAINYARD__V1__AGENT_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_HELLO;
    m.hello = &hello;
    OK(rpc_start(a->channel, &trainyard__v1__dispatch_service__descriptor, "Attach", RPC_BIDI, &control, a, &m.base, 0,
                 &a->control, &e));
    open_bulk(a);
}

void agent_attach(struct agent *a, Trainyard__V1__AttemptStatus *status) {
    agent_hello(a, status);
    agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_WELCOME);
}

const Trainyard__V1__ControllerMessage *agent_expect(struct agent *a,
                                                     Trainyard__V1__ControllerMessage__MessageCase kind) {
    struct timespec until = deadline_timespec(deadline_in(FIXTURE_PATIENCE_MS));
    if (a->current)
        trainyard__v1__controller_message__free_unpacked(a->current, NULL);
    a->current = NULL;
    pthread_mutex_lock(&a->lock);
    int rc = 0;
    while (!a->first && rc == 0)
        rc = pthread_cond_clockwait(&a->changed, &a->lock, CLOCK_MONOTONIC, &until);
    struct message *m = a->first;
    if (m) {
        a->first = m->next;
        if (!a->first)
            a->last = &a->first;
        a->current = m->order;
        free(m);
    }
    pthread_mutex_unlock(&a->lock);
    if (!a->current)
        fail_msg("%s: order %d did not come", a->id, (int)kind);
    if (a->current->message_case != kind)
        fail_msg("%s: order %d came instead of %d", a->id, (int)a->current->message_case, (int)kind);
    return a->current;
}

const char *agent_await_closed(struct agent *a) {
    struct timespec until = deadline_timespec(deadline_in(FIXTURE_PATIENCE_MS));
    pthread_mutex_lock(&a->lock);
    int rc = 0;
    while (!a->closed && rc == 0)
        rc = pthread_cond_clockwait(&a->changed, &a->lock, CLOCK_MONOTONIC, &until);
    pthread_mutex_unlock(&a->lock);
    if (rc != 0)
        fail_msg("%s: its stream did not end", a->id);
    return a->why;
}

bool agent_idle(struct agent *a) {
    pthread_mutex_lock(&a->lock);
    bool idle = !a->first;
    pthread_mutex_unlock(&a->lock);
    return idle;
}

static void say(struct agent *a, Trainyard__V1__AgentMessage *m) {
    assert_int_equal(rpc_send(a->control, &m->base), RPC_SENT);
}

void agent_say_started(struct agent *a, int64_t job, int attempt, int rank, int pid) {
    Trainyard__V1__RankStarted started = TRAINYARD__V1__RANK_STARTED__INIT;
    started.job = job;
    started.attempt = attempt;
    started.rank = rank;
    started.pid = pid;
    Trainyard__V1__AgentMessage m = TRAINYARD__V1__AGENT_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_RANK_STARTED;
    m.rank_started = &started;
    say(a, &m);
}

void agent_say_offer(struct agent *a, int64_t job, int attempt, int rank, const char *address) {
    Trainyard__V1__RankOffer offer = TRAINYARD__V1__RANK_OFFER__INIT;
    offer.job = job;
    offer.attempt = attempt;
    offer.rank = rank;
    offer.address = (ProtobufCBinaryData){ strlen(address), (uint8_t *)address };
    Trainyard__V1__AgentMessage m = TRAINYARD__V1__AGENT_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_RANK_OFFER;
    m.rank_offer = &offer;
    say(a, &m);
}

void agent_say_ready(struct agent *a, int64_t job, int attempt, int rank) {
    Trainyard__V1__RankJoined joined = TRAINYARD__V1__RANK_JOINED__INIT;
    Trainyard__V1__RankReady ready = TRAINYARD__V1__RANK_READY__INIT;
    ready.job = job;
    ready.attempt = attempt;
    ready.rank = rank;
    ready.joined = &joined;
    Trainyard__V1__AgentMessage m = TRAINYARD__V1__AGENT_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_RANK_READY;
    m.rank_ready = &ready;
    say(a, &m);
}

static void say_check(struct agent *a, Trainyard__V1__CheckOutput *output) {
    Trainyard__V1__AgentMessage m = TRAINYARD__V1__AGENT_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_CHECK_OUTPUT;
    m.check_output = output;
    say(a, &m);
}

void agent_say_problem(struct agent *a, int64_t check, const char *text, bool of_host) {
    Trainyard__V1__SpecProblem problem = TRAINYARD__V1__SPEC_PROBLEM__INIT;
    Trainyard__V1__CheckFinding finding = TRAINYARD__V1__CHECK_FINDING__INIT;
    Trainyard__V1__CheckOutput output = TRAINYARD__V1__CHECK_OUTPUT__INIT;
    problem.text = (char *)(uintptr_t)text;
    problem.of_host = of_host;
    finding.finding_case = TRAINYARD__V1__CHECK_FINDING__FINDING_PROBLEM;
    finding.problem = &problem;
    output.check = check;
    output.finding = &finding;
    say_check(a, &output);
}

void agent_say_checked(struct agent *a, int64_t check, status_t status, const char *message) {
    Trainyard__V1__CheckOutput output = TRAINYARD__V1__CHECK_OUTPUT__INIT;
    output.check = check;
    output.last = true;
    output.status = status;
    output.message = (char *)(uintptr_t)message;
    say_check(a, &output);
}

void agent_say_goodbye(struct agent *a) {
    Trainyard__V1__AgentGoodbye goodbye = TRAINYARD__V1__AGENT_GOODBYE__INIT;
    goodbye.reason = (char *)"SIGTERM";
    Trainyard__V1__AgentMessage m = TRAINYARD__V1__AGENT_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_GOODBYE;
    m.goodbye = &goodbye;
    say(a, &m);
}

void agent_say_ended(struct agent *a, int64_t job, int attempt, int rank, Trainyard__V1__WorkerEnd__Cause cause,
                     int64_t last_sequence) {
    Trainyard__V1__RankEnd end = TRAINYARD__V1__RANK_END__INIT, *ends = &end;
    end.rank = rank;
    end.cause = cause;
    end.message = cause == TRAINYARD__V1__WORKER_END__CAUSE__FINISHED ? "finished" : "died in a test";
    end.last_sequence = last_sequence;
    end.time_us = clock_wall_us();
    Trainyard__V1__AttemptEnded ended = TRAINYARD__V1__ATTEMPT_ENDED__INIT;
    ended.job = job;
    ended.attempt = attempt;
    ended.ranks = &ends;
    ended.n_ranks = 1;
    Trainyard__V1__AgentMessage m = TRAINYARD__V1__AGENT_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_ATTEMPT_ENDED;
    m.attempt_ended = &ended;
    say(a, &m);
}

void agent_report(struct agent *a, int64_t job, int attempt, int rank, int64_t first,
                  Trainyard__V1__WorkerRecord **records, size_t n) {
    Trainyard__V1__ReportBatch batch = TRAINYARD__V1__REPORT_BATCH__INIT;
    batch.executor = a->id;
    batch.incarnation = a->incarnation;
    batch.job = job;
    batch.attempt = attempt;
    batch.rank = rank;
    batch.first_sequence = first;
    ProtobufCBinaryData packed[AGENT_MAX_RECORDS];
    assert_true(n <= AGENT_MAX_RECORDS);
    for (size_t i = 0; i < n; i++) {
        packed[i].data = malloc(trainyard__v1__worker_record__get_packed_size(records[i]) + 1);
        assert_non_null(packed[i].data);
        packed[i].len = trainyard__v1__worker_record__pack(records[i], packed[i].data);
    }
    batch.records = packed;
    batch.n_records = n;
    struct timespec until = deadline_timespec(deadline_in(FIXTURE_PATIENCE_MS));
    const int64_t last = first + (int64_t)n - 1;
    int64_t mark = 0;
    bool again = false;
    for (int rc = 0; mark < last && rc == 0; again = true) {
        /* A stream ends with its epoch, and unacknowledged records are sent again. If they were already stored, the
         * attempt may have ended because of them, and the second batch is fenced. */
        if (a->bulk_closed)
            open_bulk(a);
        a->fenced = false;
        (void)rpc_send(a->bulk, &batch.base);
        pthread_mutex_lock(&a->lock);
        while (a->mark < last && !a->bulk_closed && !(again && a->fenced) && rc == 0)
            rc = pthread_cond_clockwait(&a->changed, &a->lock, CLOCK_MONOTONIC, &until);
        mark = again && a->fenced ? last : a->mark;
        pthread_mutex_unlock(&a->lock);
    }
    for (size_t i = 0; i < n; i++)
        free(packed[i].data);
    a->mark = 0;
    assert_int_equal(mark, last);
}

void agent_report_end(struct agent *a, int64_t job, int attempt, int rank, int world_size) {
    static char *names[] = { "loss" };
    static double values[] = { 1.5 };
    char file[40];
    snprintf(file, sizeof file, "rank-%d.safetensors", rank);
    Trainyard__V1__MetricRow metrics = TRAINYARD__V1__METRIC_ROW__INIT;
    metrics.step = 10;
    metrics.names = names;
    metrics.values = values;
    metrics.n_names = metrics.n_values = 1;
    Trainyard__V1__ShardReport shard = TRAINYARD__V1__SHARD_REPORT__INIT;
    shard.step = 10;
    shard.rank = rank;
    shard.world_size = world_size;
    shard.directory = "/nowhere/checkpoints/step-10";
    shard.file = file;
    shard.bytes = 1;
    shard.sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    shard.final = true;
    Trainyard__V1__WorkerEnd end = TRAINYARD__V1__WORKER_END__INIT;
    end.cause = TRAINYARD__V1__WORKER_END__CAUSE__FINISHED;
    end.message = "finished";
    end.step = 10;
    Trainyard__V1__WorkerRecord records[3] = { TRAINYARD__V1__WORKER_RECORD__INIT, TRAINYARD__V1__WORKER_RECORD__INIT,
                                               TRAINYARD__V1__WORKER_RECORD__INIT };
    Trainyard__V1__WorkerRecord *all[3] = { &records[0], &records[1], &records[2] };
    records[0].record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_METRICS;
    records[0].metrics = &metrics;
    records[1].record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_SHARD;
    records[1].shard = &shard;
    records[2].record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_END;
    records[2].end = &end;
    agent_report(a, job, attempt, rank, 1, all, 3);
}

void service_run(struct service_fixture *y, struct agent **agents, int n, int64_t job, int attempt) {
    char address[32];
    for (int r = 0; r < n; r++) {
        const Trainyard__V1__AttemptStart *start =
            agent_expect(agents[r], TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START)->start;
        assert_int_equal(start->job, job);
        assert_int_equal(start->attempt, attempt);
        assert_int_equal(start->world_size, n);
        assert_int_equal(start->n_ranks, 1);
        assert_int_equal(start->ranks[0], r);
        snprintf(address, sizeof address, "address-%d", r);
        agent_say_offer(agents[r], job, attempt, r, address);
    }
    for (int r = 0; r < n; r++) {
        const Trainyard__V1__Rendezvous *all =
            agent_expect(agents[r], TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_RENDEZVOUS)->rendezvous->rendezvous;
        assert_int_equal(all->n_addresses, n);
        for (int i = 0; i < n; i++) {
            snprintf(address, sizeof address, "address-%d", i);
            assert_int_equal(all->addresses[i].len, strlen(address));
            assert_memory_equal(all->addresses[i].data, address, strlen(address));
        }
        agent_say_ready(agents[r], job, attempt, r);
    }
    service_await_state(y, job, TRAINYARD__V1__JOB__STATE__RUNNING);
}

void service_finish(struct agent **agents, int n, int64_t job, int attempt) {
    for (int r = 0; r < n; r++)
        agent_report_end(agents[r], job, attempt, r, n);
    for (int r = 0; r < n; r++)
        assert_int_equal(
            agent_expect(agents[r], TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_COMMITTED)->committed->checkpoint->step,
            10);
    for (int r = 0; r < n; r++)
        agent_say_ended(agents[r], job, attempt, r, TRAINYARD__V1__WORKER_END__CAUSE__FINISHED, 3);
    for (int r = 0; r < n; r++)
        agent_expect(agents[r], TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_ACKNOWLEDGED);
}

void service_assert_job(struct service_fixture *y, int64_t id, Trainyard__V1__Job__State state, int attempt,
                        int restarts) {
    Trainyard__V1__Job *job = service_job(y, id);
    assert_int_equal(job->state, state);
    assert_int_equal(job->attempt, attempt);
    assert_int_equal(job->restarts, restarts);
    trainyard__v1__job__free_unpacked(job, NULL);
}

char service_last_reason[RPC_REASON_BYTES];

status_t service_call_by_name(struct service_fixture *y, const char *method, const char *name, struct err *e) {
    /* The requests of CancelJob, RetryJob, GetJob and DeleteJob begin with the same field. */
    Trainyard__V1__CancelJobRequest request = TRAINYARD__V1__CANCEL_JOB_REQUEST__INIT;
    Trainyard__V1__RetryJobRequest retry = TRAINYARD__V1__RETRY_JOB_REQUEST__INIT;
    Trainyard__V1__GetJobRequest get = TRAINYARD__V1__GET_JOB_REQUEST__INIT;
    request.name = retry.name = get.name = (char *)name;
    ProtobufCMessage *reply = NULL;
    const ProtobufCMessage *asked = *method == 'C' ? &request.base : *method == 'R' ? &retry.base : &get.base;
    status_t st = rpc_call_unary_reason(y->channel, &trainyard__v1__job_service__descriptor, method, asked,
                                        FIXTURE_PATIENCE_MS, &reply, service_last_reason, e);
    if (st == ST_OK)
        protobuf_c_message_free_unpacked(reply, NULL);
    return st;
}

static const char *await_bulk_closed(struct agent *a) {
    struct timespec until = deadline_timespec(deadline_in(FIXTURE_PATIENCE_MS));
    pthread_mutex_lock(&a->lock);
    for (int rc = 0; !a->bulk_closed && rc == 0;)
        rc = pthread_cond_clockwait(&a->changed, &a->lock, CLOCK_MONOTONIC, &until);
    assert_true(a->bulk_closed);
    pthread_mutex_unlock(&a->lock);
    return a->bulk_why;
}

const char *agent_report_bytes(struct agent *a, int64_t job, int attempt, int rank, int64_t sequence, const void *data,
                               size_t n, size_t times) {
    ProtobufCBinaryData *records = calloc(times, sizeof *records);
    assert_non_null(records);
    for (size_t i = 0; i < times; i++)
        records[i] = (ProtobufCBinaryData){ .len = n, .data = (uint8_t *)(uintptr_t)data };
    Trainyard__V1__ReportBatch batch = TRAINYARD__V1__REPORT_BATCH__INIT;
    batch.executor = a->id;
    batch.incarnation = a->incarnation;
    batch.job = job;
    batch.attempt = attempt;
    batch.rank = rank;
    batch.first_sequence = sequence;
    batch.records = records;
    batch.n_records = times;
    (void)rpc_send(a->bulk, &batch.base);
    free(records);
    return await_bulk_closed(a);
}

const char *agent_report_as(struct agent *a, const char *executor, int64_t incarnation, int64_t job) {
    Trainyard__V1__ReportBatch batch = TRAINYARD__V1__REPORT_BATCH__INIT;
    if (a->bulk_closed)
        open_bulk(a);
    batch.executor = a->id;
    batch.incarnation = a->incarnation;
    batch.job = job;
    batch.attempt = 1;
    batch.first_sequence = 1;
    assert_int_equal(rpc_send(a->bulk, &batch.base), RPC_SENT);
    batch.executor = (char *)(uintptr_t)executor;
    batch.incarnation = incarnation;
    (void)rpc_send(a->bulk, &batch.base);
    return await_bulk_closed(a);
}
