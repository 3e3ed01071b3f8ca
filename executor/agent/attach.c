#include "executor/agent/attach.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "executor/agent/attempts.h"
#include "executor/agent/devices.h"
#include "executor/agent/heart.h"
#include "executor/agent/link.h"
#include "executor/agent/report.h"
#include "executor/agent/sample.h"

#include <stdlib.h>
#include <sys/random.h>

/* A controller that takes the stream but does not welcome within it is as good as none. */
enum { WELCOME_MS = 5000 };

struct attach {
    struct agent *agent;
    struct rpc_channel *channel;
    struct link *link;
    struct heart *heart;
    bool attached;
    struct reactor_timer dial, welcome, turn;
    int64_t redial_ms;
    bool told_away; /* one log line for each absence of the controller */
};

bool attach_attached(const struct attach *a) { return a->attached; }
bool attach_gone(const struct attach *a) { return !a->link; }

static void link_lost(struct attach *a, const char *why);

/* ---- up ---- */

bool attach_send(struct attach *a, const Trainyard__V1__AgentMessage *message) {
    if (!a || !a->link)
        return false;
    enum rpc_sent sent = link_send(a->link, &message->base);
    bool can_wait = message->message_case == TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_SAMPLE_OUTPUT;
    if (sent == RPC_FULL && !can_wait)
        link_lost(a, "the controller does not read");
    return sent == RPC_SENT;
}

static void turn_fire(void *ctx) {
    struct attach *a = ctx;
    heart_turn(a->heart, spool_bytes(a->agent->spool));
    reactor_timer_set(a->agent->loop, &a->turn, HEARTBEAT_INTERVAL_MS);
}

/* ---- down ---- */

static void refuse(struct attach *a, int64_t job, int32_t attempt, const char *why) {
    Trainyard__V1__CommandRefused refused = TRAINYARD__V1__COMMAND_REFUSED__INIT;
    refused.job = job;
    refused.attempt = attempt;
    refused.message = (char *)(uintptr_t)why;
    Trainyard__V1__AgentMessage m = TRAINYARD__V1__AGENT_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_REFUSED;
    m.refused = &refused;
    attach_send(a, &m);
}

/* The controller's epoch must not be older than any that was obeyed; a newer one is made durable before it is. */
static bool epoch_admitted(struct attach *a, const Trainyard__V1__ControllerMessage *m) {
    struct directory *d = a->agent->directory;
    struct err why = { "" };
    status_t st = directory_epoch_raise(d, m->epoch, &why);
    if (st == ST_OK && m->epoch < directory_epoch(d))
        st = err_set(&why, ST_FAILED_PRECONDITION, "a command of epoch %lld came after one of epoch %lld was obeyed",
                     (long long)m->epoch, (long long)directory_epoch(d));
    if (st == ST_OK)
        return true;
    log_event(LOG_WARN, "command_refused", "message", LOG_STR(why.msg), NULL);
    refuse(a, m->message_case == TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START ? m->start->job : 0,
           m->message_case == TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START ? m->start->attempt : 0, why.msg);
    /* The refusal is queued before the end of our side, so it arrives; the other side, or the timer, ends the stream.
     */
    a->attached = false;
    reactor_timer_set(a->agent->loop, &a->welcome, WELCOME_MS);
    if (a->link)
        link_send_end(a->link);
    return false;
}

static void welcomed(struct attach *a) {
    a->attached = true;
    a->told_away = false;
    a->redial_ms = REDIAL_FIRST_MS;
    reactor_timer_cancel(a->agent->loop, &a->welcome);
    log_event(LOG_INFO, "attached", "controller", LOG_STR(a->agent->options->controller), "executor",
              LOG_STR(directory_id(a->agent->directory)), "epoch", LOG_INT(directory_epoch(a->agent->directory)), NULL);
    if (a->agent->attached)
        a->agent->attached(a->agent);
    attempts_tell_all(a->agent->attempts);
    report_wake(a->agent->report, true);
}

static void command_run(struct attach *a, const Trainyard__V1__ControllerMessage *m) {
    struct attempts *attempts = a->agent->attempts;
    switch (m->message_case) {
    case TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_WELCOME: welcomed(a); break;
    case TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START: attempts_start(attempts, m->start); break;
    case TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_RENDEZVOUS: attempts_rendezvous(attempts, m->rendezvous); break;
    case TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP: attempts_stop(attempts, m->stop); break;
    case TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_COMMITTED: attempts_committed(attempts, m->committed); break;
    case TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_ACKNOWLEDGED:
        attempts_acknowledged(attempts, m->acknowledged->job, m->acknowledged->attempt);
        break;
    case TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START_SAMPLE:
        samples_start(a->agent->samples, m->start_sample);
        break;
    case TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP_SAMPLE:
        samples_stop(a->agent->samples, m->stop_sample->sample);
        break;
    default: break; /* of a newer controller */
    }
}

static void on_message(void *ctx, const ProtobufCMessage *message) {
    struct attach *a = ctx;
    const Trainyard__V1__ControllerMessage *m = (const Trainyard__V1__ControllerMessage *)message;
    if (epoch_admitted(a, m))
        command_run(a, m);
}

static void on_writable(void *ctx) { (void)ctx; }

/* ---- dial ---- */

static void redial_schedule(struct attach *a) {
    uint32_t random = 0;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) < 0)
        random = 0;
    int64_t cut = a->redial_ms / 2 * (random % 1024) / 1024;
    reactor_timer_set(a->agent->loop, &a->dial, a->redial_ms - cut);
    a->redial_ms = a->redial_ms * 2 < REDIAL_MOST_MS ? a->redial_ms * 2 : REDIAL_MOST_MS;
}

static void link_lost(struct attach *a, const char *why) {
    heart_follow(a->heart, NULL);
    a->link = link_close(a->link);
    a->attached = false;
    reactor_timer_cancel(a->agent->loop, &a->welcome);
    if (!a->told_away)
        log_event(LOG_WARN, "detached", "controller", LOG_STR(a->agent->options->controller), "message", LOG_STR(why),
                  NULL);
    a->told_away = true;
    samples_stop_all(a->agent->samples); /* whoever asked for them has lost them with the stream */
    if (!a->agent->leaving)
        redial_schedule(a);
}

static void on_ended(void *ctx, status_t status, const char *why) {
    struct attach *a = ctx;
    a->link = NULL;
    link_lost(a, *why ? why : status_name(status));
}

static void welcome_fire(void *ctx) { link_lost(ctx, "the controller does not answer"); }

static void hello_fill(const struct agent *agent, Trainyard__V1__AgentHello *hello) {
    const struct inventory *inv = &agent->inventory;
    hello->executor = (char *)(uintptr_t)directory_id(agent->directory);
    hello->incarnation = directory_incarnation(agent->directory);
    hello->version = (char *)(uintptr_t)TRAINYARD_VERSION;
    hello->hostname = (char *)(uintptr_t)inv->hostname;
    hello->address = (char *)(uintptr_t)agent->options->address;
    hello->slots = inv->slots;
    hello->device_reason = (char *)(uintptr_t)inv->device_reason;
    hello->devices_lone = inv->devices_lone;
    hello->highest_epoch = directory_epoch(agent->directory);
    hello->n_data_roots = agent->options->n_data_roots;
    hello->data_roots = (char **)(uintptr_t)agent->options->data_roots;
    hello->may_read_all = agent->options->n_data_roots == 0;
}

static status_t hello_send(struct attach *a, struct err *e) {
    Trainyard__V1__AgentHello hello = TRAINYARD__V1__AGENT_HELLO__INIT;
    hello_fill(a->agent, &hello);
    hello.n_devices = devices_list(a->agent->devices, &hello.devices);
    TRY(attempts_statuses(a->agent->attempts, &hello.attempts, &hello.n_attempts, e));
    Trainyard__V1__AgentMessage m = TRAINYARD__V1__AGENT_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_HELLO;
    m.hello = &hello;
    struct link_owner owner = { .ctx = a, .message = on_message, .writable = on_writable, .ended = on_ended };
    status_t st = link_open(a->agent->loop, a->channel, &trainyard__v1__dispatch_service__descriptor, "Attach", &m.base,
                            &owner, &a->link, e);
    for (size_t i = 0; i < hello.n_attempts; i++)
        trainyard__v1__attempt_status__free_unpacked(hello.attempts[i], NULL);
    free(hello.attempts);
    return st;
}

static void dial_fire(void *ctx) {
    struct attach *a = ctx;
    struct err why;
    if (hello_send(a, &why) != ST_OK) {
        link_lost(a, why.msg);
        return;
    }
    heart_follow(a->heart, a->link); /* not from the welcome on: a new epoch is made durable before it counts */
    reactor_timer_set(a->agent->loop, &a->welcome, WELCOME_MS);
}

status_t attach_open(struct agent *agent, struct attach **ret, struct err *e) {
    CLEANUP(attach_closep) struct attach *a = calloc(1, sizeof *a);
    if (!a)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the control stream");
    a->agent = agent;
    a->redial_ms = REDIAL_FIRST_MS;
    a->dial = (struct reactor_timer){ .fire = dial_fire, .ctx = a };
    a->welcome = (struct reactor_timer){ .fire = welcome_fire, .ctx = a };
    a->turn = (struct reactor_timer){ .fire = turn_fire, .ctx = a };
    TRY(heart_open(2 * agent->options->hang_ms, &a->heart, e));
    struct rpc_channel_config config = {
        .address = agent->options->controller,
        .tls = agent->options->tls,
        .token = agent->options->token,
        .token_file = agent->options->token_file,
    };
    TRY(rpc_channel_open(&config, &a->channel, e));
    reactor_timer_set(agent->loop, &a->turn, 0);
    reactor_timer_set(agent->loop, &a->dial, 0);
    *ret = take_ptr(&a);
    return ST_OK;
}

void attach_leave(struct attach *a) {
    reactor_timer_cancel(a->agent->loop, &a->dial);
    if (a->link)
        link_send_end(a->link);
}

struct attach *attach_close(struct attach *a) {
    if (!a)
        return NULL;
    reactor_timer_cancel(a->agent->loop, &a->dial);
    reactor_timer_cancel(a->agent->loop, &a->welcome);
    reactor_timer_cancel(a->agent->loop, &a->turn);
    heart_close(a->heart);
    link_close(a->link);
    rpc_channel_close(a->channel);
    free(a);
    return NULL;
}
