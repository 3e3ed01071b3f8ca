/* DispatchService: the two streams by which an agent is connected to its controller.
 *
 * Attach is the control stream. Its first message must be the hello, which names the executor, its incarnation and its
 * slots. The hello is checked and registered with dispatch_attach, which returns a ticket. A stream without a ticket
 * may send nothing else. Each later message renews the lease. Heartbeats need no more than that; the output of spec
 * checks and of samples goes to the calls that wait for it; all other messages go to the loop of the controller.
 *
 * Report is the bulk stream: batches of records from the agent, acknowledgements to the agent. A batch is accepted only
 * if the same caller has attached that executor, and no newer start of its agent has. All batches of a stream come from
 * one start of one executor. The store refuses the records of a rank that is placed elsewhere. Every record of a batch
 * is checked, then the batch is put into the ingest queue. The stream is paused before the put and resumed when ingest
 * has capacity again, so that HTTP/2's flow control slows the agent down instead of the controller's memory growing. */
#include "api/rpc/wire.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/utf8.h"
#include "service/controller/spec_check.h"
#include "service/rpc/services.h"
#include "service/scheduler/feature.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)DISPATCH_CALLER_BYTES == RPC_CALLER_BYTES, "a caller's name is kept whole");

/* One agent's control stream. */
struct agent {
    struct controller *controller;
    struct rpc_call *call;
    uint64_t ticket; /* 0 before the hello */
    char executor[SCHEDULER_EXECUTOR_ID_BYTES];
    int64_t incarnation;
};

static bool link_send(void *ctx, const Trainyard__V1__ControllerMessage *m) {
    return rpc_send(((struct agent *)ctx)->call, &m->base) == RPC_SENT;
}

static void link_close(void *ctx, status_t st, const char *why) { rpc_finish(((struct agent *)ctx)->call, st, why); }

static void attach_open(struct rpc_call *call) {
    struct agent *agent = alloc_zeroed(1, sizeof *agent);
    agent->controller = rpc_service(call);
    agent->call = call;
    rpc_set_user(call, agent);
}

/* An id is used in names of files and as a key of rows: letters, digits, '-', '_' and '.'. */
static bool id_is_good(const char *id) {
    size_t n = strlen(id);
    if (n == 0 || n >= SCHEDULER_EXECUTOR_ID_BYTES)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)id[i]) && !strchr("-_.", id[i]))
            return false;
    return true;
}

/* An attempt has at most LIMIT_WORLD_SIZE ranks: the memory for what an agent reports about them is small. */
static status_t check_n_ranks(int64_t job, size_t n, struct err *e) {
    if (n <= LIMIT_WORLD_SIZE)
        return ST_OK;
    return err_set(e, ST_INVALID_ARGUMENT, "job %lld: %zu ranks of one attempt are reported, at most %d are allowed",
                   (long long)job, n, LIMIT_WORLD_SIZE);
}

static status_t check_hello(struct agent *agent, const Trainyard__V1__AgentHello *h, struct err *e) {
    if (!id_is_good(h->executor))
        return err_set(e, ST_INVALID_ARGUMENT, "hello.executor: '%.80s' is not an id", h->executor);
    if (h->slots < 0 || h->slots > LIMIT_WORLD_SIZE)
        return err_set(e, ST_INVALID_ARGUMENT, "hello.slots: %d is not in 0..%d", (int)h->slots, LIMIT_WORLD_SIZE);
    for (size_t i = 0; i < h->n_attempts; i++) {
        const Trainyard__V1__AttemptStatus *a = h->attempts[i];
        TRY(check_n_ranks(a->job, a->n_ranks, e));
        TRY(check_n_ranks(a->job, a->end ? a->end->n_ranks : 0, e));
    }
    return controller_admit(agent->controller, h, e);
}

static status_t refuse_foreign(const struct rpc_call *call, const char *executor, struct err *e) {
    return err_set(e, ST_PERMISSION_DENIED, "executor %.80s is attached by the token of another caller than '%s'",
                   executor, rpc_caller(call));
}

/* The features that no job needs, but a request for a sample. */
static unsigned ability_read(const char *feature) {
    return strcmp(feature, "sample_average") == 0  ? DISPATCH_SAMPLE_AVERAGE
           : strcmp(feature, "store_samples") == 0 ? DISPATCH_STORE_SAMPLES
                                                   : 0;
}

static bool text_take(const char *text, char *ret, size_t cap) {
    for (const char *at = text; *at; at++)
        if (*at <= ' ' || *at >= 0x7f)
            return false;
    return snprintf(ret, cap, "%s", text) < (int)cap;
}

/* What cannot be one is not passed on. */
static struct dispatch_cache cache_of(const Trainyard__V1__CachePeer *offer) {
    struct dispatch_cache cache = { 0 };
    if (offer && strncmp(offer->url, "http", 4) == 0 && *offer->token &&
        text_take(offer->url, cache.url, sizeof cache.url) &&
        text_take(offer->token, cache.token, sizeof cache.token) && text_take(offer->key, cache.key, sizeof cache.key))
        return cache;
    return (struct dispatch_cache){ 0 };
}

static struct dispatch_host host_of(const Trainyard__V1__AgentHello *h) {
    struct dispatch_host host = { .cpu = h->slots > 0, .checks = h->checks_specs, .cache = cache_of(h->cache) };
    for (size_t i = 0; i < h->n_features; i++) {
        host.stores |= strcmp(h->features[i], SCHEDULER_STORE_CHECKPOINTS) == 0;
        host.abilities |= ability_read(h->features[i]);
    }
    utf8_printable(h->hostname, strnlen(h->hostname, sizeof host.hostname - 1), "", host.hostname);
    for (size_t i = 0; i < h->n_devices && !host.cuda; i++)
        host.cuda = strcmp(h->devices[i]->kind, "cuda") == 0 &&
                    h->devices[i]->state == TRAINYARD__V1__DEVICE__STATE__HEALTHY;
    return host;
}

static status_t hello(struct agent *agent, const Trainyard__V1__AgentMessage *m, struct err *e) {
    const Trainyard__V1__AgentHello *h = m->hello;
    if (agent->ticket)
        return err_set(e, ST_INVALID_ARGUMENT, "executor %s sent a second hello", agent->executor);
    TRY(check_hello(agent, h, e));
    snprintf(agent->executor, sizeof agent->executor, "%s", h->executor);
    agent->incarnation = h->incarnation;
    struct dispatch_link link = { .send = link_send,
                                  .close = link_close,
                                  .ctx = agent,
                                  .caller = rpc_caller(agent->call),
                                  .token = rpc_has_token(agent->call),
                                  .host = host_of(h) };
    agent->ticket = dispatch_attach(controller_dispatch(agent->controller), agent->executor, h->incarnation, &link);
    if (!agent->ticket &&
        !dispatch_admits(controller_dispatch(agent->controller), h->executor, rpc_caller(agent->call)))
        return refuse_foreign(agent->call, h->executor, e);
    char other[sizeof link.host.hostname];
    if (!agent->ticket &&
        dispatch_is_copy(controller_dispatch(agent->controller), h->executor, link.host.hostname, other))
        return err_set(
            e, ST_ABORTED,
            "executor %s is attached from host '%s', and now attaches from host '%s', too: the --directory of "
            "one is a copy of the other's; start this executor with an empty one",
            h->executor, other, link.host.hostname);
    if (!agent->ticket)
        return err_set(e, ST_ABORTED, "a newer start of executor %s has attached", agent->executor);
    return controller_handle_agent_message(agent->controller, agent->executor, agent->incarnation, agent->ticket, m, e);
}

static status_t said(struct agent *agent, const Trainyard__V1__AgentMessage *m, struct err *e) {
    if (m->message_case == TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_HELLO)
        return hello(agent, m, e);
    if (!agent->ticket)
        return err_set(e, ST_INVALID_ARGUMENT, "an executor's first message must be its hello");
    dispatch_mark_seen(controller_dispatch(agent->controller), agent->ticket);
    if (m->message_case == TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_HEARTBEAT) {
        dispatch_heartbeat(controller_dispatch(agent->controller), agent->ticket, m->heartbeat);
        return ST_OK;
    }
    /* The loop checks it for the other messages: it may welcome the stream before it handles them. */
    const bool welcomed = dispatch_is_welcomed(controller_dispatch(agent->controller), agent->ticket);
    if (m->message_case == TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_CHECK_OUTPUT) {
        if (!welcomed)
            return ST_OK;
        spec_check_handle_output(controller_spec_checks(agent->controller), agent->executor, m->check_output);
        return ST_OK;
    }
    if (m->message_case == TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_SAMPLE_OUTPUT) {
        if (!welcomed)
            return ST_OK;
        sample_output(controller_samples(agent->controller), agent->executor, m->sample_output);
        return ST_OK;
    }
    if (m->message_case == TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_ATTEMPT_ENDED)
        TRY(check_n_ranks(m->attempt_ended->job, m->attempt_ended->n_ranks, e));
    if (m->message_case == TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_GOODBYE)
        dispatch_leave(controller_dispatch(agent->controller), agent->ticket);
    return controller_handle_agent_message(agent->controller, agent->executor, agent->incarnation, agent->ticket, m, e);
}

static void attach_message(struct rpc_call *call, const ProtobufCMessage *message) {
    struct agent *agent = rpc_user(call);
    struct err e;
    status_t st = said(agent, (const void *)message, &e);
    if (st != ST_OK)
        rpc_finish(call, st, e.msg);
}

static void attach_half_closed(struct rpc_call *call) { rpc_finish(call, ST_OK, NULL); }

static void attach_done(struct rpc_call *call, status_t status, const char *why) {
    struct agent *agent = rpc_user(call);
    if (agent->ticket) {
        dispatch_detach(controller_dispatch(agent->controller), agent->ticket);
        controller_stream_ended(agent->controller);
        /* A newer stream of this executor may have attached meanwhile. */
        if (!dispatch_attached(controller_dispatch(agent->controller), agent->executor)) {
            sample_executor_gone(controller_samples(agent->controller), agent->executor);
            spec_checks_executor_detached(controller_spec_checks(agent->controller), agent->executor);
        }
        log_event(LOG_INFO, "executor_detached", "executor", LOG_STR(agent->executor), "status",
                  LOG_STR(status_name(status)), "reason", LOG_STR(why), NULL);
    }
    free(agent);
}

/* The report stream: batches arrive, acknowledgements with high-water marks are sent. */
static void report_ack(void *ctx, const Trainyard__V1__ReportAck *ack) {
    (void)rpc_send(ctx, &ack->base); /* an acknowledgement that is not sent is covered by the next one */
}

static void report_resume(void *ctx) { rpc_resume(ctx); }
static void report_end(void *ctx, status_t st, const char *why) { rpc_finish(ctx, st, why); }

/* One agent's report stream. */
struct reporter {
    struct ingest_source *source;
    char executor[SCHEDULER_EXECUTOR_ID_BYTES]; /* "" before the first batch */
    int64_t incarnation;
};

static void report_open(struct rpc_call *call) {
    static const struct ingest_source_ops ops = { .ack = report_ack, .resume = report_resume, .end = report_end };
    struct reporter *reporter = alloc_zeroed(1, sizeof *reporter);
    reporter->source = ingest_source_start(controller_ingest(rpc_service(call)), &ops, call);
    rpc_set_user(call, reporter);
}

/* Refuses a batch with the matching error. The report stream may open before the control stream has attached the
 * executor, and may end after it. In both cases the agent gets UNAVAILABLE and opens the stream again; its spool keeps
 * the records until then. */
static status_t refuse_report(const struct rpc_call *call, const char *executor, struct err *e) {
    if (!executor[0])
        return err_set(e, ST_INVALID_ARGUMENT, "the report names no executor");
    if (!dispatch_admits(controller_dispatch(rpc_service(call)), executor, rpc_caller(call)))
        return refuse_foreign(call, executor, e);
    return err_set(e, ST_UNAVAILABLE, "executor %.80s is not attached by caller '%s': attach it, then report again",
                   executor, rpc_caller(call));
}

/* The runtime has checked the batch as a message, but a record is only a bytes field to it. */
static status_t check_records(const Trainyard__V1__ReportBatch *batch, struct err *e) {
    if (batch->n_records > LIMIT_BATCH_RECORDS)
        return err_set(e, ST_INVALID_ARGUMENT, "records: %zu in one batch, at most %d are allowed", batch->n_records,
                       LIMIT_BATCH_RECORDS);
    for (size_t i = 0; i < batch->n_records; i++) {
        const ProtobufCBinaryData *record = &batch->records[i];
        struct err why;
        status_t st = wire_check(&trainyard__v1__worker_record__descriptor, record->data, record->len, &why);
        if (st != ST_OK)
            return err_set(e, st, "records[%zu]: %s", i, why.msg);
    }
    return ST_OK;
}

/* The first batch of a stream binds it to its sender. */
static status_t check_sender(const struct rpc_call *call, struct reporter *reporter,
                             const Trainyard__V1__ReportBatch *batch, struct err *e) {
    if (!dispatch_admits_reports(controller_dispatch(rpc_service(call)), batch->executor, batch->incarnation,
                                 rpc_caller(call)))
        return refuse_report(call, batch->executor, e);
    if (!reporter->executor[0]) {
        if (!id_is_good(batch->executor))
            return err_set(e, ST_INVALID_ARGUMENT, "the report's executor '%.80s' is not an id", batch->executor);
        snprintf(reporter->executor, sizeof reporter->executor, "%s", batch->executor);
        reporter->incarnation = batch->incarnation;
    }
    if (strcmp(reporter->executor, batch->executor) == 0 && reporter->incarnation == batch->incarnation)
        return ST_OK;
    return err_set(
        e, ST_INVALID_ARGUMENT,
        "a report stream of executor %s, start %lld, got a batch of executor %.80s, start %lld: each start of "
        "an executor reports on a stream of its own",
        reporter->executor, (long long)reporter->incarnation, batch->executor, (long long)batch->incarnation);
}

static void report_message(struct rpc_call *call, const ProtobufCMessage *message) {
    const Trainyard__V1__ReportBatch *batch = (const void *)message;
    struct reporter *reporter = rpc_user(call);
    struct err e;
    status_t st = check_sender(call, reporter, batch, &e);
    if (st == ST_OK)
        st = check_records(batch, &e);
    if (st != ST_OK) {
        rpc_finish(call, st, e.msg);
        return;
    }
    /* Before the put: another thread may call report_resume at once, and must find the stream paused. */
    rpc_pause(call);
    enum ingest_put put = ingest_put(reporter->source, batch);
    if (put == INGEST_TAKEN)
        rpc_resume(call);
    else if (put == INGEST_REFUSED)
        rpc_finish(call, ST_RESOURCE_EXHAUSTED, "the controller has no memory for a report: send it again");
}

static void report_done(struct rpc_call *call, status_t status, const char *why) {
    (void)status;
    (void)why;
    struct reporter *reporter = rpc_user(call);
    ingest_source_stop(reporter->source);
    free(reporter);
}

static const struct rpc_method methods[] = {
    { .name = "DownloadCode", .kind = RPC_UNARY, .unary = rpc_code_download },
    { .name = "Attach",
      .kind = RPC_BIDI,
      .events = { .open = attach_open,
                  .message = attach_message,
                  .half_closed = attach_half_closed,
                  .done = attach_done } },
    { .name = "Report",
      .kind = RPC_BIDI,
      .events = { .open = report_open,
                  .message = report_message,
                  .half_closed = attach_half_closed,
                  .done = report_done } },
};

const struct rpc_service rpc_dispatch_service = { &trainyard__v1__dispatch_service__descriptor, methods,
                                                  sizeof methods / sizeof *methods };
