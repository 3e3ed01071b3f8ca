#include "service/store/leader.h"

#include "service/store/pool.h"

#include <stdlib.h>

/* Any number that no one else uses: "TYLD". */
#define LEADER_LOCK 1415138380

static const struct sql LEADER_LOCK_TRY = { "leader_lock_try", "SELECT pg_try_advisory_lock($1)" };
static const struct sql LEADER_ELECT = {
    "leader_elect", "UPDATE leader SET epoch = epoch + CASE WHEN holder = $1 AND epoch > $2 THEN 0 ELSE 1 END, "
                    "holder = $1, elected_at = now() RETURNING epoch"
};
static const struct sql LEADER_STILL = { "leader_still", "SELECT 1 FROM leader WHERE epoch = $1" };

static const struct sql LEADER_FOLLOWED = { "leader_followed",
                                            "SELECT epoch > $2 AND NOT (holder = $1 AND epoch = $2 + 1) FROM leader" };
static const struct sql LEADER_CURRENT = { "leader_current", "SELECT epoch FROM leader" };

struct store_leader {
    struct connection *c; /* its session holds the lock */
    int64_t epoch;
};

struct store_leader *store_leader_close(struct store_leader *l) {
    if (l) {
        connection_close(l->c);
        free(l);
    }
    return NULL;
}

static status_t elect(struct store_leader *l, const char *holder, int64_t known, bool *ret_won, struct err *e) {
    struct sql_args lock = { 0 };
    sql_add_int8(&lock, LEADER_LOCK);
    CLEANUP(sql_clearp) PGresult *locked = NULL;
    TRY(sql_run_one(l->c, &LEADER_LOCK_TRY, &lock, &locked, "no answer about the leader's lock", e));
    *ret_won = sql_bool(locked, 0, 0);
    if (!*ret_won)
        return ST_OK;
    struct sql_args a = { 0 };
    sql_add_text(&a, holder);
    sql_add_int8(&a, known);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run_one(l->c, &LEADER_ELECT, &a, &r, "the leader's row is missing", e));
    l->epoch = sql_int8(r, 0, 0);
    return ST_OK;
}

status_t store_leader_try(struct store *s, const char *holder, int64_t known, struct store_leader **ret,
                          struct err *e) {
    CLEANUP(store_leader_closep) struct store_leader *l = calloc(1, sizeof *l);
    if (!l)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the leader's lock");
    TRY(connection_open(s->conninfo, &l->c, e));
    bool won;
    TRY(elect(l, holder, known, &won, e));
    *ret = won ? take_ptr(&l) : NULL;
    return ST_OK;
}

static status_t current_body(struct connection *c, void *ret_epoch, struct err *e) {
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run_one(c, &LEADER_CURRENT, NULL, &r, "the leader's row is missing", e));
    *(int64_t *)ret_epoch = sql_int8(r, 0, 0);
    return ST_OK;
}

status_t store_leader_current(struct store *s, int64_t *ret_epoch, struct err *e) {
    return store_query(s, current_body, ret_epoch, e);
}

struct followed {
    const char *holder;
    int64_t known;
    bool ret;
};

static status_t followed_body(struct connection *c, void *ctx, struct err *e) {
    struct followed *f = ctx;
    struct sql_args a = { 0 };
    sql_add_text(&a, f->holder);
    sql_add_int8(&a, f->known);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run_one(c, &LEADER_FOLLOWED, &a, &r, "the leader's row is missing", e));
    f->ret = sql_bool(r, 0, 0);
    return ST_OK;
}

status_t store_leader_followed(struct store *s, const char *holder, int64_t known, bool *ret, struct err *e) {
    struct followed f = { .holder = holder, .known = known };
    TRY(store_query(s, followed_body, &f, e));
    *ret = f.ret;
    return ST_OK;
}

int64_t store_leader_epoch(const struct store_leader *l) { return l->epoch; }

status_t store_leader_check(struct store_leader *l, struct err *e) {
    struct sql_args a = { 0 };
    sql_add_int8(&a, l->epoch);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(l->c, &LEADER_STILL, &a, &r, e));
    if (PQntuples(r) == 0)
        return err_set(e, ST_FAILED_PRECONDITION, "epoch %lld is over: another controller leads", (long long)l->epoch);
    return ST_OK;
}
