#include "cli/client.h"

#include "api/codec/message.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"

#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
    /* How long a question is asked again while the controller cannot be reached: a restart takes less than a second. */
    READ_AGAIN_MS = 3000,
    /* The same for a mutation, which a person would otherwise have to repeat: longer than a failover. */
    WRITE_AGAIN_MS = 20000,
    /* The same for a look at what has begun and is waited for, as watch does. */
    WAIT_AGAIN_MS = 30 * 60 * 1000,
    /* Any call, where the controller answers that its database does not: longer than a disk may stand still. */
    DATABASE_AGAIN_MS = 60000,
};

struct client {
    struct rpc_channel *channel;
};

/* What `trainyard up` wrote, in the folder where we stand. */
static bool read_address(char *ret, size_t cap) {
    FILE *f = fopen(".trainyard/address", "re");
    if (!f)
        return false;
    bool got = fgets(ret, (int)cap, f) != NULL;
    fclose(f);
    if (got)
        ret[strcspn(ret, "\n")] = '\0';
    return got && *ret;
}

status_t client_open(struct cli *c, struct err *e) {
    char written[RPC_ADDRESS_BYTES];
    const char *environment = getenv("TRAINYARD_CONTROLLER");
    if (c->client)
        return ST_OK;
    const char *address = c->controller                           ? c->controller
                          : environment && *environment           ? environment
                          : read_address(written, sizeof written) ? written
                                                                  : "127.0.0.1:7700";
    struct rpc_channel_config config = {
        .address = address,
        .tls = { .ca = getenv("TRAINYARD_CA"), .cert = getenv("TRAINYARD_CERT"), .key = getenv("TRAINYARD_KEY") },
        .token = getenv("TRAINYARD_TOKEN"),
        .token_file = getenv("TRAINYARD_TOKEN_FILE"),
    };
    struct client *client = calloc(1, sizeof *client);
    if (!client)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a connection");
    status_t st = rpc_channel_open(&config, &client->channel, e);
    if (st != ST_OK) {
        free(client);
        return st;
    }
    c->client = client;
    return ST_OK;
}

struct client *client_close(struct client *client) {
    if (client)
        rpc_channel_close(client->channel);
    free(client);
    return NULL;
}

bool client_waits(status_t st, const char *reason, int64_t begun_ms, int64_t patience_ms) {
    if (st != ST_UNAVAILABLE && st != ST_DEADLINE_EXCEEDED)
        return false;
    if (*reason && patience_ms < DATABASE_AGAIN_MS)
        patience_ms = DATABASE_AGAIN_MS;
    return clock_mono_ms() < begun_ms + patience_ms;
}

void client_tell_absence(const struct cli *c, const struct err *e) {
    if (c->output != OUTPUT_JSON)
        fprintf(stderr, "trainyard: %s; waiting for it\n", e->msg);
}

static status_t call_for(struct cli *c, int64_t patience_ms, const ProtobufCServiceDescriptor *service,
                         const char *method, const ProtobufCMessage *request, ProtobufCMessage **ret, struct err *e) {
    int64_t begun_ms = clock_mono_ms();
    bool told = false;
    TRY(client_open(c, e));
    for (int pause_ms = REDIAL_FIRST_MS;; pause_ms = pause_ms * 2 < REDIAL_MOST_MS ? pause_ms * 2 : REDIAL_MOST_MS) {
        char reason[RPC_REASON_BYTES];
        status_t st = rpc_call_unary_reason(c->client->channel, service, method, request, 0, ret, reason, e);
        if (!client_waits(st, reason, begun_ms - pause_ms, patience_ms))
            return st;
        const bool tell = !told && (*reason || patience_ms == WAIT_AGAIN_MS);
        if (tell)
            client_tell_absence(c, e);
        told = told || tell;
        poll(NULL, 0, pause_ms);
    }
}

status_t client_call(struct cli *c, const ProtobufCServiceDescriptor *service, const char *method,
                     const ProtobufCMessage *request, ProtobufCMessage **ret, struct err *e) {
    return call_for(c, READ_AGAIN_MS, service, method, request, ret, e);
}

status_t client_call_again(struct cli *c, const ProtobufCServiceDescriptor *service, const char *method,
                           const ProtobufCMessage *request, ProtobufCMessage **ret, struct err *e) {
    return call_for(c, WRITE_AGAIN_MS, service, method, request, ret, e);
}

status_t client_call_waiting(struct cli *c, const ProtobufCServiceDescriptor *service, const char *method,
                             const ProtobufCMessage *request, ProtobufCMessage **ret, struct err *e) {
    return call_for(c, WAIT_AGAIN_MS, service, method, request, ret, e);
}

static const ProtobufCFieldDescriptor *repeated_field(const ProtobufCMessage *msg) {
    const ProtobufCMessageDescriptor *desc = msg->descriptor;
    for (unsigned i = 0; i < desc->n_fields; i++)
        if (field_is_repeated(&desc->fields[i]))
            return &desc->fields[i];
    assert(!"a reply of a List call has a repeated field");
    return NULL;
}

static size_t count_of(const ProtobufCMessage *msg) {
    size_t n;
    field_elements(msg, repeated_field(msg), &n);
    return n;
}

static void *named_field(const ProtobufCMessage *msg, const char *name) {
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name(msg->descriptor, name);
    assert(f);
    return field_value(msg, f);
}

status_t client_join(ProtobufCMessage *all, ProtobufCMessage *page, struct err *e) {
    const ProtobufCFieldDescriptor *f = repeated_field(page);
    size_t n, size = field_element_bytes(f);
    char *elements = field_elements(page, f, &n);
    if (n == 0)
        return ST_OK;
    void *at = NULL;
    TRY(field_append(all, f, n, &at, e));
    memcpy(at, elements, n * size);
    memset(elements, 0, n * size); /* moved: freeing the page passes over them */
    return ST_OK;
}

/* The page's elements and its token go to `all`; the page is freed. */
static status_t take_page(ProtobufCMessage *all, ProtobufCMessage *page, struct err *e) {
    char **mine = named_field(all, "next_page_token"), **next = named_field(page, "next_page_token"), *old = *mine;
    status_t st = client_join(all, page, e);
    *mine = *next;
    *next = old;
    protobuf_c_message_free_unpacked(page, NULL);
    return st;
}

static status_t list_for(struct cli *c, int64_t patience_ms, const ProtobufCServiceDescriptor *service,
                         const char *method, ProtobufCMessage *request, int64_t limit, ProtobufCMessage **ret,
                         struct err *e) {
    int32_t *page_size = named_field(request, "page_size");
    char **page_token = named_field(request, "page_token");
    ProtobufCMessage *all = NULL;
    status_t st = ST_OK;
    for (int64_t left = limit; st == ST_OK && left > 0; left = limit - (int64_t)count_of(all)) {
        ProtobufCMessage *page = NULL;
        *page_size = (int32_t)(left < LIMIT_PAGE_SIZE ? left : LIMIT_PAGE_SIZE);
        if (all)
            *page_token = *(char **)named_field(all, "next_page_token");
        st = call_for(c, patience_ms, service, method, request, &page, e);
        if (st == ST_OK && all)
            st = take_page(all, page, e);
        else if (st == ST_OK)
            all = page;
        if (!all || **(char **)named_field(all, "next_page_token") == '\0')
            break;
    }
    *page_token = (char *)protobuf_c_empty_string;
    if (st != ST_OK && all)
        protobuf_c_message_free_unpacked(all, NULL);
    if (st == ST_OK)
        *ret = all;
    return st;
}

status_t client_list(struct cli *c, const ProtobufCServiceDescriptor *service, const char *method,
                     ProtobufCMessage *request, int64_t limit, ProtobufCMessage **ret, struct err *e) {
    return list_for(c, READ_AGAIN_MS, service, method, request, limit, ret, e);
}

status_t client_list_waiting(struct cli *c, const ProtobufCServiceDescriptor *service, const char *method,
                             ProtobufCMessage *request, int64_t limit, ProtobufCMessage **ret, struct err *e) {
    return list_for(c, WAIT_AGAIN_MS, service, method, request, limit, ret, e);
}

status_t client_stream(struct cli *c, const ProtobufCServiceDescriptor *service, const char *method,
                       const ProtobufCMessage *request, struct rpc_stream **ret, struct err *e) {
    TRY(client_open(c, e));
    return rpc_stream_open(c->client->channel, service, method, request, 0, ret, e);
}

status_t client_job_name(const char *word, char ret[80], struct err *e) {
    int n = snprintf(ret, 80, "%s%s", strchr(word, '/') ? "" : "jobs/", word);
    if (n >= 80 || *word == '\0')
        return err_set(e, ST_INVALID_ARGUMENT, "'%.40s' is no job: give its number, as 'trainyard list' shows it",
                       word);
    return ST_OK;
}

void client_request_id(char ret[37]) {
    uint8_t r[16] = { 0 };
    if (getrandom(r, sizeof r, 0) != sizeof r)
        abort(); /* cannot fail for 16 bytes once the kernel has booted */
    r[6] = (uint8_t)((r[6] & 0x0f) | 0x40);
    r[8] = (uint8_t)((r[8] & 0x3f) | 0x80);
    int n = 0;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            ret[n++] = '-';
        n += snprintf(ret + n, 3, "%02x", r[i]);
    }
}
