#include "tests/rpc/service_yard.h"

#include "base/clock.h"
#include "base/limits.h"
#include "service/rpc/services.h"

#include <stdio.h>
#include <stdlib.h>
#include <trainyard/descriptors.h>
#include <unistd.h>

int yard_group_setup(void **state) {
    struct service_yard *y = calloc(1, sizeof *y);
    y->pg = pg_start();
    *state = y;
    return 0;
}

int yard_group_teardown(void **state) {
    struct service_yard *y = *state;
    pg_stop(y->pg);
    free(y);
    return 0;
}

void yard_start_controller(struct service_yard *y) {
    struct controller_options options = { .database = y->conninfo, .checkpoints = "/nowhere/checkpoints" };
    struct rpc_server_config config = { .descriptors = trainyard_descriptors,
                                        .descriptors_len = trainyard_descriptors_len };
    char listen[RPC_ADDRESS_BYTES];
    snprintf(listen, sizeof listen, "unix:%s/s", y->directory);
    OK(controller_open(&options, &y->controller, &e));
    OK(rpc_server_open(&config, &y->server, &e));
    OK(rpc_services_add(y->server, y->controller, &e));
    OK(rpc_server_listen(y->server, listen, NULL, y->address, &e));
    OK(rpc_server_start(y->server, &e));
    OK(controller_wait_leading(y->controller, deadline_in(YARD_PATIENCE_MS), &e));
}

void yard_stop_controller(struct service_yard *y) {
    dispatch_close_all(controller_dispatch(y->controller), ST_UNAVAILABLE, "the controller is stopping");
    y->server = rpc_server_close(y->server);
    y->controller = controller_close(y->controller);
}

int yard_setup(void **state) {
    struct service_yard *y = *state;
    snprintf(y->conninfo, sizeof y->conninfo, "%s", pg_database(y->pg, true));
    snprintf(y->directory, sizeof y->directory, "/tmp/service-test-XXXXXX");
    assert_non_null(mkdtemp(y->directory));
    yard_start_controller(y);
    struct rpc_channel_config config = { .address = y->address };
    OK(rpc_channel_open(&config, &y->channel, &e));
    return 0;
}

int yard_teardown(void **state) {
    struct service_yard *y = *state;
    y->channel = rpc_channel_close(y->channel);
    yard_stop_controller(y);
    rmdir(y->directory);
    return 0;
}

status_t yard_call(struct service_yard *y, const char *method, const ProtobufCMessage *request, ProtobufCMessage **ret,
                   struct err *e) {
    return rpc_call_unary(y->channel, &trainyard__v1__job_service__descriptor, method, request, YARD_PATIENCE_MS, ret,
                          e);
}

Trainyard__V1__JobSpec *yard_spec(int ranks, int max_restarts) {
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
    train.global_batch = 8;
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

int64_t yard_submit(struct service_yard *y, int ranks, int max_restarts) {
    Trainyard__V1__CreateJobRequest request = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    request.spec = yard_spec(ranks, max_restarts);
    ProtobufCMessage *reply;
    OK(yard_call(y, "CreateJob", &request.base, &reply, &e));
    int64_t job = atoll(((Trainyard__V1__Job *)reply)->name + strlen("jobs/"));
    protobuf_c_message_free_unpacked(reply, NULL);
    return job;
}

Trainyard__V1__Job *yard_job(struct service_yard *y, int64_t job) {
    char name[40];
    snprintf(name, sizeof name, "jobs/%lld", (long long)job);
    Trainyard__V1__GetJobRequest request = TRAINYARD__V1__GET_JOB_REQUEST__INIT;
    request.name = name;
    ProtobufCMessage *reply;
    OK(yard_call(y, "GetJob", &request.base, &reply, &e));
    return (Trainyard__V1__Job *)reply;
}

/* A watcher is told of every change: nothing is polled. */
void yard_await_state(struct service_yard *y, int64_t job, Trainyard__V1__Job__State state) {
    char name[40];
    snprintf(name, sizeof name, "jobs/%lld", (long long)job);
    Trainyard__V1__WatchJobRequest request = TRAINYARD__V1__WATCH_JOB_REQUEST__INIT;
    request.name = name;
    Trainyard__V1__Job *now = yard_job(y, job);
    bool there = now->state == state;
    request.after_event = now->last_event;
    trainyard__v1__job__free_unpacked(now, NULL);
    struct rpc_stream *stream;
    OK(rpc_stream_open(y->channel, &trainyard__v1__job_service__descriptor, "WatchJob", &request.base, YARD_PATIENCE_MS,
                       &stream, &e));
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
    struct service_yard *yard;
    char id[SCHEDULER_EXECUTOR_ID_BYTES];
    int64_t incarnation;
    int slots;
    struct rpc_channel *channel;
    struct rpc_call *control, *bulk;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct message *first, **last;
    Trainyard__V1__ControllerMessage *current;
    int64_t mark;
    bool closed;
    char why[200];
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
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

struct agent *agent_new(struct service_yard *y, const char *id, int64_t incarnation, int slots) {
    struct agent *a = calloc(1, sizeof *a);
    a->yard = y;
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

void agent_hello(struct agent *a, Trainyard__V1__AttemptStatus *status) {
    static const struct rpc_events control = { .message = on_order, .done = on_closed }, bulk = { .message = on_mark };
    Trainyard__V1__AgentHello hello = TRAINYARD__V1__AGENT_HELLO__INIT;
    hello.executor = a->id;
    hello.incarnation = a->incarnation;
    hello.hostname = hello.address = hello.version = "test";
    hello.slots = a->slots;
    hello.attempts = &status;
    hello.n_attempts = status ? 1 : 0;
    Trainyard__V1__AgentMessage m = TRAINYARD__V1__AGENT_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_HELLO;
    m.hello = &hello;
    OK(rpc_start(a->channel, &trainyard__v1__dispatch_service__descriptor, "Attach", RPC_BIDI, &control, a, &m.base, 0,
                 &a->control, &e));
    OK(rpc_start(a->channel, &trainyard__v1__dispatch_service__descriptor, "Report", RPC_BIDI, &bulk, a, NULL, 0,
                 &a->bulk, &e));
}

void agent_attach(struct agent *a, Trainyard__V1__AttemptStatus *status) {
    agent_hello(a, status);
    agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_WELCOME);
}

const Trainyard__V1__ControllerMessage *agent_expect(struct agent *a,
                                                     Trainyard__V1__ControllerMessage__MessageCase kind) {
    struct timespec until = deadline_timespec(deadline_in(YARD_PATIENCE_MS));
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
    struct timespec until = deadline_timespec(deadline_in(YARD_PATIENCE_MS));
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
    batch.records = records;
    batch.n_records = n;
    assert_int_equal(rpc_send(a->bulk, &batch.base), RPC_SENT);
    struct timespec until = deadline_timespec(deadline_in(YARD_PATIENCE_MS));
    pthread_mutex_lock(&a->lock);
    int rc = 0;
    const int64_t last = first + (int64_t)n - 1;
    while (a->mark < last && rc == 0)
        rc = pthread_cond_clockwait(&a->changed, &a->lock, CLOCK_MONOTONIC, &until);
    int64_t mark = a->mark;
    a->mark = 0;
    pthread_mutex_unlock(&a->lock);
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

void yard_run(struct service_yard *y, struct agent **agents, int n, int64_t job, int attempt) {
    char address[32];
    for (int r = 0; r < n; r++) {
        const Trainyard__V1__StartAttempt *start =
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
    yard_await_state(y, job, TRAINYARD__V1__JOB__STATE__RUNNING);
}

void yard_finish(struct agent **agents, int n, int64_t job, int attempt) {
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
