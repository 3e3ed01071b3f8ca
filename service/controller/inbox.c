#include "service/controller/inbox.h"

#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ask {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    int refs;
    bool done;
    status_t status;
    const char *reason;
    struct err err;
    char request_id[ASK_REQUEST_BYTES];
    struct scheduler_explanation *explanation;
};

struct ask *ask_new(const char *request_id) {
    struct ask *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->answered, NULL);
    a->refs = 2;
    snprintf(a->request_id, sizeof a->request_id, "%s", request_id);
    return a;
}

const char *ask_request_id(const struct ask *a) { return a->request_id; }

struct ask *ask_unref(struct ask *a) {
    if (!a)
        return NULL;
    pthread_mutex_lock(&a->lock);
    bool last = --a->refs == 0;
    pthread_mutex_unlock(&a->lock);
    if (last) {
        pthread_cond_destroy(&a->answered);
        pthread_mutex_destroy(&a->lock);
        free(a->explanation);
        free(a);
    }
    return NULL;
}

void ask_answer(struct ask *a, status_t st, const char *reason, const char *text) {
    pthread_mutex_lock(&a->lock);
    a->done = true;
    a->status = err_set(&a->err, st, "%s", text);
    a->reason = reason;
    pthread_cond_signal(&a->answered);
    pthread_mutex_unlock(&a->lock);
}

void ask_explained(struct ask *a, struct scheduler_explanation *explanation) {
    pthread_mutex_lock(&a->lock);
    a->explanation = explanation;
    pthread_mutex_unlock(&a->lock);
    ask_answer(a, explanation ? ST_OK : ST_RESOURCE_EXHAUSTED, NULL, explanation ? "" : "no memory for an explanation");
}

struct scheduler_explanation *ask_take_explanation(struct ask *a) {
    pthread_mutex_lock(&a->lock);
    struct scheduler_explanation *explanation = a->explanation;
    a->explanation = NULL;
    pthread_mutex_unlock(&a->lock);
    return explanation;
}

status_t ask_wait(struct ask *a, deadline_ms_t deadline, const char **ret_reason, struct err *e) {
    struct timespec until = deadline_timespec(deadline);
    pthread_mutex_lock(&a->lock);
    int rc = 0;
    while (!a->done && rc == 0)
        rc = pthread_cond_clockwait(&a->answered, &a->lock, CLOCK_MONOTONIC, &until);
    status_t st = a->status;
    if (!a->done)
        st = err_set(e, ST_DEADLINE_EXCEEDED, "the controller could not answer in time; it may still happen");
    else if (st != ST_OK)
        st = err_set(e, st, "%s", a->err.msg);
    *ret_reason = a->done ? a->reason : NULL;
    pthread_mutex_unlock(&a->lock);
    return st;
}

struct inbox {
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    struct inbox_item *first, **last;
    void *hellos; /* tsearch(3) tree of the items that are one, by executor */
    int n;
    size_t bytes; /* of messages */
    bool hurry;   /* someone must look before the next tick */
    bool stirred;
};

struct inbox *inbox_new(void) {
    struct inbox *in = calloc(1, sizeof *in);
    if (!in)
        return NULL;
    pthread_mutex_init(&in->lock, NULL);
    pthread_cond_init(&in->arrived, NULL);
    in->last = &in->first;
    return in;
}

struct inbox_item *inbox_item_free(struct inbox_item *item) {
    if (!item)
        return NULL;
    if (item->message)
        trainyard__v1__agent_message__free_unpacked(item->message, NULL);
    ask_unref(item->ask);
    free(item);
    return NULL;
}

static int by_executor(const void *a, const void *b) {
    return strcmp(((const struct inbox_item *)a)->executor, ((const struct inbox_item *)b)->executor);
}

bool inbox_item_is_hello(const struct inbox_item *item) {
    return item->kind == INBOX_AGENT && item->message &&
           item->message->message_case == TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_HELLO;
}

/* The hello that waits for this one's executor, and is not of a newer start. */
static struct inbox_item *superseded(const struct inbox *in, const struct inbox_item *item) {
    void *const *node = inbox_item_is_hello(item) ? tfind(item, &in->hellos, by_executor) : NULL;
    struct inbox_item *old = node ? *node : NULL;
    return old && old->incarnation <= item->incarnation ? old : NULL;
}

static bool room(const struct inbox *in, const struct inbox_item *old, const struct inbox_item *item) {
    return in->n - (old ? 1 : 0) < INBOX_MOST &&
           in->bytes - (old ? old->message_bytes : 0) + item->message_bytes <= INBOX_BYTES;
}

static void append(struct inbox *in, struct inbox_item *item) {
    item->next = NULL;
    item->at = in->last;
    *in->last = item;
    in->last = &item->next;
    in->n++;
    in->bytes += item->message_bytes;
    if (inbox_item_is_hello(item))
        tsearch(item, &in->hellos, by_executor); /* without memory it is not found, and another one waits beside it */
}

static void unlink_item(struct inbox *in, struct inbox_item *item) {
    *item->at = item->next;
    if (item->next)
        item->next->at = item->at;
    else
        in->last = item->at;
    in->n--;
    in->bytes -= item->message_bytes;
    void *const *node = inbox_item_is_hello(item) ? tfind(item, &in->hellos, by_executor) : NULL;
    if (node && *node == item)
        tdelete(item, &in->hellos, by_executor);
}

static void keep(void *item) { (void)item; }

struct inbox *inbox_free(struct inbox *in) {
    if (!in)
        return NULL;
    for (struct inbox_item *item = in->first, *next; item; item = next) {
        next = item->next;
        if (item->ask)
            ask_answer(item->ask, ST_UNAVAILABLE, NULL, "the controller is stopping");
        inbox_item_free(item);
    }
    tdestroy(in->hellos, keep); /* its items have gone with the list */
    pthread_cond_destroy(&in->arrived);
    pthread_mutex_destroy(&in->lock);
    free(in);
    return NULL;
}

status_t inbox_put(struct inbox *in, const struct inbox_item *item, bool force, struct err *e) {
    struct inbox_item *copy = malloc(sizeof *copy);
    if (!copy)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for an event");
    *copy = *item;
    pthread_mutex_lock(&in->lock);
    struct inbox_item *old = superseded(in, item);
    if (!force && !room(in, old, item)) {
        int n = in->n;
        pthread_mutex_unlock(&in->lock);
        free(copy);
        return err_set(e, ST_RESOURCE_EXHAUSTED, "the controller is behind by %d events", n);
    }
    bool wake = !item->unhurried && !in->hurry;
    in->hurry = in->hurry || wake;
    if (old)
        unlink_item(in, old);
    append(in, copy);
    pthread_mutex_unlock(&in->lock);
    if (wake)
        pthread_cond_signal(&in->arrived);
    inbox_item_free(old);
    return ST_OK;
}

struct inbox_item *inbox_take(struct inbox *in, deadline_ms_t deadline) {
    struct timespec until = deadline_timespec(deadline);
    pthread_mutex_lock(&in->lock);
    int rc = 0;
    while (!in->hurry && !in->stirred && rc == 0)
        rc = pthread_cond_clockwait(&in->arrived, &in->lock, CLOCK_MONOTONIC, &until);
    in->stirred = false;
    struct inbox_item *item = in->first;
    if (item)
        unlink_item(in, item);
    in->hurry = in->first != NULL; /* whoever looks takes the unhurried ones along */
    pthread_mutex_unlock(&in->lock);
    return item;
}

void inbox_stir(struct inbox *in) {
    pthread_mutex_lock(&in->lock);
    in->stirred = true;
    pthread_cond_signal(&in->arrived);
    pthread_mutex_unlock(&in->lock);
}

int inbox_count(struct inbox *in) {
    pthread_mutex_lock(&in->lock);
    int n = in->n;
    pthread_mutex_unlock(&in->lock);
    return n;
}
