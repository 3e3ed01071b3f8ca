#include "service/controller/election_history.h"

#include "base/alloc.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct election {
    int64_t epoch;
    char nonce[STORE_UUID_BYTES];
};

struct election_history {
    pthread_mutex_t lock;
    char cluster[STORE_UUID_BYTES];
    struct election *elections; /* lowest epoch first */
    size_t n;
};

struct election_history *election_history_new(void) {
    struct election_history *h = alloc_zeroed(1, sizeof *h);
    pthread_mutex_init(&h->lock, NULL);
    return h;
}

struct election_history *election_history_free(struct election_history *h) {
    if (!h)
        return NULL;
    pthread_mutex_destroy(&h->lock);
    free(h->elections);
    free(h);
    return NULL;
}

status_t election_history_read(struct election_history *h, struct store *s, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    char cluster[STORE_UUID_BYTES];
    struct store_election *rows;
    size_t n;
    TRY(store_cluster_id(s, cluster, e));
    TRY(store_election_list(s, m, &rows, &n, e));
    struct election *elections = alloc_zeroed(n, sizeof *elections);
    for (size_t i = 0; i < n; i++) {
        elections[i].epoch = rows[i].epoch;
        strncpy(elections[i].nonce, rows[i].nonce, STORE_UUID_BYTES - 1);
    }
    pthread_mutex_lock(&h->lock);
    free(h->elections);
    h->elections = elections;
    h->n = n;
    memcpy(h->cluster, cluster, sizeof h->cluster);
    pthread_mutex_unlock(&h->lock);
    return ST_OK;
}

void election_history_cluster(struct election_history *h, char ret[STORE_UUID_BYTES]) {
    pthread_mutex_lock(&h->lock);
    memcpy(ret, h->cluster, sizeof h->cluster);
    pthread_mutex_unlock(&h->lock);
}

static int by_epoch(const void *epoch, const void *election) {
    const int64_t a = *(const int64_t *)epoch, b = ((const struct election *)election)->epoch;
    return a < b ? -1 : a > b;
}

static enum election_history_result check_locked(const struct election_history *h, const char *cluster, int64_t epoch,
                                                 const char *nonce) {
    if (*cluster && strcmp(cluster, h->cluster) != 0)
        return ELECTION_OTHER_CLUSTER;
    const int64_t newest = h->n ? h->elections[h->n - 1].epoch : 0;
    if (epoch < 0 || epoch > newest + ELECTION_MAX_EPOCHS_AHEAD)
        return ELECTION_IMPOSSIBLE;
    if (epoch > newest) /* the executor has obeyed a leader that the database does not know */
        return ELECTION_FORGOTTEN;
    const struct election *known = h->n ? bsearch(&epoch, h->elections, h->n, sizeof *h->elections, by_epoch) : NULL;
    if (!*nonce || h->n == 0 || epoch < h->elections[0].epoch)
        return ELECTION_KNOWN;
    return known && strcmp(known->nonce, nonce) == 0 ? ELECTION_KNOWN : ELECTION_FORGOTTEN;
}

enum election_history_result election_history_check(struct election_history *h, const char *cluster, int64_t epoch,
                                                    const char *nonce) {
    pthread_mutex_lock(&h->lock);
    enum election_history_result result = check_locked(h, cluster, epoch, nonce);
    pthread_mutex_unlock(&h->lock);
    return result;
}
