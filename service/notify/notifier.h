/* Delivers notifications: one thread for each target, while this controller leads.
 *
 * A notification is delivered at least once, in the order of its target's queue: its row (store/notification.h) is
 * deleted after a receiver has taken it, so that after a kill of the controller the next leader delivers it again, with
 * the same delivery id. A try that fails is repeated after NOTIFY_BACKOFF_MIN_MS, and then after twice the time of the
 * last pause, up to NOTIFY_BACKOFF_MAX_MS. After NOTIFY_MAX_TRIES the notification is given up. A target keeps at most
 * NOTIFY_MAX_WAITING; the oldest are dropped. A slow or unreachable receiver delays only its own target.
 *
 * Thread-safe. */
#ifndef SERVICE_NOTIFY_NOTIFIER_H
#define SERVICE_NOTIFY_NOTIFIER_H

#include "base/cleanup.h"
#include "base/status.h"
#include "service/store/store.h"

#include <stddef.h>
#include <stdint.h>

#define NOTIFY_BACKOFF_MIN_MS 1000
#define NOTIFY_BACKOFF_MAX_MS 300000
/* About an hour. */
#define NOTIFY_MAX_TRIES   20
#define NOTIFY_MAX_WAITING 10000

struct notifier;
/* config: the path of the file; NULL: no targets. The sentence of an error names the file and the field. */
MUST_CHECK status_t notifier_open(struct store *store, const char *config, struct notifier **ret, struct err *e);
/* Ends running tries. */
struct notifier *notifier_close(struct notifier *n);
CLEANUP_DEFINE(struct notifier *, notifier_close)

/* The pause after a number of failed tries of a notification, from 1. */
int64_t notifier_pause_ms(int tries);

/* The file of a key, which is no data for anyone; by number, from 0; NULL: there are no more. */
const char *notifier_key_file(const struct notifier *n, size_t i);

void notifier_lead(struct notifier *n, int64_t epoch); /* 0: this controller no longer leads */
/* There may be new notifications. Cheap. Without it, they are found within seconds. */
void notifier_wake(struct notifier *n);

/* For /metrics, of each target; counts grow from 0 at the start. */
struct notifier_counts {
    const char *target;
    int64_t delivered;
    int64_t failed_tries;
    int64_t given_up; /* refused by the receiver, or after NOTIFY_MAX_TRIES */
    int64_t dropped;  /* because too many waited */
    int64_t waiting;  /* as of the last check of the queue; 0 on a standby */
};
void notifier_each(struct notifier *n, void (*fn)(void *ctx, const struct notifier_counts *), void *ctx);

#endif
