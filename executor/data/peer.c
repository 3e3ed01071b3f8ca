/* A bit of data_object.peers stands for each peer that has the object. The first one to say so decides which digest
 * is expected; a peer with another digest for the same version of the object has a wrong copy, and is not asked for
 * it. */
#include "executor/data/peer.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "executor/data/parallel.h"
#include "executor/data/peer_message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int seconds(int usual) {
    const char *text = getenv("TRAINYARD_PEER_PATIENCE_S");
    const long s = text ? strtol(text, NULL, 10) : 0;
    return s > 0 && s <= PEER_PATIENCE_MAX_S ? (int)s : usual;
}

void peers_init(struct peers *ps, const Trainyard__V1__DataFetch *order, const atomic_bool *end) {
    *ps = (struct peers){ .own_url = order->own_url,
                          .wait_ms = seconds(PEER_WAIT_S) * 1000LL,
                          .mutex = PTHREAD_MUTEX_INITIALIZER };
    for (size_t i = 0; i < order->n_peers && ps->n < PEERS_MAX; i++) {
        struct peer *p = &ps->items[ps->n++];
        p->tls = (struct store_peer){ .cert = order->tls_cert,
                                      .key = order->tls_key,
                                      .pin = order->peers[i]->key,
                                      .connect_s = seconds(PEER_CONNECT_S),
                                      .slow_s = seconds(PEER_SLOW_S) };
        p->store = (struct store){ .scheme = DATA_HTTPS,
                                   .endpoint = alloc_copy_text(order->peers[i]->url),
                                   .secret = alloc_copy_text(order->peers[i]->token),
                                   .patience_ms = ps->wait_ms,
                                   .end = end,
                                   .peer = &p->tls };
        p->in_gang = (int)i < order->n_gang;
    }
}

void peers_done(struct peers *ps) {
    for (int i = 0; i < ps->n; i++) {
        explicit_bzero(ps->items[i].store.secret, strlen(ps->items[i].store.secret));
        free(ps->items[i].store.secret);
        free(ps->items[i].store.endpoint);
    }
    ps->n = 0;
}

/* ---- a question ---- */

struct question {
    struct peers *ps;
    struct data_object *const *objects;
    int n;
};

static uint64_t weight_of(const char *url, const char *key) {
    uint8_t digest[SHA256_BYTES];
    uint64_t weight;
    struct sha256 s;
    sha256_begin(&s);
    sha256_update(&s, url, strlen(url) + 1);
    sha256_update(&s, key, SHA256_HEX - 1);
    sha256_final(&s, digest);
    memcpy(&weight, digest, sizeof weight); /* hosts of one kind compute the same */
    return weight;
}

/* The peer to which the object belongs; -1: this host. All hosts of the attempt agree about it, because each knows
 * the addresses of the same readers, at most PEERS_MAX (service/controller/dispatch.h). Where an address without TLS is
 * kept from other hosts they do not, and read some objects twice. */
static int owner_of(const struct peers *ps, const struct data_object *o) {
    int owner = -1;
    bool any = *ps->own_url != '\0';
    uint64_t best = any ? weight_of(ps->own_url, o->key) : 0;
    for (int i = 0; i < ps->n; i++) {
        const uint64_t weight = ps->items[i].in_gang ? weight_of(ps->items[i].store.endpoint, o->key) : 0;
        if (!ps->items[i].in_gang || (any && weight <= best))
            continue;
        best = weight;
        owner = i;
        any = true;
    }
    return owner;
}

/* With the mutex. */
static void line_take(struct peer *p, int index, struct data_object *o, const struct peer_line *line,
                      uint64_t *progress) {
    if (line->coming)
        *progress += line->progress;
    if (!*line->sha256 || o->has_no_peer)
        return;
    if (!*o->peer_sha256)
        memcpy(o->peer_sha256, line->sha256, SHA256_HEX);
    if (strcmp(o->peer_sha256, line->sha256) == 0)
        o->peers |= 1u << index;
    p->progress_ms = clock_mono_ms();
}

static void lines_take(struct peers *ps, int index, struct data_object *const *objects, int n,
                       const struct peer_line *lines, uint64_t *progress) {
    pthread_mutex_lock(&ps->mutex);
    for (int i = 0; i < n; i++)
        line_take(&ps->items[index], index, objects[i], &lines[i], progress);
    pthread_mutex_unlock(&ps->mutex);
}

static status_t ask_some(struct peers *ps, int index, struct data_object *const *objects, int n, struct http *h,
                         uint64_t *progress) {
    const struct store *store = &ps->items[index].store;
    CLEANUP(freep) char *url = alloc_format("%s/find", store->endpoint);
    CLEANUP(freep) char *body = alloc_zeroed((size_t)n * SHA256_HEX + 1, 1);
    CLEANUP(freep) struct peer_line *lines = alloc_zeroed((size_t)n, sizeof *lines);
    for (int i = 0; i < n; i++) {
        memcpy(body + (size_t)i * SHA256_HEX, objects[i]->key, SHA256_HEX - 1);
        body[(size_t)(i + 1) * SHA256_HEX - 1] = '\n';
    }
    const struct http_request request = { .store = store,
                                          .name = url,
                                          .url = url,
                                          .method = "POST",
                                          .body = body,
                                          .body_bytes = (size_t)n * SHA256_HEX,
                                          .body_sha256 = "" };
    struct answer answer;
    answer_init(&answer);
    status_t st = http_try(h, &request, &answer, NULL);
    if (st == ST_OK && !peer_lines_read(answer.body.data, answer.body.len, (size_t)n, lines))
        st = ST_UNAVAILABLE;
    answer_done(&answer);
    if (st == ST_OK)
        lines_take(ps, index, objects, n, lines, progress);
    return st;
}

/* With the mutex. */
static bool is_gone(const struct peer *p) { return p->failures >= PEER_FAILURES_MAX; }

static void fail(struct peers *ps, int index) {
    pthread_mutex_lock(&ps->mutex);
    ps->items[index].failures++;
    pthread_mutex_unlock(&ps->mutex);
}

static bool may_ask(struct peers *ps, int index) {
    pthread_mutex_lock(&ps->mutex);
    const bool ret = !is_gone(&ps->items[index]);
    pthread_mutex_unlock(&ps->mutex);
    return ret;
}

/* All objects, in as many requests as that needs. */
static status_t ask_all(void *ctx, int index, struct http *h, struct err *e) {
    const struct question *q = ctx;
    uint64_t progress = 0;
    (void)e;
    for (int i = 0; i < q->n && may_ask(q->ps, index); i += PEER_KEYS_MAX)
        if (ask_some(q->ps, index, q->objects + i, q->n - i < PEER_KEYS_MAX ? q->n - i : PEER_KEYS_MAX, h, &progress) !=
            ST_OK)
            fail(q->ps, index);
    return ST_OK;
}

void peers_find(struct peers *ps, struct data_object *const *objects, int n) {
    struct question q = { .ps = ps, .objects = objects, .n = n };
    for (int i = 0; i < n && ps->n > 0; i++)
        objects[i]->peer_owner = owner_of(ps, objects[i]);
    status_ignore(parallel_each(ps->n, ask_all, &q, NULL));
}

/* ---- waiting ---- */

static void progress_take(struct peers *ps, int index, uint64_t progress) {
    const int64_t now = clock_mono_ms();
    pthread_mutex_lock(&ps->mutex);
    struct peer *p = &ps->items[index];
    if (!p->is_waited_for || p->progress != progress)
        p->progress_ms = now;
    p->is_waited_for = true;
    p->progress = progress;
    p->is_late |= now - p->progress_ms > ps->wait_ms;
    pthread_mutex_unlock(&ps->mutex);
}

/* About the first ones that belong to it: it copies them in this order, too. */
static void ask_owner(struct peers *ps, int index, struct data_object *const *objects, int n, struct http *h) {
    struct data_object *some[PEER_KEYS_MAX];
    uint64_t progress = 0;
    int n_some = 0;
    for (int i = 0; i < n && n_some < PEER_KEYS_MAX; i++)
        if (objects[i]->peer_owner == index)
            some[n_some++] = objects[i];
    if (n_some == 0 || !may_ask(ps, index))
        return;
    if (ask_some(ps, index, some, n_some, h, &progress) == ST_OK)
        progress_take(ps, index, progress);
    else
        fail(ps, index);
}

void peers_ask(struct peers *ps, struct data_object *const *objects, int n, struct http *h) {
    for (int i = 0; i < ps->n; i++)
        if (ps->items[i].in_gang)
            ask_owner(ps, i, objects, n, h);
}

/* ---- choice ---- */

enum peer_choice peers_choose(struct peers *ps, struct data_object *o) {
    enum peer_choice choice = PEER_NONE;
    const struct peer *owner = ps->n > 0 && o->peer_owner >= 0 ? &ps->items[o->peer_owner] : NULL;
    pthread_mutex_lock(&ps->mutex);
    o->peer = NULL;
    for (int i = 0; i < ps->n; i++) {
        struct peer *p = &ps->items[i];
        if ((o->peers & 1u << i) && !is_gone(p) && (!o->peer || p->bytes < o->peer->bytes))
            o->peer = p;
    }
    if (o->peer) {
        o->peer->bytes += o->bytes;
        choice = PEER_HAS;
    } else if (owner && !o->has_no_peer && !is_gone(owner) && !owner->is_late) {
        choice = PEER_WAIT;
    }
    pthread_mutex_unlock(&ps->mutex);
    return choice;
}

void peers_fail(struct peers *ps, struct data_object *o, bool wrong) {
    pthread_mutex_lock(&ps->mutex);
    o->peer->failures += wrong ? PEER_FAILURES_MAX : 1;
    o->has_no_peer = true;
    o->peers &= ~(1u << (o->peer - ps->items));
    o->peer = NULL;
    if (!o->peers)
        *o->peer_sha256 = '\0';
    pthread_mutex_unlock(&ps->mutex);
}

void peers_forget(struct peers *ps, struct data_object *o) {
    pthread_mutex_lock(&ps->mutex);
    o->peers = 0;
    *o->peer_sha256 = '\0';
    o->peer = NULL;
    o->has_no_peer = true;
    pthread_mutex_unlock(&ps->mutex);
}
