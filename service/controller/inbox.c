/* A doubly linked list of items, oldest first, under one lock, and the requests whose reply a caller waits for.
 *
 * inbox_put refuses an item if the list is full, unless it is forced. A hello first removes the waiting hello of the
 * same executor, which the tree `hellos` finds: while the database is unreachable, an executor connects again and
 * again, and only its newest stream counts.
 *
 * `urgent` decides when inbox_take wakes. An item of low priority does not set it, so that a flood of submitted jobs
 * that cannot start waits for the next tick. Once the loop is awake, it takes items of any priority.
 *
 * inbox_close replies to every request that still waits and refuses later items. Without it, a request that arrives
 * when the loop has just ended would wait for its deadline, and the server, which stops after its calls have ended,
 * would wait with it.
 *
 * A loop_request has two references, the caller's and the loop's, because the caller may stop waiting at its deadline
 * while the item is still in the list. */
#include "service/controller/inbox.h"

#include "base/alloc.h"

#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct loop_request {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    int refs;
    bool done;
    status_t status;
    const char *reason;
    struct err err;
    char request_id[LOOP_REQUEST_ID_BYTES], why[LOOP_REQUEST_WHY_BYTES];
    struct scheduler_explanation *explanation;
};

struct loop_request *loop_request_new(const char *request_id, const char *why) {
    struct loop_request *a = alloc_zeroed(1, sizeof *a);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->answered, NULL);
    a->refs = 2;
    snprintf(a->request_id, sizeof a->request_id, "%s", request_id);
    snprintf(a->why, sizeof a->why, "%s", why);
    return a;
}

const char *loop_request_why(const struct loop_request *a) { return a->why; }

const char *loop_request_id(const struct loop_request *a) { return a->request_id; }

struct loop_request *loop_request_unref(struct loop_request *a) {
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

void loop_request_reply(struct loop_request *a, status_t st, const char *reason, const char *text) {
    pthread_mutex_lock(&a->lock);
    if (!a->done) {
        a->done = true;
        a->status = err_set(&a->err, st, "%s", text);
        a->reason = reason;
        pthread_cond_signal(&a->answered);
    }
    pthread_mutex_unlock(&a->lock);
}

void loop_request_reply_explanation(struct loop_request *a, struct scheduler_explanation *explanation) {
    pthread_mutex_lock(&a->lock);
    a->explanation = explanation;
    pthread_mutex_unlock(&a->lock);
    loop_request_reply(a, ST_OK, NULL, "");
}

struct scheduler_explanation *loop_request_take_explanation(struct loop_request *a) {
    pthread_mutex_lock(&a->lock);
    struct scheduler_explanation *explanation = a->explanation;
    a->explanation = NULL;
    pthread_mutex_unlock(&a->lock);
    return explanation;
}

status_t loop_request_wait(struct loop_request *a, deadline_ms_t deadline, const char **ret_reason, struct err *e) {
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
    void *hellos; /* tsearch(3) tree of the hellos in the list, by executor */
    int n;
    size_t bytes; /* packed size of the messages */
    bool urgent;  /* inbox_take returns at once: an item must not wait for the next tick */
    bool woken;
    const char *closed; /* why, or NULL while the inbox is open */
};

struct inbox *inbox_new(void) {
    struct inbox *in = alloc_zeroed(1, sizeof *in);
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
    loop_request_unref(item->request);
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

/* Returns the waiting hello that the item replaces: of the same executor, and not of a newer incarnation. */
static struct inbox_item *superseded(const struct inbox *in, const struct inbox_item *item) {
    void *const *node = inbox_item_is_hello(item) ? tfind(item, &in->hellos, by_executor) : NULL;
    struct inbox_item *old = node ? *node : NULL;
    return old && old->incarnation <= item->incarnation ? old : NULL;
}

static bool has_space(const struct inbox *in, const struct inbox_item *old, const struct inbox_item *item) {
    return in->n - (old ? 1 : 0) < INBOX_MAX_ITEMS &&
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
        alloc_tree_node(item, &in->hellos, by_executor);
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

void inbox_close(struct inbox *in, const char *why) {
    pthread_mutex_lock(&in->lock);
    in->closed = why;
    for (struct inbox_item *item; (item = in->first);) {
        unlink_item(in, item);
        if (item->request)
            loop_request_reply(item->request, ST_UNAVAILABLE, NULL, why);
        inbox_item_free(item);
    }
    pthread_mutex_unlock(&in->lock);
}

struct inbox *inbox_free(struct inbox *in) {
    if (!in)
        return NULL;
    inbox_close(in, "the controller is stopping");
    pthread_cond_destroy(&in->arrived);
    pthread_mutex_destroy(&in->lock);
    free(in);
    return NULL;
}

status_t inbox_put(struct inbox *in, const struct inbox_item *item, bool force, struct err *e) {
    struct inbox_item *copy = alloc_zeroed(1, sizeof *copy);
    *copy = *item;
    pthread_mutex_lock(&in->lock);
    if (in->closed) {
        pthread_mutex_unlock(&in->lock);
        free(copy);
        return err_set(e, ST_UNAVAILABLE, "%s", in->closed);
    }
    struct inbox_item *old = superseded(in, item);
    if (!force && !has_space(in, old, item)) {
        int n = in->n;
        pthread_mutex_unlock(&in->lock);
        free(copy);
        return err_set(e, ST_RESOURCE_EXHAUSTED, "the controller is behind by %d events", n);
    }
    bool wake = !item->low_priority && !in->urgent;
    in->urgent = in->urgent || wake;
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
    while (!in->urgent && !in->woken && rc == 0)
        rc = pthread_cond_clockwait(&in->arrived, &in->lock, CLOCK_MONOTONIC, &until);
    in->woken = false;
    struct inbox_item *item = in->first;
    if (item)
        unlink_item(in, item);
    in->urgent = in->first != NULL; /* the loop, once awake, also takes items of low priority */
    pthread_mutex_unlock(&in->lock);
    return item;
}

void inbox_wake(struct inbox *in) {
    pthread_mutex_lock(&in->lock);
    in->woken = true;
    pthread_cond_signal(&in->arrived);
    pthread_mutex_unlock(&in->lock);
}

int inbox_count(struct inbox *in) {
    pthread_mutex_lock(&in->lock);
    int n = in->n;
    pthread_mutex_unlock(&in->lock);
    return n;
}
