/* The elections of this cluster, to check what an executor reports: which cluster it obeys, and the last election whose
 * leader it has obeyed. If an executor knows an election that the database does not know, the database was restored
 * from a backup, or a standby without the newest transactions took over.
 *
 * Thread-safe. */
#ifndef SERVICE_CONTROLLER_ELECTION_HISTORY_H
#define SERVICE_CONTROLLER_ELECTION_HISTORY_H

#include "base/cleanup.h"
#include "base/status.h"
#include "service/store/cluster.h"

#include <stdint.h>

/* How far above the leader's epoch an executor's epoch may be. No cluster can have had more elections. */
#define ELECTION_MAX_EPOCHS_AHEAD (1LL << 32)

enum election_history_result {
    ELECTION_KNOWN,         /* the database knows it, or it is older than the elections that are kept */
    ELECTION_FORGOTTEN,     /* the database has forgotten that election */
    ELECTION_OTHER_CLUSTER, /* the executor obeys another cluster */
    ELECTION_IMPOSSIBLE,    /* no leader can have had such an epoch */
};

struct election_history;
struct election_history *election_history_new(void);
struct election_history *election_history_free(struct election_history *h);
CLEANUP_DEFINE(struct election_history *, election_history_free)

/* Reads the history from the database, after an election. On failure, the history in memory does not change. */
MUST_CHECK status_t election_history_read(struct election_history *h, struct store *s, struct err *e);
/* The cluster's id; "" before the first read. */
void election_history_cluster(struct election_history *h, char ret[STORE_UUID_BYTES]);
/* cluster, nonce: "" if the executor knows none; executors of older versions have neither. */
enum election_history_result election_history_check(struct election_history *h, const char *cluster, int64_t epoch,
                                                    const char *nonce);

#endif
