/* Who leads: at most one controller per database.
 *
 * Leadership has two parts: a session advisory lock on its own connection, which the server releases when the holder
 * dies (kill -9 included), so that there is no expiry to wait for; and a row with a growing epoch and a random nonce.
 * Every mutation of a leader names its epoch. The store adds the nonce and the start time of the PostgreSQL server in
 * which the epoch was won, and locks the row FOR SHARE. A transaction is refused (FAILED_PRECONDITION)
 *   - after a successor's election: a transaction of the old leader cannot commit after the first one of the new
 *     leader;
 *   - if the same number was won twice, because the database was restored from a backup: the nonce differs;
 *   - if the leader's table was created again, because a dump was restored in place;
 *   - after a restart of PostgreSQL, until an epoch is won again: the database may have been replaced, so that the
 *     leader must read its rows again. */
#ifndef SERVICE_STORE_LEADER_H
#define SERVICE_STORE_LEADER_H

#include "service/store/store.h"

#include <stdbool.h>

/* Elections that the database remembers. The nonce of an older epoch, which an agent may still know, is not checked. */
#define STORE_ELECTIONS_KEPT 1000

/* What happened to the epoch that a holder had won before. */
enum store_succession {
    STORE_SUCCESSION_NONE,     /* the holder had won none */
    STORE_SUCCESSION_OWN,      /* no other controller has led since: the holder's memory of rows is valid */
    STORE_SUCCESSION_FOLLOWED, /* another controller has led since */
    /* the database was restored, or a standby without the newest transactions took over: it lacks that election or a
     * transaction that was confirmed to this store, or its leader's table was created again */
    STORE_SUCCESSION_FORGOTTEN,
};

/* More than the jobs that are submitted between two backups. */
#define STORE_IDS_SKIPPED 1000000

struct store_leader;

/* Tries once to become the leader. OK with *ret = NULL if another controller leads. holder: a name for users, unique
 * among processes. known: the last epoch that this holder has won; 0: none. A later epoch in the row with this holder's
 * name is an election whose answer was lost: it is taken over. The new epoch is above `known` and above the row's. From
 * now on this store's mutations run under the new epoch only. FAILED_PRECONDITION: the database was migrated meanwhile,
 * and has another schema than this program. */
MUST_CHECK status_t store_leader_try(struct store *s, const char *holder, int64_t known, struct store_leader **ret,
                                     struct err *e);
int64_t store_leader_epoch(const struct store_leader *l);
const char *store_leader_nonce(const struct store_leader *l); /* a UUID */
enum store_succession store_leader_succession(const struct store_leader *l);
/* Whether the database was restored or a standby took over since the last election: it is on another PostgreSQL cluster
 * or timeline, or it or its leader's table was created again. Two cases are not detected: files of the same cluster
 * that were copied back, and rows that were replaced in the same tables (pg_restore --data-only). */
bool store_leader_moved(const struct store_leader *l);
/* Raises the ids of new jobs by STORE_IDS_SKIPPED: the next ids may belong to jobs that the database has lost, but
 * whose files and processes still exist. */
MUST_CHECK status_t store_leader_skip_ids(struct store_leader *l, struct err *e);
/* The same leader continues under a new epoch, above its own and above `above`. */
MUST_CHECK status_t store_leader_raise(struct store_leader *l, int64_t above, struct err *e);
/* Checks the leadership with one round trip on the lock's connection. FAILED_PRECONDITION or UNAVAILABLE: it is lost;
 * close the leader and try again. Call it about once a second. */
MUST_CHECK status_t store_leader_check(struct store_leader *l, struct err *e);
/* Whether a mutation under this epoch would be accepted now. */
MUST_CHECK status_t store_leader_is_current(struct store *s, int64_t epoch, bool *ret, struct err *e);
/* Whether another controller has led since the epoch `known`, for a holder that did not get the lock. The lock may also
 * belong to an old session of the same holder that the server has not closed yet. */
MUST_CHECK status_t store_leader_followed(struct store *s, const char *holder, int64_t known, bool *ret, struct err *e);
struct store_leader *store_leader_close(struct store_leader *l); /* releases the lock */
CLEANUP_DEFINE(struct store_leader *, store_leader_close)

#endif
