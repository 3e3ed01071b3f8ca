/* The stream on which the agent attaches.
 *
 *   dial -> hello -> welcome -> commands ... -> the stream ends, for any reason -> detached -> wait -> dial
 *
 * Every message of the controller first passes epoch_admitted: the controller must belong to this executor's cluster,
 * and its election must not be older than one that the agent has obeyed. A refusal ends the stream. A message to the
 * controller that cannot be sent ends the stream too: the next hello and the owner's reports after the attach repeat
 * the whole state, so no message needs to be kept. After a goodbye without drain no stream is dialled again. */
#include "executor/agent/control_stream.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "executor/agent/dialer.h"
#include "executor/agent/grpc_stream.h"
#include "executor/agent/heartbeat.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* A controller that accepts the stream but sends no welcome within this time counts as unreachable. */
enum { WELCOME_MS = 5000 };

struct control_stream {
    const struct host *host;
    struct control_stream_owner owner;
    struct dialer dialer;
    struct grpc_stream *stream;
    struct heartbeat *heartbeat;
    bool attached;
    bool refused; /* the controller of this stream was refused: its further messages are ignored */
    struct reactor_timer dial, welcome, alive;
    int64_t redial_ms, connects, disconnects;
    struct err logged_detached; /* why there is no stream, as it was logged; "" while there is one */
    char goodbye[16];           /* the signal that asked the agent to stop; "": none did */
    bool drain;                 /* of the goodbye */
};

bool control_stream_attached(const struct control_stream *s) { return s->attached; }
bool control_stream_ended(const struct control_stream *s) { return !s->stream; }

static void stream_lost(struct control_stream *s, const char *why);

/* ---- to the controller ---- */

bool control_stream_send(struct control_stream *s, const Trainyard__V1__AgentMessage *message) {
    if (!s || !s->stream)
        return false;
    enum rpc_sent sent = grpc_stream_send(s->stream, &message->base);
    bool can_wait = message->message_case == TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_SAMPLE_OUTPUT ||
                    message->message_case == TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_CHECK_OUTPUT;
    if (sent == RPC_FULL && !can_wait)
        stream_lost(s, "the controller does not read the control stream");
    return sent == RPC_SENT;
}

static void alive_fire(void *ctx) {
    struct control_stream *s = ctx;
    struct spool *spool = s->host->spool;
    const struct spool_full *full = spool_full(spool);
    struct heartbeat_use use = { .spool_bytes = spool_bytes(spool),
                                 .spool_limit_bytes = spool_limit(spool),
                                 .records_waiting = spool_waiting(spool),
                                 .samples_dropped = full->samples_dropped,
                                 .lines_dropped = full->lines_dropped,
                                 .training_waits = full->waits,
                                 .connects = s->connects,
                                 .disconnects = s->disconnects };
    s->owner.measure(s->owner.ctx, &use);
    heartbeat_loop_alive(s->heartbeat, &use);
    reactor_timer_set(s->host->loop, &s->alive, HEARTBEAT_INTERVAL_MS);
}

/* ---- from the controller ---- */

static void refuse(struct control_stream *s, int64_t job, int32_t attempt, const char *why) {
    Trainyard__V1__CommandRefused refused = TRAINYARD__V1__COMMAND_REFUSED__INIT;
    refused.job = job;
    refused.attempt = attempt;
    refused.message = (char *)(uintptr_t)why;
    control_stream_send(s, AGENT_MESSAGE(REFUSED, refused, &refused));
}

/* The controller must belong to this executor's cluster, and its epoch must not be lower than one that was obeyed
 * before. A higher epoch is on disk before its first command is obeyed. */
static bool epoch_admitted(struct control_stream *s, const Trainyard__V1__ControllerMessage *m) {
    struct directory *d = s->host->directory;
    struct err why = { "" };
    const bool is_welcome = m->message_case == TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_WELCOME;
    status_t st = is_welcome ? directory_cluster_join(d, m->welcome->cluster, &why) : ST_OK;
    if (st == ST_OK)
        st = directory_epoch_raise(d, m->epoch, m->epoch_nonce, &why);
    if (st == ST_OK)
        return true;
    log_event(LOG_WARN, "command_refused", "message", LOG_STR(why.msg), NULL);
    refuse(s, m->message_case == TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START ? m->start->job : 0,
           m->message_case == TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START ? m->start->attempt : 0, why.msg);
    /* The refusal arrives, because it is queued before the agent ends its side. Then the controller ends the stream, or
     * the timer does. */
    s->attached = false;
    s->refused = true;
    reactor_timer_set(s->host->loop, &s->welcome, WELCOME_MS);
    if (s->stream)
        grpc_stream_send_end(s->stream);
    return false;
}

static void goodbye_send(struct control_stream *s) {
    Trainyard__V1__AgentGoodbye goodbye = TRAINYARD__V1__AGENT_GOODBYE__INIT;
    goodbye.reason = s->goodbye;
    goodbye.drain = s->drain;
    control_stream_send(s, AGENT_MESSAGE(GOODBYE, goodbye, &goodbye));
}

static void handle_welcome(struct control_stream *s) {
    s->attached = true;
    s->connects++;
    s->logged_detached.msg[0] = '\0';
    s->redial_ms = REDIAL_FIRST_MS;
    reactor_timer_cancel(s->host->loop, &s->welcome);
    log_event(LOG_INFO, "attached", "controller", LOG_STR(s->host->options->controller), "executor",
              LOG_STR(directory_id(s->host->directory)), "epoch", LOG_INT(directory_epoch(s->host->directory)), NULL);
    if (*s->goodbye) /* the signal came between the hello and the welcome, or the controller is another one */
        goodbye_send(s);
    s->owner.attached(s->owner.ctx);
}

static void on_message(void *ctx, const ProtobufCMessage *message) {
    struct control_stream *s = ctx;
    const Trainyard__V1__ControllerMessage *m = (const Trainyard__V1__ControllerMessage *)message;
    if (s->refused || !epoch_admitted(s, m))
        return;
    if (m->message_case == TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_WELCOME)
        handle_welcome(s);
    else
        s->owner.command(s->owner.ctx, m);
}

static void on_writable(void *ctx) { (void)ctx; }

/* ---- dial ---- */

static void redial_schedule(struct control_stream *s) {
    uint32_t random = 0;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) < 0)
        random = 0;
    int64_t cut = s->redial_ms / 2 * (random % 1024) / 1024;
    reactor_timer_set(s->host->loop, &s->dial, s->redial_ms - cut);
    s->redial_ms = s->redial_ms * 2 < REDIAL_MAX_MS ? s->redial_ms * 2 : REDIAL_MAX_MS;
}

static void stream_lost(struct control_stream *s, const char *why) {
    s->disconnects += s->attached;
    heartbeat_set_stream(s->heartbeat, NULL);
    s->stream = grpc_stream_close(s->stream);
    s->attached = false;
    reactor_timer_cancel(s->host->loop, &s->welcome);
    if (strcmp(s->logged_detached.msg, why) != 0) {
        log_event(LOG_WARN, "detached", "controller", LOG_STR(s->host->options->controller), "message", LOG_STR(why),
                  NULL);
        snprintf(s->logged_detached.msg, sizeof s->logged_detached.msg, "%s", why);
    }
    s->owner.detached(s->owner.ctx);
    if (!*s->goodbye || s->drain)
        redial_schedule(s);
}

static void on_ended(void *ctx, status_t status, const char *why) {
    struct control_stream *s = ctx;
    s->stream = NULL;
    stream_lost(s, *why ? why : status_name(status));
}

static void welcome_fire(void *ctx) { stream_lost(ctx, "the controller sent no welcome within 5 s"); }

enum { FEATURES_MAX = 16 };

struct features {
    const char *names[FEATURES_MAX];
    size_t n;
};

static void feature_add(struct features *f, const char *name) {
    assert(f->n < FEATURES_MAX);
    f->names[f->n++] = name;
}

/* The names of service/scheduler/feature.h. */
static void features_list(const struct host *host, struct features *ret) {
    static const char *const of_release[] = { "code",    "secrets",      "python",         "images",
                                              "mixture", "changed_data", "sample_average", "mixup" };
    ret->n = 0;
    for (size_t i = 0; i < sizeof of_release / sizeof *of_release; i++)
        feature_add(ret, of_release[i]);
    if (!*host->no_images.msg)
        feature_add(ret, "image");
    if (!*host->no_data.msg) {
        feature_add(ret, "data");
        feature_add(ret, "store_checkpoints");
        feature_add(ret, "store_samples");
        feature_add(ret, "store_weights");
    }
}

static void cache_fill(const struct cache_offer *offer, Trainyard__V1__CachePeer *ret) {
    ret->url = (char *)(uintptr_t)offer->url;
    ret->token = (char *)(uintptr_t)offer->token;
    ret->key = (char *)(uintptr_t)offer->key;
}

static void hello_fill(const struct host *host, struct features *features, Trainyard__V1__AgentHello *hello) {
    const struct inventory *inv = &host->inventory;
    hello->executor = (char *)(uintptr_t)directory_id(host->directory);
    hello->incarnation = directory_incarnation(host->directory);
    hello->version = (char *)(uintptr_t)TRAINYARD_VERSION;
    hello->hostname = (char *)(uintptr_t)inv->hostname;
    hello->address = (char *)(uintptr_t)host->options->address;
    hello->slots = inv->slots;
    hello->cores = inv->cores;
    hello->device_reason = (char *)(uintptr_t)inv->device_reason;
    hello->devices_single_rank = inv->devices_single_rank;
    hello->cluster = (char *)(uintptr_t)directory_cluster(host->directory);
    hello->checks_specs = true;
    features_list(host, features);
    hello->n_features = features->n;
    hello->features = (char **)(uintptr_t)features->names;
    hello->highest_epoch = directory_epoch(host->directory);
    hello->epoch_nonce = (char *)(uintptr_t)directory_nonce(host->directory);
    hello->n_data_roots = host->options->n_data_roots;
    hello->data_roots = (char **)(uintptr_t)host->options->data_roots;
}

static status_t hello_send(struct control_stream *s, struct err *e) {
    Trainyard__V1__AgentHello hello = TRAINYARD__V1__AGENT_HELLO__INIT;
    Trainyard__V1__CachePeer cache = TRAINYARD__V1__CACHE_PEER__INIT;
    struct features features;
    hello_fill(s->host, &features, &hello);
    cache_fill(&s->host->cache_offer, &cache);
    if (*cache.url)
        hello.cache = &cache;
    s->owner.hello_begin(s->owner.ctx, &hello);
    Trainyard__V1__AgentMessage m = TRAINYARD__V1__AGENT_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_HELLO;
    m.hello = &hello;
    struct grpc_stream_owner owner = { .ctx = s, .message = on_message, .writable = on_writable, .ended = on_ended };
    status_t st = grpc_stream_open(s->host->loop, dialer_channel(&s->dialer),
                                   &trainyard__v1__dispatch_service__descriptor, "Attach", &m.base, &owner, &s->stream,
                                   e);
    s->owner.hello_end(s->owner.ctx, &hello);
    return st;
}

static void dial_fire(void *ctx) {
    struct control_stream *s = ctx;
    struct err why;
    s->refused = false;
    if (hello_send(s, &why) != ST_OK) {
        stream_lost(s, why.msg);
        return;
    }
    heartbeat_set_stream(s->heartbeat,
                         s->stream); /* from now, not from the welcome: storing a new epoch may take long */
    reactor_timer_set(s->host->loop, &s->welcome, WELCOME_MS);
}

status_t control_stream_open(const struct host *host, const struct control_stream_owner *owner,
                             struct control_stream **ret, struct err *e) {
    CLEANUP(control_stream_closep) struct control_stream *s = alloc_zeroed(1, sizeof *s);
    s->host = host;
    s->owner = *owner;
    s->redial_ms = REDIAL_FIRST_MS;
    s->dial = (struct reactor_timer){ .fire = dial_fire, .ctx = s };
    s->welcome = (struct reactor_timer){ .fire = welcome_fire, .ctx = s };
    s->alive = (struct reactor_timer){ .fire = alive_fire, .ctx = s };
    TRY(heartbeat_open(2 * host->options->hang_ms, &s->heartbeat, e));
    TRY(dialer_open(&s->dialer, host->options, e));
    reactor_timer_set(host->loop, &s->alive, 0);
    reactor_timer_set(host->loop, &s->dial, 0);
    *ret = take_ptr(&s);
    return ST_OK;
}

void control_stream_goodbye(struct control_stream *s, const char *signal, bool drain) {
    snprintf(s->goodbye, sizeof s->goodbye, "%s", signal);
    s->drain = drain;
    if (!drain)
        reactor_timer_cancel(s->host->loop, &s->dial);
    if (s->attached)
        goodbye_send(s);
}

void control_stream_end(struct control_stream *s) {
    s->drain = false;
    reactor_timer_cancel(s->host->loop, &s->dial);
    if (s->stream)
        grpc_stream_send_end(s->stream);
}

status_t control_stream_reload(struct control_stream *s, struct err *e) { return dialer_reload(&s->dialer, e); }

void control_stream_renew(struct control_stream *s) {
    if (s && s->stream && !*s->goodbye)
        stream_lost(s, "the agent attaches again, because its cache of data has another key");
}

struct control_stream *control_stream_close(struct control_stream *s) {
    if (!s)
        return NULL;
    reactor_timer_cancel(s->host->loop, &s->dial);
    reactor_timer_cancel(s->host->loop, &s->welcome);
    reactor_timer_cancel(s->host->loop, &s->alive);
    heartbeat_close(s->heartbeat);
    grpc_stream_close(s->stream);
    dialer_close(&s->dialer);
    free(s);
    return NULL;
}
