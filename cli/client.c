/* The connection of a command to its controller.
 *
 * Every call goes through call_for(): it makes the call, and repeats it with growing pauses while the controller cannot
 * be reached. How long depends on the call: READ_AGAIN_MS for reads, WRITE_AGAIN_MS for mutations (which carry a
 * request id, or change nothing when repeated), WAIT_AGAIN_MS for polls of an operation that a user waits for. A
 * controller that gives a reason is reachable, only its database is not: then every call is repeated for
 * DATABASE_AGAIN_MS. The user is informed once, on stderr.
 *
 * A List call is repeated page by page. The elements of each page are moved, not copied, to the end of the first page's
 * repeated field, which is found through the descriptors, so that one function serves all List calls. */
#include "cli/client.h"

#include "api/codec/message.h"
#include "base/alloc.h"
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
    /* How long a read is repeated while the controller is unreachable: a restart takes less than a second. */
    READ_AGAIN_MS = 3000,
    /* The same for a mutation, which the user would otherwise have to repeat: longer than a failover. */
    WRITE_AGAIN_MS = 20000,
    /* The same for polling an operation that the user waits for, as watch does. */
    WAIT_AGAIN_MS = 30 * 60 * 1000,
    /* Any call if the controller reports that its database does not answer: longer than a disk may stall. */
    DATABASE_AGAIN_MS = 60000,
};

struct client {
    struct rpc_channel *channel;
    char address[RPC_ADDRESSES_BYTES];
};

/* Reads the address that `trainyard up` wrote. */
static bool read_address(const char *path, char *ret, size_t cap) {
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    bool got = fgets(ret, (int)cap, f) != NULL;
    fclose(f);
    if (got)
        ret[strcspn(ret, "\n")] = '\0';
    return got && *ret;
}

/* An address is host:port or unix:/path; a word that begins like a path names a file with an address. */
static bool is_path(const char *address) { return *address == '/' || *address == '.'; }

/* The first of --controller, TRAINYARD_CONTROLLER and ./.trainyard/address; NULL: none names a controller. written: the
 * buffer for the text of the file. */
static const char *named_address(const struct cli *c, char written[RPC_ADDRESSES_BYTES]) {
    const char *environment = getenv("TRAINYARD_CONTROLLER");
    if (c->controller)
        return c->controller;
    if (environment && *environment)
        return environment;
    return read_address(".trainyard/address", written, RPC_ADDRESSES_BYTES) ? written : NULL;
}

/* Finds the context that the command uses: that of --context, else the current one if no address is named. *ret_x
 * points into *ret_all, or is NULL if the command uses no context. A service without a home folder has no contexts. */
static status_t find_context(const struct cli *c, bool named, Trainyard__Cli__Contexts **ret_all,
                             Trainyard__Cli__Context **ret_x, struct err *e) {
    *ret_x = NULL;
    if (!c->context && named)
        return ST_OK;
    if (c->context && c->controller)
        return err_set(e, ST_INVALID_ARGUMENT, "--context and --controller name a controller each: give one of them");
    if (!c->context && !contexts_reachable())
        return ST_OK;
    TRY(contexts_read(ret_all, e));
    const char *name = c->context ? c->context : (*ret_all)->current;
    return *name ? contexts_get(*ret_all, name, ret_x, e) : ST_OK;
}

bool client_named(const struct cli *c) {
    char written[RPC_ADDRESSES_BYTES];
    CLEANUP(message_freep) Trainyard__Cli__Contexts *all = NULL;
    Trainyard__Cli__Context *x;
    return c->context || named_address(c, written) || find_context(c, false, &all, &x, NULL) != ST_OK || x;
}

static status_t open_channel(struct cli *c, const struct rpc_channel_config *config, struct err *e) {
    char id[37];
    struct rpc_channel_config identified = *config;
    struct client *client = alloc_zeroed(1, sizeof *client);
    snprintf(client->address, sizeof client->address, "%s", config->address);
    client_request_id(id);
    identified.request_id = id;
    status_t st = rpc_channel_open(&identified, &client->channel, e);
    if (st != ST_OK) {
        free(client);
        return st;
    }
    c->client = client;
    return ST_OK;
}

status_t client_open_context(struct cli *c, const Trainyard__Cli__Context *x, struct err *e) {
    const struct rpc_channel_config config = { .address = x->controller,
                                               .tls = { .ca = x->ca, .cert = x->cert, .key = x->key },
                                               .token = x->token };
    return open_channel(c, &config, e);
}

status_t client_open(struct cli *c, struct err *e) {
    char written[RPC_ADDRESSES_BYTES];
    CLEANUP(message_freep) Trainyard__Cli__Contexts *all = NULL;
    Trainyard__Cli__Context *x;
    if (c->client)
        return ST_OK;
    const char *named = named_address(c, written), *address = named ? named : "127.0.0.1:7700";
    TRY(find_context(c, named != NULL, &all, &x, e));
    if (x)
        return client_open_context(c, x, e);
    if (is_path(address)) {
        if (!read_address(address, written, sizeof written))
            return err_set(e, ST_UNAVAILABLE,
                           "'%.200s' contains no address of a controller: 'trainyard up' writes one while it runs",
                           address);
        address = written;
    }
    const struct rpc_channel_config config = {
        .address = address,
        .tls = { .ca = getenv("TRAINYARD_CA"), .cert = getenv("TRAINYARD_CERT"), .key = getenv("TRAINYARD_KEY") },
        .token = getenv("TRAINYARD_TOKEN"),
        .token_file = getenv("TRAINYARD_TOKEN_FILE"),
    };
    return open_channel(c, &config, e);
}

const char *client_address(const struct cli *c) { return c->client->address; }

struct rpc_channel *client_channel(const struct cli *c) {
    return c->client->channel;
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

void client_report_absence(const struct cli *c, const struct err *e) {
    if (c->output != OUTPUT_JSON)
        fprintf(stderr, "trainyard: %s; waiting for it\n", e->msg);
}

static status_t call_for(struct cli *c, int64_t patience_ms, const ProtobufCServiceDescriptor *service,
                         const char *method, const ProtobufCMessage *request, ProtobufCMessage **ret, struct err *e) {
    int64_t begun_ms = clock_mono_ms();
    bool reported = false;
    TRY(client_open(c, e));
    for (int pause_ms = REDIAL_FIRST_MS;; pause_ms = pause_ms * 2 < REDIAL_MAX_MS ? pause_ms * 2 : REDIAL_MAX_MS) {
        char reason[RPC_REASON_BYTES];
        status_t st = rpc_call_unary_reason(c->client->channel, service, method, request, 0, ret, reason, e);
        if (!client_waits(st, reason, begun_ms - pause_ms, patience_ms))
            return st;
        if (!reported && (*reason || patience_ms == WAIT_AGAIN_MS)) {
            client_report_absence(c, e);
            reported = true;
        }
        poll(NULL, 0, pause_ms);
    }
}

status_t client_call(struct cli *c, const ProtobufCServiceDescriptor *service, const char *method,
                     const ProtobufCMessage *request, ProtobufCMessage **ret, struct err *e) {
    return call_for(c, READ_AGAIN_MS, service, method, request, ret, e);
}

status_t client_call_once(struct cli *c, const ProtobufCServiceDescriptor *service, const char *method,
                          const ProtobufCMessage *request, ProtobufCMessage **ret, struct err *e) {
    return call_for(c, 0, service, method, request, ret, e);
}

status_t client_call_again(struct cli *c, const ProtobufCServiceDescriptor *service, const char *method,
                           const ProtobufCMessage *request, ProtobufCMessage **ret, struct err *e) {
    return call_for(c, WRITE_AGAIN_MS, service, method, request, ret, e);
}

status_t client_call_waiting(struct cli *c, const ProtobufCServiceDescriptor *service, const char *method,
                             const ProtobufCMessage *request, ProtobufCMessage **ret, struct err *e) {
    return call_for(c, WAIT_AGAIN_MS, service, method, request, ret, e);
}

static size_t count_of(const ProtobufCMessage *msg) {
    size_t n;
    field_elements(msg, message_repeated_field(msg->descriptor), &n);
    return n;
}

static void *named_field(const ProtobufCMessage *msg, const char *name) {
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name(msg->descriptor, name);
    assert(f);
    return field_value(msg, f);
}

void client_join(ProtobufCMessage *all, ProtobufCMessage *page) {
    const ProtobufCFieldDescriptor *f = message_repeated_field(page->descriptor);
    size_t n, size = field_element_bytes(f);
    char *elements = field_elements(page, f, &n);
    if (n == 0)
        return;
    memcpy(field_append(all, f, n), elements, n * size);
    memset(elements, 0, n * size); /* moved: freeing the page passes over them */
}

/* Moves the page's elements and its token to `all`, and frees the page. */
static void take_page(ProtobufCMessage *all, ProtobufCMessage *page) {
    char **mine = named_field(all, "next_page_token"), **next = named_field(page, "next_page_token"), *old = *mine;
    client_join(all, page);
    *mine = *next;
    *next = old;
    protobuf_c_message_free_unpacked(page, NULL);
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
            take_page(all, page);
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

status_t client_get_job(struct cli *c, const char *name, Trainyard__V1__Job **ret, struct err *e) {
    Trainyard__V1__GetJobRequest request = TRAINYARD__V1__GET_JOB_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    request.name = (char *)name;
    TRY(client_call(c, &trainyard__v1__job_service__descriptor, "GetJob", &request.base, &reply, e));
    *ret = (Trainyard__V1__Job *)reply;
    return ST_OK;
}

status_t client_get_status(struct cli *c, Trainyard__V1__GetStatusResponse **ret, struct err *e) {
    Trainyard__V1__GetStatusRequest request = TRAINYARD__V1__GET_STATUS_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    TRY(client_call(c, &trainyard__v1__status_service__descriptor, "GetStatus", &request.base, &reply, e));
    *ret = (Trainyard__V1__GetStatusResponse *)reply;
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
