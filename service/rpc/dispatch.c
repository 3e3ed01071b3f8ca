#include "base/limits.h"
#include "base/log.h"
#include "service/rpc/services.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One agent's control stream. */
struct agent {
    struct controller *controller;
    struct rpc_call *call;
    uint64_t ticket; /* 0 before its hello */
    char executor[SCHEDULER_EXECUTOR_ID_BYTES];
    int64_t incarnation;
};

static bool link_send(void *ctx, const Trainyard__V1__ControllerMessage *m) {
    return rpc_send(((struct agent *)ctx)->call, &m->base) == RPC_SENT;
}

static void link_close(void *ctx, status_t st, const char *why) { rpc_finish(((struct agent *)ctx)->call, st, why); }

static void attach_open(struct rpc_call *call) {
    struct agent *agent = calloc(1, sizeof *agent);
    if (!agent) {
        rpc_finish(call, ST_RESOURCE_EXHAUSTED, "no memory for an executor");
        return;
    }
    agent->controller = rpc_service(call);
    agent->call = call;
    rpc_set_user(call, agent);
}

/* An id names files and rows: letters, digits, '-', '_' and '.'. */
static bool id_is_good(const char *id) {
    size_t n = strlen(id);
    if (n == 0 || n >= SCHEDULER_EXECUTOR_ID_BYTES)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)id[i]) && !strchr("-_.", id[i]))
            return false;
    return true;
}

static status_t check_hello(struct agent *agent, const Trainyard__V1__AgentHello *h, struct err *e) {
    int64_t epoch;
    if (!id_is_good(h->executor))
        return err_set(e, ST_INVALID_ARGUMENT, "hello.executor: '%.80s' is not an id", h->executor);
    if (h->slots < 0 || h->slots > LIMIT_WORLD_SIZE)
        return err_set(e, ST_INVALID_ARGUMENT, "hello.slots: %d is not in 0..%d", (int)h->slots, LIMIT_WORLD_SIZE);
    TRY(controller_leads(agent->controller, &epoch, e));
    if (h->highest_epoch > epoch)
        return err_set(e, ST_UNAVAILABLE, "executor %s has obeyed epoch %lld, this controller leads %lld", h->executor,
                       (long long)h->highest_epoch, (long long)epoch);
    return ST_OK;
}

static status_t hello(struct agent *agent, const Trainyard__V1__AgentMessage *m, struct err *e) {
    const Trainyard__V1__AgentHello *h = m->hello;
    if (agent->ticket)
        return err_set(e, ST_INVALID_ARGUMENT, "executor %s said hello twice", agent->executor);
    TRY(check_hello(agent, h, e));
    snprintf(agent->executor, sizeof agent->executor, "%s", h->executor);
    agent->incarnation = h->incarnation;
    struct dispatch_link link = { .send = link_send, .close = link_close, .ctx = agent };
    agent->ticket = dispatch_attach(controller_dispatch(agent->controller), agent->executor, h->incarnation, &link);
    if (!agent->ticket)
        return err_set(e, ST_ABORTED, "a newer start of executor %s has attached", agent->executor);
    return controller_agent_said(agent->controller, agent->executor, agent->incarnation, m, e);
}

static status_t said(struct agent *agent, const Trainyard__V1__AgentMessage *m, struct err *e) {
    if (m->message_case == TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_HELLO)
        return hello(agent, m, e);
    if (!agent->ticket)
        return err_set(e, ST_INVALID_ARGUMENT, "an executor's first message must be its hello");
    dispatch_hear(controller_dispatch(agent->controller), agent->ticket);
    if (m->message_case == TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_HEARTBEAT)
        return ST_OK;
    if (m->message_case == TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_SAMPLE_OUTPUT) {
        sample_output(controller_samples(agent->controller), agent->executor, m->sample_output);
        return ST_OK;
    }
    return controller_agent_said(agent->controller, agent->executor, agent->incarnation, m, e);
}

static void attach_message(struct rpc_call *call, const ProtobufCMessage *message) {
    struct agent *agent = rpc_user(call);
    struct err e;
    if (!agent)
        return;
    status_t st = said(agent, (const void *)message, &e);
    if (st != ST_OK)
        rpc_finish(call, st, e.msg);
}

static void attach_half_closed(struct rpc_call *call) { rpc_finish(call, ST_OK, NULL); }

static void attach_done(struct rpc_call *call, status_t status, const char *why) {
    struct agent *agent = rpc_user(call);
    if (!agent)
        return;
    if (agent->ticket) {
        dispatch_detach(controller_dispatch(agent->controller), agent->ticket);
        if (!dispatch_attached(controller_dispatch(agent->controller), agent->executor))
            sample_executor_gone(controller_samples(agent->controller), agent->executor);
        log_event(LOG_INFO, "executor_detached", "executor", LOG_STR(agent->executor), "status",
                  LOG_STR(status_name(status)), "reason", LOG_STR(why), NULL);
    }
    free(agent);
}

/* The bulk stream: batches up, marks down. */
static void report_ack(void *ctx, const Trainyard__V1__ReportAck *ack) {
    (void)rpc_send(ctx, &ack->base); /* a lost mark is repeated by the next one */
}

static void report_room(void *ctx) { rpc_resume(ctx); }

static void report_open(struct rpc_call *call) {
    static const struct ingest_source_ops ops = { .ack = report_ack, .room = report_room };
    struct ingest_source *source;
    struct err e;
    status_t st = ingest_source_start(controller_ingest(rpc_service(call)), &ops, call, &source, &e);
    if (st != ST_OK)
        rpc_finish(call, st, e.msg);
    else
        rpc_set_user(call, source);
}

static void report_message(struct rpc_call *call, const ProtobufCMessage *message) {
    struct ingest_source *source = rpc_user(call);
    if (!source)
        return;
    /* Before the put: room may come from another thread at once, and must find the stream paused. */
    rpc_pause(call);
    if (ingest_put(source, (const void *)message) == INGEST_TAKEN)
        rpc_resume(call);
}

static void report_done(struct rpc_call *call, status_t status, const char *why) {
    (void)status;
    (void)why;
    if (rpc_user(call))
        ingest_source_stop(rpc_user(call));
}

static const struct rpc_method methods[] = {
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
