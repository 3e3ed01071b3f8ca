/* The threads take work from one list: first a piece of an object that is being copied, else the next object. To
 * begin an object, a thread locks its part; if another process has the lock, the object goes to the end of the
 * list. Whoever completes the next piece in the order of the object adds it to the digest, and the pieces behind it
 * that are there; whoever adds the last one puts the copy in its place. An object that has changed, or whose bytes
 * are wrong, is begun again when none of its pieces is on its way, a few times.
 *
 * An object that another host has is read there; if that fails, it is begun again with the pieces of the store
 * alone. One that another host is about to copy waits. A thread that has nothing else to do asks those hosts again
 * (peer.h), and puts what they have, or what nobody waits for any longer, into the list. */
#include "executor/data/copy.h"

#include "base/alloc.h"
#include "executor/data/parallel.h"
#include "executor/data/space.h"
#include "executor/data/transfer.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

enum { OBJECT_TRIES = 3, BUSY_PAUSE_MS = 50 };

struct active {
    struct transfer transfer;
    int next;    /* the piece from which on to look for one to copy */
    int running; /* threads that work for it */
    bool hashing, wrong, ending;
    bool refused; /* by the peer */
    struct active *following;
};

struct copying {
    struct data_cache *cache;
    struct peers *peers;
    struct copy_progress *progress;
    atomic_bool *end;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct data_object **list; /* a ring of objects to begin; as long as all objects */
    int *tries;                /* of the object in the same place of `all` */
    struct data_object *const *all;
    int n, first, listed;
    struct data_object **waiting; /* for a peer */
    int n_waiting;
    bool asking;         /* a thread asks the peers */
    int beginning, busy; /* threads that begin an object; objects in a row that others copy */
    struct active *active;
    status_t st; /* the first failure */
    struct err why;
};

#define NAME(o) (int)strcspn((o)->name, "?"), (o)->name

static void list_add(struct copying *c, struct data_object *o) { c->list[(c->first + c->listed++) % c->n] = o; }

/* With the mutex, or before the threads. */
static void object_add(struct copying *c, struct data_object *o) {
    if (peers_choose(c->peers, o) == PEER_WAIT)
        c->waiting[c->n_waiting++] = o;
    else
        list_add(c, o);
}

static struct data_object *list_take(struct copying *c) {
    struct data_object *o = c->list[c->first];
    c->first = (c->first + 1) % c->n;
    c->listed--;
    return o;
}

static void fail(struct copying *c, status_t st, const struct err *why) {
    if (c->st == ST_OK) {
        c->st = st;
        c->why = *why;
    }
    atomic_store(c->end, true);
    pthread_cond_broadcast(&c->changed);
}

/* ---- an object begins ---- */

static status_t version_ask(struct data_object *o, struct http *h, struct err *e) {
    const int64_t before = o->bytes;
    char key[SHA256_HEX];
    memcpy(key, o->key, sizeof key);
    TRY(data_object_ask(o, h, e));
    data_object_set_key(o);
    if (strcmp(key, o->key) == 0 && before == o->bytes)
        return ST_OK;
    return err_set(e, ST_ABORTED, "%.*s: the object has changed while it was read", NAME(o));
}

/* *ret_there: another process has copied it. */
static status_t find_again(struct copying *c, struct data_object *o, bool *ret_there, struct err *e) {
    const char *key = o->key;
    const int64_t bytes = o->bytes;
    struct cache_entry entry;
    TRY(data_cache_find(c->cache, 1, &key, &bytes, &entry, e));
    *ret_there = entry.state == CACHE_GOOD;
    if (*ret_there) {
        memcpy(o->sha256, entry.sha256, SHA256_HEX);
        TRY(data_cache_release(c->cache, o->bytes, e));
    }
    return ST_OK;
}

/* *ret stays NULL if there is nothing to do, or not now (*ret_busy). */
static status_t begin(struct copying *c, struct data_object *o, struct http *h, struct active **ret, bool *ret_busy,
                      struct err *e) {
    struct active *a = alloc_zeroed(1, sizeof *a);
    bool there = false;
    char key[SHA256_HEX]; /* of the part; the object may get another one */
    memcpy(key, o->key, sizeof key);
    a->transfer.object = o;
    a->transfer.part.file = -1;
    status_t st = part_open(c->cache, o->key, o->bytes, &a->transfer.part, ret_busy, e);
    if (st == ST_OK && !*ret_busy)
        st = find_again(c, o, &there, e);
    const struct part *p = &a->transfer.part;
    a->transfer.peer = o->peer;
    if (st == ST_OK && !*ret_busy && !there && !o->peer && o->is_listed && o->store->scheme == DATA_S3 &&
        (p->n > 1 || *p->done))
        st = version_ask(o, h, e);
    if (there || st == ST_ABORTED)
        part_discard(c->cache, key, &a->transfer.part);
    if (st == ST_OK && !*ret_busy && !there) {
        a->transfer.check = o->check;
        *ret = a;
        return ST_OK;
    }
    part_close(&a->transfer.part);
    free(a);
    if (there)
        atomic_fetch_add(&c->progress->objects, 1);
    return st;
}

/* ---- an object ends ---- */

static void active_free(struct copying *c, struct active *a) {
    struct active **at = &c->active;
    while (*at != a)
        at = &(*at)->following;
    *at = a->following;
    digest_close(a->transfer.digest);
    part_close(&a->transfer.part);
    free(a);
}

static int *tries_of(struct copying *c, const struct data_object *o) {
    int i = 0;
    while (c->all[i] != o)
        i++;
    return &c->tries[i];
}

/* Begins the object again, as it is now. Without the mutex. */
static status_t renew(struct copying *c, struct data_object *o, struct http *h, const struct err *why, struct err *e) {
    const int64_t before = o->bytes;
    int *tries = tries_of(c, o);
    struct space space;
    if (++*tries >= OBJECT_TRIES)
        return err_set(e, ST_DATA_LOSS, "%s; tried %d times", why->msg, *tries);
    TRY(data_object_ask(o, h, e));
    data_object_set_key(o);
    peers_forget(c->peers, o);
    if (o->bytes == before)
        return ST_OK;
    TRY(space_reserve_more(c->cache, o->bytes - before, &space, e));
    return space.reserved
               ? ST_OK
               : err_set(e, ST_RESOURCE_EXHAUSTED, "%.*s: the object has grown, and the cache is full", NAME(o));
}

/* ---- work ---- */

struct task {
    struct active *active;
    int piece;
    struct data_object *object; /* to begin */
    bool ask;                   /* the peers, in place of these */
};

/* One request copies all of it. */
static bool is_whole(const struct active *a) { return a->transfer.object->whole && !a->transfer.peer; }

/* With the mutex. The thread that ends an object closes its part without the mutex. */
static int piece_find(struct active *a) {
    const struct part *p = &a->transfer.part;
    if (a->ending)
        return -1;
    while (a->next < p->n && p->done[a->next] == '1')
        a->next++;
    return a->next < p->n && !a->wrong && !a->refused ? a->next : -1;
}

/* With the mutex. False: there is nothing left to do. */
static bool task_take(struct copying *c, struct task *ret) {
    for (;;) {
        if (c->st != ST_OK)
            return false;
        for (struct active *a = c->active; a; a = a->following) {
            const int piece = piece_find(a);
            if (piece < 0)
                continue;
            *ret = (struct task){ .active = a, .piece = piece };
            a->next = is_whole(a) ? a->transfer.part.n : piece + 1;
            a->running++;
            return true;
        }
        if (c->listed > 0) {
            *ret = (struct task){ .object = list_take(c) };
            c->beginning++;
            return true;
        }
        if (c->n_waiting > 0 && !c->asking) {
            *ret = (struct task){ .ask = true };
            c->asking = true;
            return true;
        }
        if (!c->active && c->beginning == 0 && c->n_waiting == 0)
            return false;
        pthread_cond_wait(&c->changed, &c->mutex);
    }
}

/* With the mutex, which it gives up while it reads. */
static status_t hash_on(struct copying *c, struct active *a, struct err *e) {
    const struct part *p = &a->transfer.part;
    status_t st = ST_OK;
    while (st == ST_OK && !a->hashing && a->transfer.hashed < p->n && p->done[a->transfer.hashed] == '1') {
        a->hashing = true;
        pthread_mutex_unlock(&c->mutex);
        st = transfer_hash(&a->transfer, e);
        pthread_mutex_lock(&c->mutex);
        a->hashing = false;
    }
    return st;
}

static void object_count(struct copying *c, const struct active *a) {
    atomic_fetch_add(&c->progress->objects, 1);
    atomic_fetch_add(a->transfer.peer ? &c->progress->from_peers : &c->progress->from_stores,
                     a->transfer.object->bytes);
}

/* The bytes of a peer were wrong, or it failed: the object is begun again without it. With the mutex. */
static void peer_fail(struct copying *c, struct active *a, bool wrong) {
    struct data_object *o = a->transfer.object;
    if (wrong)
        part_discard(c->cache, o->key, &a->transfer.part);
    else
        part_close(&a->transfer.part);
    peers_fail(c->peers, o, wrong);
    object_add(c, o);
}

/* With the mutex, which it gives up meanwhile. Nobody else works for the object. */
static status_t end(struct copying *c, struct active *a, struct http *h, struct err *e) {
    struct data_object *o = a->transfer.object;
    struct err why = { "" };
    bool good = false;
    status_t st = ST_OK;
    a->ending = true;
    pthread_mutex_unlock(&c->mutex);
    if (!a->wrong && !a->refused)
        st = transfer_finish(&a->transfer, c->cache, &good, e);
    if (st == ST_OK && !good && !a->transfer.peer) {
        part_discard(c->cache, o->key, &a->transfer.part);
        status_ignore(a->wrong ? err_set(&why, ST_ABORTED, "%.*s: the object changes while it is read", NAME(o))
                               : err_set(&why, ST_DATA_LOSS, "%.*s: the bytes that came do not have %s", NAME(o),
                                         check_name(a->transfer.check.kind)));
        st = renew(c, o, h, &why, e);
    }
    pthread_mutex_lock(&c->mutex);
    if (st == ST_OK && !good && a->transfer.peer)
        peer_fail(c, a, !a->refused);
    else if (st == ST_OK && !good)
        object_add(c, o);
    if (good)
        object_count(c, a);
    active_free(c, a);
    pthread_cond_broadcast(&c->changed);
    return st;
}

/* What the answer to the whole object says of it, if nothing did before. */
static void check_take(struct transfer *t, const struct answer *a) {
    if (t->peer || !t->object->is_listed || t->part.n != 1 || a->status != 200 || t->object->store->scheme != DATA_S3)
        return;
    t->check = a->check;
    if (!a->encrypted && strlen(a->etag) == 34) {
        char md5[33];
        snprintf(md5, sizeof md5, "%.32s", a->etag + 1);
        check_add(&t->check, CHECK_MD5, md5, true);
    }
}

static status_t pieces_set_done(struct active *a, int piece, struct err *e) {
    struct transfer *t = &a->transfer;
    const int n = is_whole(a) ? t->part.n : piece + 1;
    for (int i = is_whole(a) ? 0 : piece; i < n; i++)
        TRY(part_set_done(&t->part, i, !t->peer, e));
    return ST_OK;
}

static bool is_over(const struct active *a) {
    return a->running == 0 && (a->wrong || a->refused || a->transfer.hashed == a->transfer.part.n);
}

static status_t piece_do(struct copying *c, const struct task *task, struct http *h, struct answer *answer,
                         struct err *e) {
    struct active *a = task->active;
    status_t st = transfer_piece(&a->transfer, task->piece, h, &c->progress->received, answer, e);
    pthread_mutex_lock(&c->mutex);
    const bool peer_failed = a->transfer.peer && st == ST_UNAVAILABLE;
    a->wrong |= st == ST_ABORTED;
    a->refused |= peer_failed;
    if (st == ST_OK)
        st = pieces_set_done(a, task->piece, e);
    if (st == ST_OK) {
        check_take(&a->transfer, answer);
        st = hash_on(c, a, e);
    }
    a->running--;
    if (st == ST_ABORTED || peer_failed)
        st = ST_OK;
    if (st == ST_OK && is_over(a))
        st = end(c, a, h, e);
    pthread_mutex_unlock(&c->mutex);
    return st;
}

static status_t object_do(struct copying *c, struct data_object *o, struct http *h, struct err *e) {
    struct active *a = NULL;
    bool busy = false;
    status_t st = begin(c, o, h, &a, &busy, e);
    const struct err why = e ? *e : (struct err){ "" };
    const bool again = st == ST_ABORTED;
    if (again)
        st = renew(c, o, h, &why, e);
    pthread_mutex_lock(&c->mutex);
    c->beginning--;
    c->busy = busy ? c->busy + 1 : 0;
    if (st == ST_OK && again)
        object_add(c, o);
    else if (st == ST_OK && busy)
        list_add(c, o);
    const bool all_busy = c->busy > c->listed;
    if (a) {
        a->following = c->active;
        c->active = a;
        a->running++; /* for the pieces that are there already */
        st = hash_on(c, a, e);
        a->running--;
        if (st == ST_OK && is_over(a))
            st = end(c, a, h, e);
    }
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
    if (busy && all_busy)
        poll(NULL, 0, BUSY_PAUSE_MS);
    return st;
}

/* What still waits stays in its order. */
static status_t peers_do(struct copying *c, struct http *h, struct err *e) {
    poll(NULL, 0, PEER_ASK_MS);
    pthread_mutex_lock(&c->mutex);
    const int n = c->n_waiting;
    CLEANUP(freep) struct data_object **objects = alloc_zeroed((size_t)n, sizeof(struct data_object *));
    for (int i = 0; i < n; i++)
        objects[i] = c->waiting[i];
    pthread_mutex_unlock(&c->mutex);
    peers_ask(c->peers, objects, n, h);
    pthread_mutex_lock(&c->mutex);
    const int since = c->n_waiting; /* others may have been added */
    c->n_waiting = 0;
    for (int i = 0; i < since; i++)
        object_add(c, c->waiting[i]);
    c->asking = false;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
    return atomic_load(c->end) ? err_set(e, ST_CANCELLED, "the order has ended") : ST_OK;
}

static status_t task_do(struct copying *c, const struct task *task, struct http *h, struct answer *answer,
                        struct err *e) {
    if (task->ask)
        return peers_do(c, h, e);
    return task->active ? piece_do(c, task, h, answer, e) : object_do(c, task->object, h, e);
}

static void *run(void *ctx) {
    struct copying *c = ctx;
    struct err why = { "" };
    struct answer answer;
    struct task task;
    CLEANUP(http_closep) struct http *h = NULL;
    status_t st = http_open(&h, &why);
    answer_init(&answer);
    for (bool more = true; st == ST_OK && more;) {
        pthread_mutex_lock(&c->mutex);
        more = task_take(c, &task);
        pthread_mutex_unlock(&c->mutex);
        if (more)
            st = task_do(c, &task, h, &answer, &why);
    }
    pthread_mutex_lock(&c->mutex);
    if (st != ST_OK)
        fail(c, st, &why);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
    answer_done(&answer);
    return NULL;
}

status_t copy_objects(struct data_cache *cache, struct peers *peers, struct data_object *const *objects, int n,
                      struct copy_progress *progress, atomic_bool *end, struct err *e) {
    struct copying c = { .cache = cache,
                         .peers = peers,
                         .progress = progress,
                         .end = end,
                         .all = objects,
                         .n = n,
                         .mutex = PTHREAD_MUTEX_INITIALIZER,
                         .changed = PTHREAD_COND_INITIALIZER };
    c.list = alloc_zeroed((size_t)n, sizeof(struct data_object *));
    c.waiting = alloc_zeroed((size_t)n, sizeof(struct data_object *));
    c.tries = alloc_zeroed((size_t)n, sizeof *c.tries);
    for (int i = 0; i < n; i++)
        object_add(&c, objects[i]);
    status_t st = parallel_run(PARALLEL_THREADS, run, &c, e);
    while (c.active)
        active_free(&c, c.active);
    free(c.list);
    free(c.waiting);
    free(c.tries);
    if (st == ST_OK && c.st != ST_OK)
        st = err_set(e, c.st, "%s", c.why.msg);
    return st == ST_OK ? data_cache_sync(cache, e) : st;
}
