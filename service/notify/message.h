/* A notification as JSON. */
#ifndef SERVICE_NOTIFY_MESSAGE_H
#define SERVICE_NOTIFY_MESSAGE_H

#include "base/bytes.h"
#include "base/status.h"
#include "service/store/notification.h"

/* A sentence of the store has less than 4 KiB, and JSON writes at most six bytes for one. */
enum { NOTIFY_MESSAGE_BYTES = 48 << 10 };

/* The name of the event: FAILED for a job that has become FAILED, else the kind. */
const char *notify_event_name(const struct store_notification *n);
/* Appends the message of notification.proto. */
MUST_CHECK status_t notify_message_write(const struct store_notification *n, struct bytes *ret, struct err *e);

#endif
