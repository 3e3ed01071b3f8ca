/* The keeper thread writes the targets to the database when this controller begins to lead, without which no event
 * leaves a notification, and cuts queues that are too long once a minute. The thread of a target then repeats:
 *
 *   the oldest notification of the target -> one try -> its row is deleted, or its number of tries grows -> a pause
 *
 * A pause ends early when the controller stops or another epoch begins. Only the leader's epoch can delete a row: if
 * leadership is lost during a try, the next leader delivers the notification once more. */
#include "service/notify/notifier.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/notify/message.h"
#include "service/notify/receiver.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdlib.h>

/* Without a wake, new notifications are found after this time. */
enum { POLL_MS = 2000, TRIM_MS = 60000, RETRY_MS = 1000 };

struct sender {
    struct notifier *n;
    const struct notify_target *target;
    pthread_t thread;
    bool runs;
    atomic_llong delivered, failed_tries, given_up, dropped, waiting;
};

struct notifier {
    struct store *store;
    struct notify_config config;
    struct sender senders[STORE_MAX_NOTIFICATION_TARGETS];
    pthread_t keeper;
    bool keeper_runs;
    atomic_bool stop;     /* the same as closing, for a running try */
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t changed;
    bool closing;
    int64_t epoch;   /* 0: does not lead */
    int64_t written; /* the epoch under which the targets were written; 0: none */
    uint64_t wakes;
};

/* Waits for ms, or until the notifier closes or another epoch begins; with `woken`, also for a wake after that
 * number. */
static void pause_for(struct notifier *n, int64_t ms, int64_t epoch, const uint64_t *woken) {
    const struct timespec until = deadline_timespec(deadline_in(ms));
    int rc = 0;
    pthread_mutex_lock(&n->lock);
    while (!n->closing && n->epoch == epoch && rc == 0 && (!woken || *woken == n->wakes))
        rc = pthread_cond_clockwait(&n->changed, &n->lock, CLOCK_MONOTONIC, &until);
    pthread_mutex_unlock(&n->lock);
}

/* Blocks until this controller leads. keeper: or else until the targets are written too. False: the notifier closes. */
static bool await_epoch(struct notifier *n, bool keeper, int64_t *ret_epoch, uint64_t *ret_wakes) {
    pthread_mutex_lock(&n->lock);
    while (!n->closing && (n->epoch == 0 || (!keeper && n->written != n->epoch)))
        pthread_cond_wait(&n->changed, &n->lock);
    *ret_epoch = n->epoch;
    *ret_wakes = n->wakes;
    const bool goes_on = !n->closing;
    pthread_mutex_unlock(&n->lock);
    return goes_on;
}

/* ---- one notification ---- */

static enum notify_result try_once(struct sender *s, const struct store_notification *row, struct err *ret_why) {
    CLEANUP(bytes_done) struct bytes body;
    bytes_init(&body, NOTIFY_MESSAGE_BYTES);
    if (notify_message_write(row, &body, ret_why) != ST_OK)
        return NOTIFY_REFUSED;
    return s->target->spec->receiver_case == TRAINYARD__V1__NOTIFY_TARGET__RECEIVER_WEBHOOK
               ? webhook_deliver(s->target, row, &body, &s->n->stop, ret_why)
               : command_deliver(s->target, row, &body, &s->n->stop, ret_why);
}

static void log_failure(const struct sender *s, const struct store_notification *row, const char *event,
                        const char *why) {
    log_event(LOG_WARN, event, "target", LOG_STR(s->target->row.name), "delivery", LOG_STR(row->delivery), "about",
              LOG_STR(notify_event_name(row)), "job", LOG_INT(row->job), "tries", LOG_INT(row->tries + 1), "reason",
              LOG_STR(why), NULL);
}

/* A write that fails is not repeated here: the row stays, and the notification is delivered again. */
static void forget(struct sender *s, int64_t epoch, const struct store_notification *row) {
    struct err e;
    if (store_notification_done(s->n->store, epoch, row->id, &e) == ST_OK)
        return;
    log_failure(s, row, "notification_not_deleted", e.msg);
    pause_for(s->n, RETRY_MS, epoch, NULL);
}

int64_t notifier_pause_ms(int tries) {
    int64_t ms = NOTIFY_BACKOFF_MIN_MS;
    for (int i = 1; i < tries && ms < NOTIFY_BACKOFF_MAX_MS; i++)
        ms *= 2;
    return ms < NOTIFY_BACKOFF_MAX_MS ? ms : NOTIFY_BACKOFF_MAX_MS;
}

static void deliver(struct sender *s, int64_t epoch, const struct store_notification *row) {
    struct err why = { "" };
    const enum notify_result result = try_once(s, row, &why);
    if (result == NOTIFY_DELIVERED) {
        atomic_fetch_add(&s->delivered, 1);
        forget(s, epoch, row);
        return;
    }
    if (atomic_load(&s->n->stop))
        return;
    atomic_fetch_add(&s->failed_tries, 1);
    if (result == NOTIFY_REFUSED || row->tries + 1 >= NOTIFY_MAX_TRIES) {
        log_failure(s, row, "notification_given_up", why.msg);
        atomic_fetch_add(&s->given_up, 1);
        forget(s, epoch, row);
    } else {
        log_failure(s, row, "notification_failed", why.msg);
        status_ignore(store_notification_failed(s->n->store, epoch, row->id, NULL));
        pause_for(s->n, notifier_pause_ms(row->tries + 1), epoch, NULL);
    }
}

static void *run_sender(void *arg) {
    struct sender *s = arg;
    struct notifier *n = s->n;
    int64_t epoch;
    uint64_t wakes;
    while (await_epoch(n, false, &epoch, &wakes)) {
        CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
        struct store_notification row;
        bool found;
        if (store_notification_next(n->store, m, s->target->row.name, &row, &found, NULL) != ST_OK)
            pause_for(n, RETRY_MS, epoch, NULL);
        else if (found)
            deliver(s, epoch, &row);
        else
            pause_for(n, POLL_MS, epoch, &wakes);
    }
    return NULL;
}

/* ---- targets and lengths ---- */

static bool write_targets(struct notifier *n, int64_t epoch) {
    struct store_notification_target rows[STORE_MAX_NOTIFICATION_TARGETS];
    struct err e;
    for (size_t i = 0; i < n->config.n; i++)
        rows[i] = n->config.targets[i].row;
    if (store_notification_targets(n->store, epoch, rows, n->config.n, &e) != ST_OK) {
        log_event(LOG_WARN, "notification_targets_not_written", "reason", LOG_STR(e.msg), NULL);
        return false;
    }
    pthread_mutex_lock(&n->lock);
    n->written = epoch;
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
    return true;
}

static void trim(struct notifier *n, int64_t epoch) {
    for (size_t i = 0; i < n->config.n; i++) {
        struct sender *s = &n->senders[i];
        int64_t dropped = 0, waiting = 0;
        if (store_notification_trim(n->store, epoch, s->target->row.name, NOTIFY_MAX_WAITING, &dropped, NULL) ==
                ST_OK &&
            dropped > 0)
            log_event(LOG_WARN, "notifications_dropped", "target", LOG_STR(s->target->row.name), "notifications",
                      LOG_INT(dropped), NULL);
        atomic_fetch_add(&s->dropped, dropped);
        if (store_notification_waiting(n->store, s->target->row.name, &waiting, NULL) == ST_OK)
            atomic_store(&s->waiting, waiting);
    }
}

static void *run_keeper(void *arg) {
    struct notifier *n = arg;
    int64_t epoch, written = 0;
    uint64_t wakes;
    while (await_epoch(n, true, &epoch, &wakes)) {
        if (written != epoch && !write_targets(n, epoch)) {
            pause_for(n, RETRY_MS, epoch, NULL);
            continue;
        }
        written = epoch;
        trim(n, epoch);
        pause_for(n, n->config.n > 0 ? TRIM_MS : TRIM_MS * INT64_C(1000), epoch, NULL);
    }
    return NULL;
}

/* ---- the interface ---- */

status_t notifier_open(struct store *store, const char *config, struct notifier **ret, struct err *e) {
    CLEANUP(notifier_closep) struct notifier *n = alloc_zeroed(1, sizeof *n);
    n->store = store;
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->changed, NULL);
    TRY(notify_config_read(config, &n->config, e));
    if (n->config.n > 0)
        store_notifications_enable(store);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    for (size_t i = 0; i < n->config.n; i++) {
        struct sender *s = &n->senders[i];
        s->n = n;
        s->target = &n->config.targets[i];
        s->runs = pthread_create(&s->thread, NULL, run_sender, s) == 0;
        if (!s->runs)
            return err_set(e, ST_RESOURCE_EXHAUSTED, "no thread for the notifications of '%s'", s->target->row.name);
    }
    n->keeper_runs = pthread_create(&n->keeper, NULL, run_keeper, n) == 0;
    if (!n->keeper_runs)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no thread for notifications");
    *ret = take_ptr(&n);
    return ST_OK;
}

struct notifier *notifier_close(struct notifier *n) {
    if (!n)
        return NULL;
    atomic_store(&n->stop, true);
    pthread_mutex_lock(&n->lock);
    n->closing = true;
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
    for (size_t i = 0; i < n->config.n; i++)
        if (n->senders[i].runs)
            pthread_join(n->senders[i].thread, NULL);
    if (n->keeper_runs)
        pthread_join(n->keeper, NULL);
    notify_config_done(&n->config);
    pthread_cond_destroy(&n->changed);
    pthread_mutex_destroy(&n->lock);
    free(n);
    return NULL;
}

const char *notifier_key_file(const struct notifier *n, size_t i) {
    for (size_t t = 0; t < n->config.n; t++) {
        const Trainyard__V1__NotifyTarget *spec = n->config.targets[t].spec;
        if (spec->receiver_case == TRAINYARD__V1__NOTIFY_TARGET__RECEIVER_WEBHOOK && i-- == 0)
            return spec->webhook->secret_file;
    }
    return NULL;
}

void notifier_lead(struct notifier *n, int64_t epoch) {
    pthread_mutex_lock(&n->lock);
    n->epoch = epoch;
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

void notifier_wake(struct notifier *n) {
    if (n->config.n == 0)
        return;
    pthread_mutex_lock(&n->lock);
    n->wakes++;
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

void notifier_each(struct notifier *n, void (*fn)(void *ctx, const struct notifier_counts *), void *ctx) {
    pthread_mutex_lock(&n->lock);
    const bool leads = n->epoch != 0;
    pthread_mutex_unlock(&n->lock);
    for (size_t i = 0; i < n->config.n; i++) {
        const struct sender *s = &n->senders[i];
        fn(ctx, &(struct notifier_counts){ .target = s->target->row.name,
                                           .delivered = atomic_load(&s->delivered),
                                           .failed_tries = atomic_load(&s->failed_tries),
                                           .given_up = atomic_load(&s->given_up),
                                           .dropped = atomic_load(&s->dropped),
                                           .waiting = leads ? atomic_load(&s->waiting) : 0 });
    }
}
