/* What a try to deliver a notification may lead to. Private to this folder. */
#ifndef SERVICE_NOTIFY_RECEIVER_H
#define SERVICE_NOTIFY_RECEIVER_H

#include "base/bytes.h"
#include "service/notify/config.h"

#include <stdatomic.h>

enum notify_result {
    NOTIFY_DELIVERED,
    NOTIFY_FAILED,  /* another try may succeed */
    NOTIFY_REFUSED, /* no other try of this notification would succeed */
};

/* One try. Returns soon after *stop has become true, with NOTIFY_FAILED. ret_why: one sentence, unless it was
 * delivered. */
enum notify_result webhook_deliver(const struct notify_target *t, const struct store_notification *n,
                                   const struct bytes *body, const atomic_bool *stop, struct err *ret_why);
enum notify_result command_deliver(const struct notify_target *t, const struct store_notification *n,
                                   const struct bytes *body, const atomic_bool *stop, struct err *ret_why);

#endif
