/* The token is made anew at each start of the agent. Other hosts know this one by the public key of its certificate,
 * which is read again at each start of the process, because the files may have been replaced. */
#include "executor/agent/cache_server.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/sha256.h"
#include "executor/agent/data_order.h"
#include "executor/agent/worker_process.h"

#include <arpa/inet.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { PAUSE_FIRST_MS = 1000, PAUSE_MAX_MS = 60 * 1000, HOST_BYTES = 256 };

struct cache_server {
    struct host *host;
    struct cache_server_owner owner;
    struct worker_process *process; /* NULL: none runs */
    struct reactor_timer again;
    int64_t pause_ms;
};

/* ---- what other hosts need ---- */

static bool is_loopback(const char *host) {
    struct in6_addr six;
    struct in_addr four;
    if (inet_pton(AF_INET, host, &four) == 1)
        return ntohl(four.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, host, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

static bool is_any(const char *host) { return strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0; }

/* HOST:PORT or [HOST]:PORT. */
static status_t address_split(const char *address, char ret_host[HOST_BYTES], const char **ret_port, struct err *e) {
    const bool brackets = *address == '[';
    const char *begin = address + brackets, *end = brackets ? strchr(address, ']') : strrchr(address, ':');
    const char *port = end ? end + brackets : NULL;
    char *rest = NULL;
    const long number = port && *port == ':' ? strtol(port + 1, &rest, 10) : 0;
    if (number < 1 || number > 65535 || !rest || *rest || end - begin >= HOST_BYTES || end == begin)
        return err_set(e, ST_INVALID_ARGUMENT, "--cache-listen: '%.100s' is not ADDR:PORT", address);
    snprintf(ret_host, HOST_BYTES, "%.*s", (int)(end - begin), begin);
    *ret_port = port + 1;
    return ST_OK;
}

/* Of the first certificate of the file. */
static status_t pin_read(const char *path, char ret[HOST_PIN_BYTES], struct err *e) {
    FILE *f = fopen(path, "re");
    X509 *certificate = f ? PEM_read_X509(f, NULL, NULL, NULL) : NULL;
    unsigned char *der = NULL;
    const int n = certificate ? i2d_X509_PUBKEY(X509_get_X509_PUBKEY(certificate), &der) : 0;
    uint8_t digest[SHA256_BYTES];
    if (f)
        fclose(f);
    if (n > 0) {
        sha256_of(der, (size_t)n, digest);
        EVP_EncodeBlock((unsigned char *)ret, digest, SHA256_BYTES);
    }
    OPENSSL_free(der);
    X509_free(certificate);
    return n > 0 ? ST_OK : err_set(e, ST_INVALID_ARGUMENT, "--tls-cert: '%.200s' has no certificate", path);
}

/* Every host reaches itself there. */
static void address_check(const struct agent_options *o) {
    char name[HOST_BYTES], text[HOST_BYTES + 160];
    const char *port = NULL;
    if (address_split(o->cache_listen, name, &port, NULL) != ST_OK || !is_any(name) || !is_loopback(o->address))
        return;
    snprintf(text, sizeof text,
             "--cache-listen: '%.100s' stands for --address, and other hosts do not reach '%.100s': give --address",
             name, o->address);
    log_event(LOG_WARN, "cache_address", "message", LOG_STR(text), NULL);
}

static status_t token_make(char ret[SHA256_HEX], struct err *e) {
    uint8_t random[SHA256_BYTES];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return err_errno(e, "read random bytes");
    sha256_hex(random, ret);
    return ST_OK;
}

static status_t offer_make(struct host *host, struct err *e) {
    const struct agent_options *o = host->options;
    struct cache_offer *offer = &host->cache_offer;
    char name[HOST_BYTES];
    const char *port = NULL;
    TRY(address_split(o->cache_listen, name, &port, e));
    const bool local = is_loopback(name);
    if (!local && (!o->tls.ca || !o->tls.cert || !o->tls.key))
        return err_set(e, ST_FAILED_PRECONDITION,
                       "--cache-listen: '%.100s' can be reached by other machines: it needs --tls-ca, --tls-cert and "
                       "--tls-key",
                       o->cache_listen);
    const char *reached = is_any(name) ? o->address : name;
    const bool six = strchr(reached, ':') != NULL;
    if (snprintf(offer->url, sizeof offer->url, "http%s://%s%s%s:%s", local ? "" : "s", six ? "[" : "", reached,
                 six ? "]" : "", port) >= (int)sizeof offer->url)
        return err_set(e, ST_INVALID_ARGUMENT, "--address: '%.100s' is too long", reached);
    *offer->key = '\0';
    if (!local)
        TRY(pin_read(o->tls.cert, offer->key, e));
    return *offer->token ? ST_OK : token_make(offer->token, e);
}

/* ---- the process ---- */

static void on_record(void *ctx, const Trainyard__V1__WorkerRecord *record) {
    struct cache_server *s = ctx;
    if (record->record_case != TRAINYARD__V1__WORKER_RECORD__RECORD_DATA)
        return;
    if (record->data->last) {
        log_event(LOG_WARN, "cache_not_served", "reason", LOG_STR(record->data->message), NULL);
        return;
    }
    s->pause_ms = PAUSE_FIRST_MS;
    log_event(LOG_INFO, "cache_served", "address", LOG_STR(record->data->message), NULL);
}

static void on_spooled(void *ctx, bool urgent) {
    (void)ctx;
    (void)urgent;
}

static void start_later(struct cache_server *s) {
    reactor_timer_set(s->host->loop, &s->again, s->pause_ms);
    s->pause_ms = s->pause_ms * 2 < PAUSE_MAX_MS ? s->pause_ms * 2 : PAUSE_MAX_MS;
}

static void on_ended(void *ctx, const struct exit_status *exit, bool drained) {
    struct cache_server *s = ctx;
    char sentence[160];
    if (!drained)
        return;
    exit_status_sentence(exit, worker_process_killed_because(s->process), sentence, sizeof sentence);
    log_event(LOG_WARN, "cache_server_ended", "reason", LOG_STR(sentence), NULL);
    s->process = worker_process_close(s->process);
    start_later(s);
}

static status_t process_start(struct cache_server *s, struct err *e) {
    const struct agent_options *o = s->host->options;
    const struct worker_process_owner owner = {
        .ctx = s, .record = on_record, .spooled = on_spooled, .ended = on_ended
    };
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    Trainyard__V1__CacheServe order = TRAINYARD__V1__CACHE_SERVE__INIT;
    order.cache = s->host->data_cache;
    order.listen = (char *)(uintptr_t)o->cache_listen;
    order.token = s->host->cache_offer.token;
    order.tls_ca = (char *)(uintptr_t)(o->tls.ca ? o->tls.ca : "");
    order.tls_cert = (char *)(uintptr_t)(o->tls.cert ? o->tls.cert : "");
    order.tls_key = (char *)(uintptr_t)(o->tls.key ? o->tls.key : "");
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_SERVE_CACHE;
    command.serve_cache = &order;
    return data_process_start(s->host, &command, &owner, &s->process, e);
}

static void again_fire(void *ctx) {
    struct cache_server *s = ctx;
    const struct cache_offer before = s->host->cache_offer;
    struct err why;
    status_t st = offer_make(s->host, &why);
    if (st == ST_OK)
        st = process_start(s, &why);
    if (st == ST_OK && strcmp(before.key, s->host->cache_offer.key) != 0)
        s->owner.changed(s->owner.ctx);
    if (st == ST_OK)
        return;
    log_event(LOG_WARN, "cache_not_served", "reason", LOG_STR(why.msg), NULL);
    s->process = worker_process_close(s->process);
    start_later(s);
}

void cache_server_reload(struct cache_server *s) {
    if (s && s->process && *s->host->cache_offer.key)
        worker_process_kill(s->process, "was ended to read the files of TLS again");
}

struct cache_server *cache_server_close(struct cache_server *s) {
    if (!s)
        return NULL;
    reactor_timer_cancel(s->host->loop, &s->again);
    worker_process_close(s->process);
    free(s);
    return NULL;
}

status_t cache_server_open(struct host *host, const struct cache_server_owner *owner, struct cache_server **ret,
                           struct err *e) {
    if (!host->options->cache_listen || *host->no_data.msg)
        return ST_OK;
    TRY(offer_make(host, e));
    address_check(host->options);
    struct cache_server *s = alloc_zeroed(1, sizeof *s);
    *s = (struct cache_server){
        .host = host, .owner = *owner, .again = { .fire = again_fire, .ctx = s }, .pause_ms = PAUSE_FIRST_MS
    };
    *ret = s;
    return process_start(s, e);
}
