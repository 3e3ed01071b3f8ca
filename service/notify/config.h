/* The targets of notifications, from the file of --notify (api/trainyard/v1/notification.proto), as YAML. */
#ifndef SERVICE_NOTIFY_CONFIG_H
#define SERVICE_NOTIFY_CONFIG_H

#include "base/cleanup.h"
#include "base/status.h"
#include "service/store/notification.h"

#include <trainyard/v1/notification.pb-c.h>

enum { NOTIFY_ORIGIN_BYTES = 300 };

struct notify_target {
    struct store_notification_target row;
    const Trainyard__V1__NotifyTarget *spec;
    int timeout_ms;
    char origin[NOTIFY_ORIGIN_BYTES]; /* scheme, host and port of a webhook's URL; the rest may be a secret */
    char *key;                        /* [n_key] of a webhook */
    size_t n_key;
};

struct notify_config {
    Trainyard__V1__NotifyConfig *file;
    struct notify_target targets[STORE_MAX_NOTIFICATION_TARGETS];
    size_t n;
};

/* path NULL: no targets. INVALID_ARGUMENT, PERMISSION_DENIED, NOT_FOUND: the sentence names the file and the field. */
MUST_CHECK status_t notify_config_read(const char *path, struct notify_config *ret, struct err *e);
/* The same for the text of a file, which the sentence does not name. */
MUST_CHECK status_t notify_config_parse(const char *text, size_t n, struct notify_config *ret, struct err *e);
void notify_config_done(struct notify_config *c); /* wipes the keys */

#endif
