/* The registry of attached executors: a tree by id and a list of the same entries. An entry exists from dispatch_attach
 * to dispatch_detach, and each attach gives it a new ticket. The end of a stream carries its ticket, so that a late end
 * of a replaced stream does not remove the link of the newer stream.
 *
 * dispatch_detach moves the entry to the list of detached executors. The loop takes this list in its next turn
 * (dispatch_take_detached) and skips executors that have attached again meanwhile.
 *
 * Each entry has a place in the array `places`, and its tickets name that place, so that a heartbeat finds its entry
 * without a search.
 *
 * dispatch_pick and dispatch_pick_checker choose the entry that was picked least often, which spreads samples and
 * checks over the hosts. These scans are linear. */
#include "service/controller/dispatch.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "service/store/cluster.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct known {
    char executor[SCHEDULER_EXECUTOR_ID_BYTES]; /* first: the tree's key */
    int64_t incarnation, last_seen_ms;
    uint64_t ticket; /* 0: none yet */
    size_t place;    /* in the array of places */
    int picked;
    uint64_t copies; /* the number of its last order to copy data; 0: it had none */
    bool news;
    bool welcomed; /* the link has got its first message */
    bool leaving;
    struct dispatch_link link;
    char caller[DISPATCH_CALLER_BYTES];
    struct dispatch_use use; /* without names and times */
    struct dispatch_device *devices;
    struct known *next, **at;
};

/* The lower bits of a ticket are the place of its entry. The others count the tickets. */
#define PLACE_BITS 24
#define PLACE_MASK ((UINT64_C(1) << PLACE_BITS) - 1)

struct dispatch {
    pthread_mutex_t lock;
    void *by_name;
    struct known *all;
    struct known **places; /* [n_places] NULL: free */
    size_t *free_places;   /* [n_places] a stack of n_free */
    size_t n_places, n_free;
    void *detached_by_name; /* the entries of the list below, each executor once */
    struct known *detached;
    uint64_t n_tickets; /* given so far */
    uint64_t copies;    /* orders to copy data */
    int64_t epoch;
    char nonce[STORE_UUID_BYTES];
    int attached;
};

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

struct dispatch *dispatch_new(void) {
    struct dispatch *d = alloc_zeroed(1, sizeof *d);
    pthread_mutex_init(&d->lock, NULL);
    return d;
}

static void keep(void *known) { (void)known; }

static void known_free(void *known) {
    free(((struct known *)known)->devices);
    free(known);
}

static void detached_free(struct dispatch *d) {
    tdestroy(d->detached_by_name, keep);
    d->detached_by_name = NULL;
    for (struct known *en = d->detached, *next; en; en = next) {
        next = en->next;
        known_free(en);
    }
    d->detached = NULL;
}

struct dispatch *dispatch_free(struct dispatch *d) {
    if (!d)
        return NULL;
    assert(d->attached == 0);
    tdestroy(d->by_name, known_free);
    detached_free(d);
    free(d->places);
    free(d->free_places);
    pthread_mutex_destroy(&d->lock);
    free(d);
    return NULL;
}

static struct known *find(struct dispatch *d, const char *executor) {
    void *const *node = tfind(executor, &d->by_name, by_name);
    return node ? *node : NULL;
}

static struct known *find_ticket(struct dispatch *d, uint64_t ticket) {
    const uint64_t place = ticket & PLACE_MASK;
    struct known *en = ticket && place < d->n_places ? d->places[place] : NULL;
    return en && en->ticket == ticket ? en : NULL;
}

/* Free places are used first, so that there are as many as executors were attached at once. */
static size_t place_take(struct dispatch *d, struct known *en) {
    if (d->n_free == 0) {
        assert(d->n_places < PLACE_MASK);
        d->places = alloc_grow(d->places, d->n_places, sizeof *d->places);
        d->free_places = alloc_grow(d->free_places, d->n_places, sizeof *d->free_places);
        d->free_places[d->n_free++] = d->n_places++;
    }
    const size_t place = d->free_places[--d->n_free];
    d->places[place] = en;
    return place;
}

static void place_free(struct dispatch *d, struct known *en) {
    d->places[en->place] = NULL;
    d->free_places[d->n_free++] = en->place;
}

static struct known *add(struct dispatch *d, const char *executor) {
    struct known *en = alloc_zeroed(1, sizeof *en);
    snprintf(en->executor, sizeof en->executor, "%s", executor);
    alloc_tree_node(en, &d->by_name, by_name);
    en->place = place_take(d, en);
    en->next = d->all;
    en->at = &d->all;
    if (en->next)
        en->next->at = &en->next;
    d->all = en;
    return en;
}

/* With the lock held. en NULL: the executor is not attached. */
static bool is_admitted(const struct known *en, const char *caller) {
    return !en || !en->ticket || strcmp(en->caller, caller) == 0;
}

bool dispatch_admits(struct dispatch *d, const char *executor, const char *caller) {
    pthread_mutex_lock(&d->lock);
    bool admits = is_admitted(find(d, executor), caller);
    pthread_mutex_unlock(&d->lock);
    return admits;
}

bool dispatch_admits_reports(struct dispatch *d, const char *executor, int64_t incarnation, const char *caller) {
    pthread_mutex_lock(&d->lock);
    const struct known *en = find(d, executor);
    const bool attached = en && en->ticket;
    bool admits = is_admitted(en, caller) && (!caller[0] || (attached && en->welcomed)) &&
                  !(attached && incarnation < en->incarnation);
    pthread_mutex_unlock(&d->lock);
    return admits;
}

/* With the lock held. A process keeps its host's name, and one of an earlier start that has ended is seen no more. */
static bool is_copy(const struct known *en, const char *hostname) {
    return en && en->ticket && strcmp(en->link.host.hostname, hostname) != 0 &&
           clock_mono_ms() - en->last_seen_ms < LEASE_TTL_MS / 2;
}

bool dispatch_is_copy(struct dispatch *d, const char *executor, const char *hostname,
                      char ret_other[sizeof((struct dispatch_host *)0)->hostname]) {
    pthread_mutex_lock(&d->lock);
    const struct known *en = find(d, executor);
    const bool copy = is_copy(en, hostname);
    if (copy)
        memcpy(ret_other, en->link.host.hostname, sizeof en->link.host.hostname);
    pthread_mutex_unlock(&d->lock);
    return copy;
}

uint64_t dispatch_attach(struct dispatch *d, const char *executor, int64_t incarnation,
                         const struct dispatch_link *link) {
    uint64_t ticket = 0;
    pthread_mutex_lock(&d->lock);
    struct known *en = find(d, executor);
    const bool admitted = is_admitted(en, link->caller) && !is_copy(en, link->host.hostname);
    if (!en)
        en = add(d, executor);
    if (admitted && (!en->ticket || incarnation >= en->incarnation)) {
        if (en->ticket)
            en->link.close(en->link.ctx, ST_ABORTED, "another stream of this executor has attached");
        else
            d->attached++;
        en->incarnation = incarnation;
        en->link = *link;
        snprintf(en->caller, sizeof en->caller, "%s", link->caller);
        en->link.caller = en->caller;
        en->welcomed = en->leaving = false;
        en->use = (struct dispatch_use){ 0 };
        en->last_seen_ms = clock_mono_ms();
        en->news = true;
        ticket = en->ticket = ++d->n_tickets << PLACE_BITS | en->place;
    }
    pthread_mutex_unlock(&d->lock);
    return ticket;
}

bool dispatch_token(struct dispatch *d, uint64_t ticket, char ret[DISPATCH_CALLER_BYTES]) {
    pthread_mutex_lock(&d->lock);
    const struct known *en = find_ticket(d, ticket);
    snprintf(ret, DISPATCH_CALLER_BYTES, "%s", en && en->link.token ? en->caller : "");
    pthread_mutex_unlock(&d->lock);
    return en;
}

/* Adds the entry to the detached ones, with the newest incarnation of the executor. */
static void note_detached(struct dispatch *d, struct known *en) {
    struct known *const *node = alloc_tree_node(en, &d->detached_by_name, by_name);
    if (*node != en) {
        if ((*node)->incarnation < en->incarnation)
            (*node)->incarnation = en->incarnation;
        known_free(en);
        return;
    }
    en->next = d->detached;
    d->detached = en;
}

void dispatch_detach(struct dispatch *d, uint64_t ticket) {
    pthread_mutex_lock(&d->lock);
    struct known *en = find_ticket(d, ticket);
    if (en) {
        *en->at = en->next;
        if (en->next)
            en->next->at = en->at;
        place_free(d, en);
        tdelete(en, &d->by_name, by_name);
        note_detached(d, en);
        d->attached--;
    }
    pthread_mutex_unlock(&d->lock);
}

void dispatch_take_detached(struct dispatch *d, void (*fn)(void *ctx, const char *executor, int64_t incarnation),
                            void *ctx) {
    pthread_mutex_lock(&d->lock);
    struct dispatch taken = { .detached_by_name = d->detached_by_name, .detached = d->detached };
    d->detached_by_name = NULL;
    d->detached = NULL;
    pthread_mutex_unlock(&d->lock);
    for (const struct known *en = taken.detached; en; en = en->next)
        if (!dispatch_attached(d, en->executor))
            fn(ctx, en->executor, en->incarnation);
    detached_free(&taken);
}

void dispatch_mark_seen(struct dispatch *d, uint64_t ticket) {
    pthread_mutex_lock(&d->lock);
    struct known *en = find_ticket(d, ticket);
    if (en) {
        en->last_seen_ms = clock_mono_ms();
        en->news = true;
    }
    pthread_mutex_unlock(&d->lock);
}

static double known_value(bool set, double value) { return set && isfinite(value) ? value : NAN; }
#define DEVICE_VALUE(m, name) known_value((m)->_##name##_case != 0, (m)->name)

static void devices_keep(struct known *en, const Trainyard__V1__AgentUse *u) {
    const size_t n = u->n_devices < DISPATCH_DEVICES_MAX ? u->n_devices : DISPATCH_DEVICES_MAX;
    if (n > 0)
        en->devices = alloc_resize(en->devices, n, sizeof *en->devices);
    en->use.n_devices = n;
    for (size_t i = 0; i < n; i++) {
        const Trainyard__V1__DeviceUse *m = u->devices[i];
        en->devices[i] = (struct dispatch_device){ .index = m->index,
                                                   .utilization = DEVICE_VALUE(m, utilization),
                                                   .memory_bytes = DEVICE_VALUE(m, memory_bytes),
                                                   .power_watts = DEVICE_VALUE(m, power_watts),
                                                   .temperature_celsius = DEVICE_VALUE(m, temperature_celsius) };
    }
}

static void use_keep(struct known *en, const Trainyard__V1__AgentHeartbeat *beat) {
    const Trainyard__V1__AgentUse *u = beat->use;
    if (!u)
        return;
    en->use = (struct dispatch_use){ .reported = true,
                                     .spool_bytes = beat->spool_bytes,
                                     .spool_limit_bytes = u->spool_limit_bytes,
                                     .records_waiting = u->records_waiting,
                                     .samples_dropped = u->samples_dropped,
                                     .lines_dropped = u->lines_dropped,
                                     .training_waits = u->training_waits,
                                     .connects = u->connects,
                                     .disconnects = u->disconnects,
                                     .data_store_bytes = u->data_store_bytes,
                                     .data_peer_bytes = u->data_peer_bytes,
                                     .data_cache_bytes = u->data_cache_bytes };
    devices_keep(en, u);
}

void dispatch_heartbeat(struct dispatch *d, uint64_t ticket, const Trainyard__V1__AgentHeartbeat *beat) {
    pthread_mutex_lock(&d->lock);
    struct known *en = find_ticket(d, ticket);
    if (en)
        use_keep(en, beat);
    pthread_mutex_unlock(&d->lock);
}

static int compare_uses(const void *a, const void *b) {
    return strcmp(((const struct dispatch_use *)a)->executor, ((const struct dispatch_use *)b)->executor);
}

void dispatch_use(struct dispatch *d, struct dispatch_uses *ret) {
    size_t n_devices = 0;
    *ret = (struct dispatch_uses){ 0 };
    pthread_mutex_lock(&d->lock);
    for (const struct known *en = d->all; en; en = en->next)
        n_devices += en->use.n_devices;
    ret->items = alloc_zeroed((size_t)d->attached + 1, sizeof *ret->items);
    ret->devices = alloc_zeroed(n_devices + 1, sizeof *ret->devices);
    n_devices = 0;
    for (const struct known *en = d->all; en; en = en->next) {
        if (!en->ticket)
            continue;
        struct dispatch_use *u = &ret->items[ret->n++];
        *u = en->use;
        u->last_seen_ms = en->last_seen_ms;
        u->first_device = n_devices;
        memcpy(u->executor, en->executor, sizeof u->executor);
        memcpy(u->hostname, en->link.host.hostname, sizeof u->hostname);
        if (u->n_devices > 0)
            memcpy(&ret->devices[n_devices], en->devices, u->n_devices * sizeof *en->devices);
        n_devices += u->n_devices;
    }
    pthread_mutex_unlock(&d->lock);
    qsort(ret->items, ret->n, sizeof *ret->items, compare_uses);
}

void dispatch_uses_done(struct dispatch_uses *uses) {
    free(uses->items);
    free(uses->devices);
    *uses = (struct dispatch_uses){ 0 };
}

void dispatch_leave(struct dispatch *d, uint64_t ticket) {
    pthread_mutex_lock(&d->lock);
    struct known *en = find_ticket(d, ticket);
    if (en)
        en->leaving = true;
    pthread_mutex_unlock(&d->lock);
}

static bool send_on(struct dispatch *d, const struct known *en, Trainyard__V1__ControllerMessage *m) {
    m->epoch = d->epoch;
    m->epoch_nonce = d->nonce;
    if (en->link.send(en->link.ctx, m))
        return true;
    en->link.close(en->link.ctx, ST_RESOURCE_EXHAUSTED, "the executor does not read its orders");
    return false;
}

void dispatch_welcome(struct dispatch *d, uint64_t ticket, Trainyard__V1__ControllerMessage *m) {
    pthread_mutex_lock(&d->lock);
    struct known *en = find_ticket(d, ticket);
    if (en && !en->welcomed)
        en->welcomed = send_on(d, en, m);
    pthread_mutex_unlock(&d->lock);
}

bool dispatch_is_welcomed(struct dispatch *d, uint64_t ticket) {
    pthread_mutex_lock(&d->lock);
    const struct known *en = find_ticket(d, ticket);
    const bool welcomed = en && en->welcomed;
    pthread_mutex_unlock(&d->lock);
    return welcomed;
}

bool dispatch_send(struct dispatch *d, const char *executor, Trainyard__V1__ControllerMessage *m) {
    pthread_mutex_lock(&d->lock);
    const struct known *en = find(d, executor);
    bool sent = en && en->ticket && en->welcomed && send_on(d, en, m);
    pthread_mutex_unlock(&d->lock);
    return sent;
}

void dispatch_set_epoch(struct dispatch *d, int64_t epoch, const char *nonce) {
    pthread_mutex_lock(&d->lock);
    d->epoch = epoch;
    snprintf(d->nonce, sizeof d->nonce, "%s", nonce);
    pthread_mutex_unlock(&d->lock);
}

void dispatch_close(struct dispatch *d, const char *executor, status_t st, const char *why) {
    pthread_mutex_lock(&d->lock);
    struct known *en = find(d, executor);
    if (en && en->ticket)
        en->link.close(en->link.ctx, st, why);
    pthread_mutex_unlock(&d->lock);
}

void dispatch_refuse(struct dispatch *d, uint64_t ticket, status_t st, const char *why) {
    pthread_mutex_lock(&d->lock);
    const struct known *en = find_ticket(d, ticket);
    if (en)
        en->link.close(en->link.ctx, st, why);
    pthread_mutex_unlock(&d->lock);
}

void dispatch_close_all(struct dispatch *d, status_t st, const char *why) {
    pthread_mutex_lock(&d->lock);
    for (struct known *en = d->all; en; en = en->next)
        if (en->ticket)
            en->link.close(en->link.ctx, st, why);
    pthread_mutex_unlock(&d->lock);
}

bool dispatch_attached(struct dispatch *d, const char *executor) {
    pthread_mutex_lock(&d->lock);
    const struct known *en = find(d, executor);
    bool attached = en && en->ticket;
    pthread_mutex_unlock(&d->lock);
    return attached;
}

int dispatch_count(struct dispatch *d) {
    pthread_mutex_lock(&d->lock);
    int n = d->attached;
    pthread_mutex_unlock(&d->lock);
    return n;
}

void dispatch_take_seen(struct dispatch *d, void (*fn)(void *, const char *, int64_t), void *ctx) {
    pthread_mutex_lock(&d->lock);
    for (struct known *en = d->all; en; en = en->next)
        if (en->news && en->welcomed) {
            en->news = false;
            fn(ctx, en->executor, en->last_seen_ms);
        }
    pthread_mutex_unlock(&d->lock);
}

size_t dispatch_list(struct dispatch *d, struct dispatch_last_seen *ret, size_t cap) {
    size_t n = 0;
    pthread_mutex_lock(&d->lock);
    for (const struct known *en = d->all; en && n < cap; en = en->next, n++) {
        memcpy(ret[n].executor, en->executor, sizeof ret[n].executor);
        ret[n].last_seen_ms = en->last_seen_ms;
    }
    pthread_mutex_unlock(&d->lock);
    return n;
}

static bool on_one_of(const struct known *en, const struct dispatch_picked *picked, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(en->link.host.hostname, picked[i].hostname) == 0 || strcmp(en->executor, picked[i].executor) == 0)
            return true;
    return false;
}

static bool is_checker(const struct known *en, bool cuda) {
    const struct dispatch_host *h = &en->link.host;
    return en->ticket && en->welcomed && !en->leaving && h->checks && (cuda ? h->cuda : h->cpu);
}

bool dispatch_has_checker(struct dispatch *d, bool cuda, const struct dispatch_picked *picked, size_t n) {
    bool has = false;
    pthread_mutex_lock(&d->lock);
    for (const struct known *en = d->all; en && !has; en = en->next)
        has = is_checker(en, cuda) && !on_one_of(en, picked, n);
    pthread_mutex_unlock(&d->lock);
    return has;
}

/* NULL: none. */
static void pick(struct known *best, struct dispatch_picked *ret) {
    if (!best)
        return;
    best->picked++;
    memcpy(ret->executor, best->executor, sizeof ret->executor);
    memcpy(ret->hostname, best->link.host.hostname, sizeof ret->hostname);
}

bool dispatch_pick_remover(struct dispatch *d, struct dispatch_picked *ret) {
    struct known *best = NULL;
    pthread_mutex_lock(&d->lock);
    for (struct known *en = d->all; en; en = en->next)
        if (en->ticket && en->welcomed && !en->leaving && en->link.host.stores && (!best || en->picked < best->picked))
            best = en;
    pick(best, ret);
    pthread_mutex_unlock(&d->lock);
    return best != NULL;
}

bool dispatch_pick_checker(struct dispatch *d, bool cuda, const struct dispatch_picked *picked, size_t n,
                           struct dispatch_picked *ret) {
    struct known *best = NULL;
    pthread_mutex_lock(&d->lock);
    for (struct known *en = d->all; en; en = en->next)
        if (is_checker(en, cuda) && !on_one_of(en, picked, n) && (!best || en->picked < best->picked))
            best = en;
    pick(best, ret);
    pthread_mutex_unlock(&d->lock);
    return best != NULL;
}

/* ---- caches of data ---- */

static bool serves(const struct known *en) { return en && en->ticket && en->welcomed && *en->link.host.cache.url; }

static bool is_listed(const struct dispatch_peers *peers, const struct known *en) {
    for (int i = 0; i < peers->n; i++)
        if (strcmp(peers->items[i].url, en->link.host.cache.url) == 0)
            return true;
    return strcmp(peers->own, en->link.host.cache.url) == 0;
}

/* A plain cache is on a loopback address. On another host a program of somebody else may listen there, and would get
 * the token. */
static bool is_reached(const struct known *server, const char *hostname) {
    return strncmp(server->link.host.cache.url, "https:", 6) == 0 ||
           (*hostname && strcmp(server->link.host.hostname, hostname) == 0);
}

static void find_gang(struct dispatch *d, const char *executor, const char *hostname, char *const *executors, int n,
                      struct dispatch_peers *ret) {
    for (int i = 0, readers = 0; i < n && readers < DISPATCH_PEERS_MAX; i++) {
        const struct known *en = find(d, executors[i]);
        if (!serves(en) || is_listed(ret, en))
            continue;
        readers++;
        if (strcmp(executors[i], executor) == 0)
            memcpy(ret->own, en->link.host.cache.url, sizeof ret->own);
        else if (is_reached(en, hostname))
            ret->items[ret->n++] = en->link.host.cache;
    }
    ret->n_gang = ret->n;
}

static const struct known *find_last_copier(const struct dispatch *d, const char *executor, const char *hostname,
                                            const struct dispatch_peers *listed) {
    const struct known *last = NULL;
    for (const struct known *en = d->all; en; en = en->next)
        if (serves(en) && en->copies > (last ? last->copies : 0) && strcmp(en->executor, executor) != 0 &&
            is_reached(en, hostname) && !is_listed(listed, en))
            last = en;
    return last;
}

void dispatch_find_peers(struct dispatch *d, const char *executor, char *const *executors, int n,
                         struct dispatch_peers *ret) {
    const struct known *other;
    *ret = (struct dispatch_peers){ 0 };
    pthread_mutex_lock(&d->lock);
    struct known *own = find(d, executor);
    const char *hostname = own ? own->link.host.hostname : "";
    find_gang(d, executor, hostname, executors, n, ret);
    while (ret->n < DISPATCH_PEERS_MAX && (other = find_last_copier(d, executor, hostname, ret)))
        ret->items[ret->n++] = other->link.host.cache;
    if (own)
        own->copies = ++d->copies;
    pthread_mutex_unlock(&d->lock);
}

bool dispatch_pick(struct dispatch *d, unsigned abilities, char *ret, size_t cap) {
    pthread_mutex_lock(&d->lock);
    struct known *best = NULL;
    for (struct known *en = d->all; en; en = en->next)
        if (en->ticket && en->welcomed && (abilities & ~en->link.host.abilities) == 0 &&
            (!best || en->picked < best->picked))
            best = en;
    if (best) {
        best->picked++;
        snprintf(ret, cap, "%s", best->executor);
    }
    pthread_mutex_unlock(&d->lock);
    return best != NULL;
}
