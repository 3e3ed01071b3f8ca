#include "service/controller/dispatch.h"

#include "base/clock.h"

#include <assert.h>
#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct known {
    char executor[SCHEDULER_EXECUTOR_ID_BYTES]; /* first: the tree's key */
    int64_t incarnation, heard_ms;
    uint64_t ticket;
    int picked;
    bool news;
    bool welcomed; /* the link */
    struct dispatch_link link;
    struct known *next;
};

struct dispatch {
    pthread_mutex_t lock;
    void *by_name;
    struct known *all;
    uint64_t next_ticket;
    int64_t epoch;
    int attached;
};

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

struct dispatch *dispatch_new(void) {
    struct dispatch *d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    pthread_mutex_init(&d->lock, NULL);
    d->next_ticket = 1;
    return d;
}

struct dispatch *dispatch_free(struct dispatch *d) {
    if (!d)
        return NULL;
    assert(d->attached == 0);
    tdestroy(d->by_name, free);
    pthread_mutex_destroy(&d->lock);
    free(d);
    return NULL;
}

static struct known *find(struct dispatch *d, const char *executor) {
    void *const *node = tfind(executor, &d->by_name, by_name);
    return node ? *node : NULL;
}

static struct known *find_ticket(struct dispatch *d, uint64_t ticket) {
    for (struct known *en = d->all; en; en = en->next)
        if (en->ticket == ticket)
            return en;
    return NULL;
}

static struct known *add(struct dispatch *d, const char *executor) {
    struct known *en = calloc(1, sizeof *en);
    if (!en)
        return NULL;
    snprintf(en->executor, sizeof en->executor, "%s", executor);
    if (!tsearch(en, &d->by_name, by_name)) {
        free(en);
        return NULL;
    }
    en->next = d->all;
    d->all = en;
    return en;
}

uint64_t dispatch_attach(struct dispatch *d, const char *executor, int64_t incarnation,
                         const struct dispatch_link *link) {
    uint64_t ticket = 0;
    pthread_mutex_lock(&d->lock);
    struct known *en = find(d, executor);
    if (!en)
        en = add(d, executor);
    if (en && (!en->ticket || incarnation >= en->incarnation)) {
        if (en->ticket)
            en->link.close(en->link.ctx, ST_ABORTED, "another stream of this executor has attached");
        else
            d->attached++;
        en->incarnation = incarnation;
        en->link = *link;
        en->welcomed = false;
        en->heard_ms = clock_mono_ms();
        en->news = true;
        ticket = en->ticket = d->next_ticket++;
    }
    pthread_mutex_unlock(&d->lock);
    return ticket;
}

void dispatch_detach(struct dispatch *d, uint64_t ticket) {
    pthread_mutex_lock(&d->lock);
    for (struct known **at = &d->all; ticket && *at; at = &(*at)->next) {
        struct known *en = *at;
        if (en->ticket != ticket)
            continue;
        *at = en->next;
        tdelete(en, &d->by_name, by_name);
        free(en);
        d->attached--;
        break;
    }
    pthread_mutex_unlock(&d->lock);
}

void dispatch_hear(struct dispatch *d, uint64_t ticket) {
    pthread_mutex_lock(&d->lock);
    struct known *en = find_ticket(d, ticket);
    if (en) {
        en->heard_ms = clock_mono_ms();
        en->news = true;
    }
    pthread_mutex_unlock(&d->lock);
}

static bool send_on(const struct dispatch *d, const struct known *en, Trainyard__V1__ControllerMessage *m) {
    m->epoch = d->epoch;
    if (en->link.send(en->link.ctx, m))
        return true;
    en->link.close(en->link.ctx, ST_RESOURCE_EXHAUSTED, "the executor does not read its orders");
    return false;
}

void dispatch_welcome(struct dispatch *d, const char *executor, Trainyard__V1__ControllerMessage *m) {
    pthread_mutex_lock(&d->lock);
    struct known *en = find(d, executor);
    if (en && en->ticket && !en->welcomed)
        en->welcomed = send_on(d, en, m);
    pthread_mutex_unlock(&d->lock);
}

bool dispatch_send(struct dispatch *d, const char *executor, Trainyard__V1__ControllerMessage *m) {
    pthread_mutex_lock(&d->lock);
    const struct known *en = find(d, executor);
    bool sent = en && en->ticket && en->welcomed && send_on(d, en, m);
    pthread_mutex_unlock(&d->lock);
    return sent;
}

void dispatch_set_epoch(struct dispatch *d, int64_t epoch) {
    pthread_mutex_lock(&d->lock);
    d->epoch = epoch;
    pthread_mutex_unlock(&d->lock);
}

void dispatch_close(struct dispatch *d, const char *executor, status_t st, const char *why) {
    pthread_mutex_lock(&d->lock);
    struct known *en = find(d, executor);
    if (en && en->ticket)
        en->link.close(en->link.ctx, st, why);
    pthread_mutex_unlock(&d->lock);
}

void dispatch_refuse(struct dispatch *d, const char *executor, int64_t incarnation, status_t st, const char *why) {
    pthread_mutex_lock(&d->lock);
    const struct known *en = find(d, executor);
    if (en && en->ticket && en->incarnation == incarnation)
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

void dispatch_take_heard(struct dispatch *d, void (*fn)(void *, const char *, int64_t), void *ctx) {
    pthread_mutex_lock(&d->lock);
    for (struct known *en = d->all; en; en = en->next)
        if (en->news) {
            en->news = false;
            fn(ctx, en->executor, en->heard_ms);
        }
    pthread_mutex_unlock(&d->lock);
}

size_t dispatch_list(struct dispatch *d, struct dispatch_heard *ret, size_t cap) {
    size_t n = 0;
    pthread_mutex_lock(&d->lock);
    for (const struct known *en = d->all; en && n < cap; en = en->next, n++) {
        memcpy(ret[n].executor, en->executor, sizeof ret[n].executor);
        ret[n].heard_ms = en->heard_ms;
    }
    pthread_mutex_unlock(&d->lock);
    return n;
}

bool dispatch_pick(struct dispatch *d, char *ret, size_t cap) {
    pthread_mutex_lock(&d->lock);
    struct known *best = NULL;
    for (struct known *en = d->all; en; en = en->next)
        if (en->ticket && en->welcomed && (!best || en->picked < best->picked))
            best = en;
    if (best) {
        best->picked++;
        snprintf(ret, cap, "%s", best->executor);
    }
    pthread_mutex_unlock(&d->lock);
    return best != NULL;
}
