/* Who leads: at most one controller per database.
 *
 * Leadership is a session advisory lock, on a connection of its own, freed by the death of its holder (kill -9
 * included) without an expiry to wait for; and a row with a growing epoch. Every mutation of a leader names its epoch
 * and takes the epoch's row FOR SHARE: a deposed leader's transaction cannot commit after its successor's first. */
#ifndef SERVICE_STORE_LEADER_H
#define SERVICE_STORE_LEADER_H

#include "service/store/store.h"

#include <stdbool.h>

struct store_leader;

/* One try. OK with *ret = NULL when another one leads. holder: who leads, for a person; no other process has the same.
 * known: the last epoch that this holder was told; 0 = none. One behind it that is this holder's too was an election
 * whose answer was lost: it is taken, as if it were made now. */
MUST_CHECK status_t store_leader_try(struct store *s, const char *holder, int64_t known, struct store_leader **ret,
                                     struct err *e);
int64_t store_leader_epoch(const struct store_leader *l);
/* One round trip on the lock's connection: FAILED_PRECONDITION or UNAVAILABLE say that leadership is gone; close then,
 * and try again. Call it about once a second. */
MUST_CHECK status_t store_leader_check(struct store_leader *l, struct err *e);
/* The epoch that the row tells, whoever leads. */
MUST_CHECK status_t store_leader_current(struct store *s, int64_t *ret_epoch, struct err *e);
/* How one that could not take the lock learns that another has led since the epoch `known`. The lock may be held by a
 * session of its own that the server has not given up yet, after an election whose answer was lost, too. */
MUST_CHECK status_t store_leader_followed(struct store *s, const char *holder, int64_t known, bool *ret, struct err *e);
struct store_leader *store_leader_close(struct store_leader *l); /* gives the lock back */
CLEANUP_DEFINE(struct store_leader *, store_leader_close)

#endif
