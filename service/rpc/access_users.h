/* Users of this machine who may call over a unix socket without a token. The kernel says who calls. */
#ifndef SERVICE_RPC_ACCESS_USERS_H
#define SERVICE_RPC_ACCESS_USERS_H

#include "api/rpc/access.h"
#include "base/status.h"

#include <stddef.h>
#include <sys/types.h>

#define ACCESS_USERS_MAX  64
#define ACCESS_EVERY_ROLE 0 /* may call everything */

struct access_user {
    uid_t uid;
    int role;                    /* as in access.proto, or ACCESS_EVERY_ROLE */
    char name[RPC_CALLER_BYTES]; /* of the system, or "uid:1000" for a user without a name */
};

struct access_users {
    struct access_user users[ACCESS_USERS_MAX];
    size_t n;
};

/* The user of this process and root, with every role. */
void access_users_init(struct access_users *ret);
/* "ann=USER" or "1000=EXECUTOR". INVALID_ARGUMENT: there is no such user or role, or the user has a role already.
 * RESOURCE_EXHAUSTED: there are ACCESS_USERS_MAX. */
MUST_CHECK status_t access_users_add(struct access_users *, const char *text, struct err *e);
/* NULL: the user has no role. */
const struct access_user *access_users_find(const struct access_users *, uid_t uid);

#endif
