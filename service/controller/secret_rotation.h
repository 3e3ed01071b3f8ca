/* Rotation of the key for secrets: a background task of the leader encrypts every secret with the first key that
 * another key encrypts. It also reports secrets whose key this controller does not have. Thread-safe. */
#ifndef SERVICE_CONTROLLER_SECRET_ROTATION_H
#define SERVICE_CONTROLLER_SECRET_ROTATION_H

#include "base/cleanup.h"
#include "base/status.h"
#include "service/controller/keyring.h"
#include "service/store/store.h"

#include <stdint.h>

/* A standby that is older may have become the leader and written with its own first key meanwhile. */
#define SECRET_ROTATION_PERIOD_MS 60000

struct secret_rotation;
/* keys: must outlive the result. */
MUST_CHECK status_t secret_rotation_open(struct store *store, const struct keyring *keys, struct secret_rotation **ret,
                                         struct err *e);
struct secret_rotation *secret_rotation_close(struct secret_rotation *r);
CLEANUP_DEFINE(struct secret_rotation *, secret_rotation_close)

void secret_rotation_lead(struct secret_rotation *r, int64_t epoch); /* 0: this controller no longer leads */

#endif
