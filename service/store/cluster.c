#include "service/store/cluster.h"

#include "service/store/pool.h"

#include <string.h>

struct cluster_row {
    char id[STORE_UUID_BYTES];
};

static const struct sql_query CLUSTER_ID = { { "cluster_id", "SELECT {columns} FROM cluster" },
                                             SQL_ROW(struct cluster_row,
                                                     SQL_COLUMN(struct cluster_row, id, "id::text")) };
static const struct sql_query ELECTION_LIST = { { "election_list", "SELECT {columns} FROM election ORDER BY epoch" },
                                                SQL_ROW(struct store_election,
                                                        SQL_COLUMN(struct store_election, epoch, "epoch"),
                                                        SQL_COLUMN(struct store_election, nonce, "nonce::text")) };

status_t store_cluster_id(struct store *s, char ret[STORE_UUID_BYTES], struct err *e) {
    struct cluster_row row;
    bool found;
    TRY(store_find(s, NULL, &CLUSTER_ID, NULL, &row, &found, e));
    if (!found)
        return err_set(e, ST_NOT_FOUND, "the database has no cluster id: table cluster is empty");
    memcpy(ret, row.id, sizeof row.id);
    return ST_OK;
}

status_t store_election_list(struct store *s, struct store_memory *m, struct store_election **ret, size_t *ret_n,
                             struct err *e) {
    return store_rows(s, m, &ELECTION_LIST, NULL, ret, ret_n, e);
}
