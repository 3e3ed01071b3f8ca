#include "executor/agent/data_order.h"

#include "api/spec/data_uri.h"
#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STORES_MAX = 3 };

/* How it reaches a network, and which certificates it trusts. */
static const char *const NETWORK_VARIABLES[] = {
    "http_proxy", "https_proxy", "HTTPS_PROXY",   "no_proxy",     "NO_PROXY",
    "all_proxy",  "ALL_PROXY",   "SSL_CERT_FILE", "SSL_CERT_DIR", "TRAINYARD_PEER_PATIENCE_S",
};

static ProtobufCBinaryData key_copy(Trainyard__V1__AttemptSecret *const *secrets, size_t n, const char *field) {
    ProtobufCBinaryData copy = { 0 };
    for (size_t i = 0; i < n; i++)
        if (strcmp(secrets[i]->variable, field) == 0 && secrets[i]->value.len > 0) {
            copy.len = secrets[i]->value.len;
            copy.data = alloc_zeroed(copy.len, 1);
            memcpy(copy.data, secrets[i]->value.data, copy.len);
            break;
        }
    return copy;
}

static Trainyard__V1__DataStore *store_add(Trainyard__V1__DataFetch *order, const char *scheme, const char *endpoint) {
    Trainyard__V1__DataStore *store = alloc_zeroed(1, sizeof *store);
    trainyard__v1__data_store__init(store);
    store->scheme = alloc_copy_text(scheme);
    store->endpoint = alloc_copy_text(endpoint);
    order->stores[order->n_stores++] = store;
    return store;
}

static void stores_fill(Trainyard__V1__DataFetch *order, const Trainyard__V1__StoresSpec *stores,
                        Trainyard__V1__AttemptSecret *const *secrets, size_t n) {
    order->stores = alloc_zeroed(STORES_MAX, sizeof *order->stores);
    if (stores->s3) {
        Trainyard__V1__DataStore *s3 = store_add(order, "s3", stores->s3->endpoint);
        s3->region = alloc_copy_text(stores->s3->region);
        s3->access_key = key_copy(secrets, n, "s3.access_key");
        s3->secret_key = key_copy(secrets, n, "s3.secret_key");
    }
    if (stores->hf)
        store_add(order, "hf", stores->hf->endpoint)->secret_key = key_copy(secrets, n, "hf.token");
    if (stores->https)
        store_add(order, "https", stores->https->endpoint)->secret_key = key_copy(secrets, n, "https.token");
}

Trainyard__V1__DataFetch *data_order_new_stores(const struct host *host, const Trainyard__V1__JobSpec *spec,
                                                Trainyard__V1__AttemptSecret *const *secrets, size_t n_secrets) {
    Trainyard__V1__DataFetch *order = alloc_zeroed(1, sizeof *order);
    trainyard__v1__data_fetch__init(order);
    order->cache = alloc_copy_text(host->data_cache);
    order->cache_bytes = host->options->data_cache_bytes;
    if (spec->stores)
        stores_fill(order, spec->stores, secrets, n_secrets);
    return order;
}

Trainyard__V1__DataFetch *data_order_new(const struct host *host, const Trainyard__V1__JobSpec *spec,
                                         Trainyard__V1__AttemptSecret *const *secrets, size_t n_secrets) {
    Trainyard__V1__DataFetch *order = data_order_new_stores(host, spec, secrets, n_secrets);
    const char **uris = data_uris_remote(spec, &order->n_uris);
    order->uris = alloc_zeroed(order->n_uris, sizeof *order->uris);
    for (size_t i = 0; i < order->n_uris; i++)
        order->uris[i] = alloc_copy_text(uris[i]);
    free(uris);
    return order;
}

char *data_order_marker(const struct host *host, const Trainyard__V1__JobSpec *spec) {
    const char *cluster = directory_cluster(host->directory);
    return alloc_format("%s/%s/writable-%s", spec->checkpoint->store, *cluster ? cluster : "none",
                        directory_id(host->directory));
}

static char *option_copy(const char *value) { return alloc_copy_text(value ? value : ""); }

void data_order_add_peers(Trainyard__V1__DataFetch *order, const struct host *host,
                          const Trainyard__V1__AttemptStart *start) {
    order->peers = alloc_zeroed(start->n_cache_peers, sizeof(Trainyard__V1__CachePeer *));
    for (size_t i = 0; i < start->n_cache_peers; i++) {
        Trainyard__V1__CachePeer *peer = alloc_zeroed(1, sizeof *peer);
        trainyard__v1__cache_peer__init(peer);
        peer->url = alloc_copy_text(start->cache_peers[i]->url);
        peer->token = alloc_copy_text(start->cache_peers[i]->token);
        peer->key = alloc_copy_text(start->cache_peers[i]->key);
        order->peers[order->n_peers++] = peer;
    }
    order->n_gang = start->n_cache_gang;
    order->own_url = alloc_copy_text(start->cache_url);
    order->tls_cert = option_copy(host->options->tls.cert);
    order->tls_key = option_copy(host->options->tls.key);
}

status_t data_process_start(const struct host *host, const Trainyard__V1__WorkerCommand *command,
                            const struct worker_process_owner *owner, struct worker_process **ret, struct err *e) {
    char parent[16];
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    const char *const argv[] = { host->options->data, "--agent-pid", parent, NULL };
    const struct worker_process_options options = {
        .loop = host->loop,
        .spool = host->spool,
        .orphans = host->orphans,
        .spawn = { .program = host->options->data,
                   .argv = argv,
                   .threads = 1,
                   .kept = NETWORK_VARIABLES,
                   .n_kept = sizeof NETWORK_VARIABLES / sizeof *NETWORK_VARIABLES },
        .owner = *owner,
    };
    TRY(worker_process_open(&options, ret, e));
    return worker_process_send(*ret, command, e);
}

status_t data_order_send(const struct host *host, Trainyard__V1__DataFetch *order,
                         const struct worker_process_owner *owner, struct worker_process **ret, struct err *e) {
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_FETCH_DATA;
    command.fetch_data = order;
    return data_process_start(host, &command, owner, ret, e);
}

static void key_wipe(const ProtobufCBinaryData *key) {
    if (key->len > 0)
        explicit_bzero(key->data, key->len);
}

void attempt_secrets_wipe(Trainyard__V1__AttemptSecret *const *secrets, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (secrets[i]->value.len > 0)
            explicit_bzero(secrets[i]->value.data, secrets[i]->value.len);
}

Trainyard__V1__DataFetch *data_order_free(Trainyard__V1__DataFetch *order) {
    for (size_t i = 0; order && i < order->n_stores; i++) {
        key_wipe(&order->stores[i]->access_key);
        key_wipe(&order->stores[i]->secret_key);
    }
    for (size_t i = 0; order && i < order->n_peers; i++)
        explicit_bzero(order->peers[i]->token, strlen(order->peers[i]->token));
    if (order)
        trainyard__v1__data_fetch__free_unpacked(order, NULL);
    return NULL;
}
